package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"asynccaller/handler/internal/app/functionapp"
)

const (
	// bodyLimit is the setting with the size of the largest body that the host reads, in bytes, and mostBodyBytes what
	// the template sets: larger posts have no room in a message.
	bodyLimit     = "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"
	mostBodyBytes = 1 << 20
	// mostRequests is what host.json has: so many requests of this size take 600 MiB of the host at most.
	mostRequests = 100
)

// posts checks the functions that take posts for routes.
func (report Reporter) posts(app *functionapp.App, environ []string) {
	if len(app.Posts) == 0 {
		return
	}
	var open, names []string
	for _, p := range app.Posts {
		names = append(names, p.Name)
		if !strings.EqualFold(p.AuthLevel, "function") && !strings.EqualFold(p.AuthLevel, "admin") {
			open = append(open, fmt.Sprintf("%s (authLevel %q)", p.Name, p.AuthLevel))
		}
	}
	report.items(open, Line{
		State: Broken, Check: "posts",
		Text: "the host demands no key, so the handler refuses every post with 401",
		Next: `set "authLevel": "function" in their function.json and deploy again; or delete their folders, run ` +
			"`async-caller routes sync` and deploy again",
	}, "the host takes them with a key; a worker takes none: "+strings.Join(names, ", "))
	var unbounded []string
	size := 0
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.EqualFold(name, bodyLimit) {
			size, _ = strconv.Atoi(value)
		}
	}
	if size <= 0 || size > mostBodyBytes {
		unbounded = append(unbounded, fmt.Sprintf("the setting %s (want at most %d)", bodyLimit, mostBodyBytes))
	}
	if n := app.Host.MaxRequests; n <= 0 || n > mostRequests {
		unbounded = append(unbounded,
			fmt.Sprintf("extensions.http.maxConcurrentRequests in host.json (want at most %d)", mostRequests))
	}
	report.items(unbounded, Line{
		State: Warning, Check: "memory of posts",
		Text: "who has a key can take the memory of an instance",
		Next: "the template sets the setting, in the app and not in this environment; the shipped host.json has the " +
			"number of requests",
	}, "bounded")
}
