package e2e_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPostsPage runs the samples of docs/http.md that need only curl and Node.js, with the page's routes.json. The
// answer is as the page shows it, and the target receives the post.
func TestPostsPage(t *testing.T) {
	t.Parallel()
	needsHost(t, noPostsYet)
	onlyLocal(t, noPosts)
	f := newFixture(t, options{})
	text, err := os.ReadFile("../../../docs/http.md")
	f.must(err)
	page := strings.ReplaceAll(string(text), "https://shop.example.com/orders", f.target.URL("200"))
	sample := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1)
		if len(found) != 1 {
			t.Fatalf("docs/http.md has %d times %s", len(found), pattern)
		}
		return found[0][1]
	}
	root := f.startRoutes(sample(`(?m)^(    \{\n(?:      .*\n)+    \})$`))
	const order = `{"id":42}`
	f.must(os.WriteFile(filepath.Join(f.app, "order.json"), []byte(order), 0o600))
	run := func(name string, args ...string) string {
		args[len(args)-1] = strings.ReplaceAll(args[len(args)-1], "https://APP.azurewebsites.net", root)
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir, command.Env = f.app, append(os.Environ(), "KEY="+postKey)
		output, err := command.Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return string(output)
	}
	var got, want map[string]string
	f.must(json.Unmarshal([]byte(run("sh", "-c", sample(`(?m)^    (curl https(?:.*\\\n)*.*)$`))), &got))
	f.must(json.Unmarshal([]byte(sample(`(?m)^    (\{"messageId".*)$`)), &want))
	want["messageId"] = got["messageId"]
	if got["messageId"] == "" || !maps.Equal(got, want) {
		t.Errorf("answered %v, want %v", got, want)
	}
	run("node", "--input-type=module", "--eval",
		"const order = "+order+", key = process.env.KEY;\n"+sample("(?s)```javascript\n(.*?)```"))
	f.await("both posts", func() bool { return len(f.target.Calls("order-42")) == 2 })
	for _, call := range f.target.Calls("order-42") {
		if string(call.Body) != order || call.Header.Get("Content-Type") != "application/json" {
			t.Errorf("called with %s, %v", call.Body, call.Header)
		}
	}
}
