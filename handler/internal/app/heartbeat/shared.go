package heartbeat

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Title returns the name of the app and, if it is known, its adapter.
func (a App) Title() string {
	if a.Adapter == "" {
		return a.Name
	}
	return a.Name + " (" + a.Adapter + ")"
}

// joinNames returns the names of queues as a row has them, without the last ones if they are too many for a text.
func joinNames(names []string) string {
	all := strings.Join(names, ",")
	if len(all) <= rows.MaxText {
		return all
	}
	return all[:max(strings.LastIndexByte(all[:rows.MaxText+1], ','), 0)]
}

// queuesOf returns the queues of a row; those that can be no queue are left out.
func queuesOf(row Row) (names []string) {
	for name := range strings.SplitSeq(text.Clip(row.Queues, rows.MaxText), ",") {
		if storage.ValidName(name) {
			names = append(names, strings.Clone(name))
		}
	}
	return names
}

// adapterOf returns the adapter of a row; empty if it is unknown.
func adapterOf(row Row) string {
	for _, known := range []string{Host, Worker} {
		if row.Adapter == known {
			return known
		}
	}
	return ""
}

// OneName says what to do about apps that [Shared] reports.
const OneName = "give them one name, by ASYNC_CALLER_APP or AzureFunctionsWebHost__hostid"

// Shared says that apps that run and make calls serve a queue together, so that each counts the limits of targets on
// its own; empty if none do, or if that is unknown.
func Shared(apps []App, now time.Time) string {
	servers := map[string][]string{}
	for _, app := range apps {
		if app.Problem != "" || now.Sub(app.LastSign()) > maxMonitorAge {
			continue
		}
		for _, queue := range slices.Compact(slices.Sorted(slices.Values(app.Queues))) {
			servers[queue] = append(servers[queue], app.Title())
		}
	}
	var names, queues []string
	for queue, titles := range servers {
		if len(titles) > 1 {
			queues = append(queues, queue)
			names = append(names, titles...)
		}
	}
	if len(queues) == 0 {
		return ""
	}
	return fmt.Sprintf("the apps %s serve the same queues, %s: each of them counts limits of targets on its own",
		firstOf(names), firstOf(queues))
}

// firstOf lists at most three names, each once, and says how many more there are.
func firstOf(names []string) string {
	const most = 3
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("and %d more", more))
	}
	return text.Printable(strings.Join(names, ", "))
}
