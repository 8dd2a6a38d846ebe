package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/tail"
)

// stageMonitor adds the timer function AC-monitor to the app, with a run each second.
func (f *fixture) stageMonitor() { f.stageTimer("AC-monitor", `"0 * * * * *"`) }

// awaitOutcomes waits until the app has said that it records outcomes: --canary is not refused any more.
func (f *fixture) awaitOutcomes() {
	f.t.Helper()
	f.await("a heartbeat of the app", func() bool {
		_, code := f.scheduled("retry", "no-such-message", "--canary", "1", "--dry-run")
		return code == 3
	})
}

// putDead puts dead letters r0, r1, … on the poison queue, whose calls are answered by the script.
func (f *fixture) putDead(total int, script string) {
	f.t.Helper()
	texts := make([]string, total)
	for n := range texts {
		content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r%d","call":{"url":%q},"attempts":1,"deadLetter":`+
			`{"at":"2026-01-08T00:00:00Z","reason":"expired","queue":"async-caller"}}`, n, f.target.URL(script))
		texts[n] = storage.Base64.Encode(content)
	}
	f.putAll(poisonQueue, 0, texts)
}

// called counts the messages r0, r1, … that were called.
func (f *fixture) called(total int) (n int) {
	for i := range total {
		if len(f.target.Calls(fmt.Sprintf("r%d", i))) > 0 {
			n++
		}
	}
	return n
}

// TestCanaryBehindTheBreaker requeues dead letters while the circuit breaker of their target is open. The command says
// so and sends no others. When the target is back, the run is resumed.
func TestCanaryBehindTheBreaker(t *testing.T) {
	t.Parallel()
	const messages, opening = 30, 40
	f := newFixture(t, options{tables: true, breaker: true})
	f.stageMonitor()
	f.putDead(messages, "200")
	f.start(nil)
	f.awaitOutcomes()
	deadline := time.Now().Add(20 * time.Second).Format(time.RFC3339)
	for n := range opening {
		f.put(fmt.Sprintf("down%d", n), "503", `,"retry":{"schedule":["1s"]},"deadline":"`+deadline+`"`)
	}
	f.await("the circuit breaker to open", func() bool {
		return strings.Contains(f.host.Output(), "circuit breaker opened")
	})
	command, _, _ := f.poisonCommand("retry", "--all", "--canary", "3", "--yes")
	said := &tail.Writer{}
	command.Stderr = said
	f.must(command.Start())
	f.await("the reason to be said", func() bool {
		return strings.Contains(said.String(), "not called yet: the circuit breaker of 127.0.0.1:")
	})
	f.must(command.Process.Signal(os.Interrupt))
	_ = command.Wait()
	if !strings.Contains(said.String(), "(27 left)") {
		t.Errorf("it said %s", said)
	}
	if code := command.ProcessState.ExitCode(); code != 4 || f.called(messages) > 3 {
		t.Fatalf("exit code %d, %d were called", code, f.called(messages))
	}
	run := f.latestRun()
	f.await("the run to be resumed", func() bool {
		_, code := f.poison("resume", run)
		return code == 0
	})
	f.await("all calls", func() bool { return f.called(messages) == messages })
	for n := range messages {
		if calls := f.target.Calls(fmt.Sprintf("r%d", n)); len(calls) != 1 {
			t.Errorf("r%d was called %d times", n, len(calls))
		}
	}
}
