//go:build long

package quickstart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMakeRunWithABrokenFile: a file of the user does not fail the self-test. The app with it, which make run starts
// next, does not start, and its error is the last word.
func TestMakeRunWithABrokenFile(t *testing.T) {
	demo := newDemo(t)
	const targets = `{"*": {"headers": {"Authorization": "$SECRET"}, "statuses": {"reject": [503]}}}`
	must(t, os.WriteFile(filepath.Join(demo.Dir, "dist", "targets.json"), []byte(targets), 0o600))
	output, err := demo.CombinedOutput()
	text := string(output)
	for _, want := range []string{
		"delivered      20\n", "environment variable SECRET is not set",
		"demo: the app in dist does not start; its error is above\n",
	} {
		if err == nil || !strings.Contains(text, want) || strings.Contains(text, "Everything keeps running") {
			t.Fatalf("error %v of an app that does not start; want %q in\n%s", err, want, text)
		}
	}
}
