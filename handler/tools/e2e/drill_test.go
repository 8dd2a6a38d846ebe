package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDrill drills an app that runs: calls that fail at first are delivered, those that the target rejects are
// reported with the reason, and neither leaves a message behind.
func TestDrill(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{tables: true})
	f.stageMonitor()
	f.start(nil)
	f.awaitOutcomes()
	type result struct {
		RequestIDs                       string
		Sent, Delivered, Failed, Missing int
		Failures                         map[string]int
	}
	for _, test := range []struct {
		script string
		code   int
		want   result
	}{
		{"503,200", 0, result{Sent: 5, Delivered: 5, Failures: map[string]int{}}},
		{"422", 1, result{Sent: 5, Failed: 5, Failures: map[string]int{"rejected, status 422": 5}}},
	} {
		command, stdout, stderr := f.operate("drill", "--url", f.target.URL(test.script), "--count", "5", "--json")
		_ = command.Run()
		var got result
		f.must(json.Unmarshal(stdout.Bytes(), &got))
		id := got.RequestIDs + "1"
		if code := command.ProcessState.ExitCode(); code != test.code || len(f.target.Calls(id)) == 0 ||
			!strings.HasPrefix(id, "drill-") {
			t.Errorf("%s: exit code %d\n%s%s", test.script, code, stdout, stderr)
		}
		got.RequestIDs = ""
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", test.script, diff)
		}
	}
	f.awaitEmpty()
	if f.count(poisonQueue) > 0 {
		t.Error("there are dead letters")
	}
}
