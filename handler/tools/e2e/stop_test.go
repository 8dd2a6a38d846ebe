package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/tools/testbed"
)

// TestHostEndsDuringCalls checks that calls that a host leaves behind are made again soon after the next host has
// started, as the same attempt, and that every message is there once.
func TestHostEndsDuringCalls(t *testing.T) {
	needsHost(t, "a worker leaves no calls behind; TestStop and TestKills of package work")
	const messages = 20
	for name, end := range map[string]func(*testbed.Host) error{
		"killed":     (*testbed.Host).Kill,
		"terminated": (*testbed.Host).Terminate, // it waits for 10 s, but the calls take longer
	} {
		t.Run(name, func(t *testing.T) {
			if name == "terminated" {
				onlyLocal(t, "Core Tools ignore SIGTERM")
			}
			t.Parallel()
			f := newFixture(t, options{})
			for n := range messages {
				f.put(fmt.Sprintf("r%d", n), "hang,200", "")
			}
			env := []string{fmt.Sprintf("AzureFunctionsJobHost__extensions__queues__batchSize=%d", messages)}
			f.start(env)
			f.await("every call to begin", func() bool {
				for n := range messages {
					if len(f.target.Calls(fmt.Sprintf("r%d", n))) == 0 {
						return false
					}
				}
				return true
			})
			f.must(end(f.host))
			<-f.host.Done()
			f.start(env)
			began := time.Now()
			f.await("every message to be delivered", func() bool { return f.delivered(messages) })
			f.awaitEmpty()
			for n := range messages {
				calls := f.target.Calls(fmt.Sprintf("r%d", n))
				if len(calls) != 2 || calls[0].Attempt != "1" || calls[1].Attempt != "1" ||
					calls[1].At.Sub(began) > 30*time.Second {
					t.Errorf("r%d: calls %v since %v, want the first attempt twice within 30 s", n, calls, began)
				}
			}
			if n := f.count(poisonQueue); n > 0 {
				t.Errorf("%d messages in the poison queue", n)
			}
			f.stopAndCount(map[string]float64{"received": messages, "failed": 0, "max_dequeue_count": 2})
		})
	}
}
