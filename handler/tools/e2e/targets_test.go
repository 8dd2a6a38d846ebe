package e2e_test

import (
	"encoding/json"
	"testing"
	"time"
)

// failing returns how the target fails, as the status shows it.
func (f *fixture) failing() (causes []string) {
	f.t.Helper()
	command, stdout, stderr := f.operate("status", "--json")
	if err := command.Run(); err != nil {
		f.t.Fatalf("status: %v\n%s", err, stderr)
	}
	var status struct {
		Targets []struct {
			Failing []struct{ Cause, Answer string }
		}
	}
	f.must(json.Unmarshal(stdout.Bytes(), &status))
	for _, t := range status.Targets {
		for _, failing := range t.Failing {
			causes = append(causes, failing.Cause+" "+failing.Answer)
		}
	}
	return causes
}

// TestFailingTarget: the status shows that a target fails, until another instance of the app has seen that it is up.
func TestFailingTarget(t *testing.T) {
	f := newFixture(t, options{tables: true})
	f.start(nil)
	f.put("first", "503,200", `,"retry":{"schedule":["2h"]}`)
	f.await("the failure to be shown", func() bool {
		causes := f.failing()
		return len(causes) == 1 && causes[0] == `503 {"status":503}`
	})
	f.must(f.host.Stop(30 * time.Second))
	if causes := f.failing(); len(causes) != 1 {
		t.Errorf("after the end of the instance: %q", causes)
	}
	f.start(nil)
	f.put("second", "200", "")
	f.await("the success to be seen", func() bool { return len(f.failing()) == 0 })
}
