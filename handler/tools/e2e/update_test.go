package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// inUpdateMode makes the handler reschedule messages in place.
var inUpdateMode = []string{"ASYNC_CALLER_RESCHEDULE=update"}

// modes counts, from the log, how messages were rescheduled.
func (f *fixture) modes() map[any]int {
	modes := map[any]int{}
	for _, line := range f.host.Lines("settled") {
		if line["action"] == "reschedule" {
			modes[line["reschedule"]]++
		}
	}
	return modes
}

// TestUpdateTwelveFailures checks that a target that fails 12 times and then answers 200 gets exactly 13 calls.
func TestUpdateTwelveFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{azurite: true})
	f.put("r0", strings.Repeat("503,", 12)+"200", `,"retry":{"schedule":["1s"]}`)
	f.start(inUpdateMode)
	f.await("the last call", func() bool { return f.delivered(1) })
	f.awaitEmpty()
	f.stopAndCount(map[string]float64{"max_dequeue_count": 4, "failed": 0, "poisoned": 0}) // host.json has 5
	for n, call := range f.target.Calls("r0") {
		if call.Attempt != fmt.Sprint(n+1) {
			t.Errorf("call %d is attempt %s", n+1, call.Attempt)
		}
	}
	if calls, poison := len(f.target.Calls("r0")), f.count(poisonQueue); calls != 13 || poison > 0 {
		t.Errorf("%d calls, %d messages in the poison queue", calls, poison)
	}
	if modes := f.modes(); modes["update"] != 9 || modes["enqueue"] != 3 {
		t.Errorf("rescheduled by %v, want a successor every fourth time", modes)
	}
}
