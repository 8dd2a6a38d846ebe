package quickstart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMakeRun: the programs of docs/senders.md deliver with make run.
func TestMakeRun(t *testing.T) { deliverSenders(t, startMakeRun(t)) }

// TestMakeRunWithBrokenFiles: a file or a setting of the user does not fail the self-test. The app with it, which
// make run starts next, does not start, and its error is the last word.
func TestMakeRunWithBrokenFiles(t *testing.T) {
	folder, newDemo := layOut(t)
	for _, row := range []struct {
		name, targets, setting, want string
		arguments                    []string
	}{
		{
			"missing_secret", `{"*": {"headers": {"Authorization": "$SECRET"}, "statuses": {"reject": [503]}}}`, "",
			"environment variable SECRET is not set",
			[]string{"-stay"},
		},
		{"not_json", `{"127.0.0.1:8099": `, "", "targets.json: not JSON: line 1", []string{"-stay", "-empty"}},
		{
			"wrong_setting", `{"127.0.0.1:8099": {"statuses": {"reject": [503]}}}`, "ASYNC_CALLER_RETRY=sometimes",
			`ASYNC_CALLER_RETRY: "sometimes"`,
			[]string{"-stay", "-empty"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			must(t, os.WriteFile(filepath.Join(folder, "dist", "targets.json"), []byte(row.targets), 0o600))
			demo := newDemo(t.Context(), row.arguments...)
			demo.Env = environ(row.setting)
			output, err := demo.CombinedOutput()
			text := string(output)
			tested := strings.Count(text, " yes\n") == 7 && strings.Contains(text, "delivered      20\n")
			if len(row.arguments) == 1 && !tested {
				t.Error("the self-test did not end as expected")
			}
			for _, want := range []string{row.want, "demo: the app in dist does not start; its error is above\n"} {
				if !strings.Contains(text, want) {
					t.Errorf("the output has no %q", want)
				}
			}
			if err == nil || strings.Contains(text, "Everything keeps running") {
				t.Errorf("error %v of an app that does not start", err)
			}
			if t.Failed() {
				t.Logf("the output is\n%s", text)
			}
		})
	}
}
