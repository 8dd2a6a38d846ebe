//go:build unix

package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"asynccaller/handler/internal/queue"
)

// latestPID returns the process id that the fake handler printed last.
func latestPID(t *testing.T, output string) int {
	t.Helper()
	const mark = "fake: pid="
	rest := output[strings.LastIndex(output, mark)+len(mark):]
	digits, _, _ := strings.Cut(rest, ".")
	pid, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("no process id in %q", output)
	}
	return pid
}

func TestRunDelivers(t *testing.T) {
	h := startHost(t, "serve", nil)
	h.put("env:FUNCTIONS_APP_ROOT_PATH")
	h.put("env:FUNCTIONS_HTTPWORKER_ID")
	h.log.waitFor(t, `"result":"Succeeded"`, 2)
	h.stop()
	if got, want := h.summary(), (stats{received: 2, succeeded: 2, maxDequeueCount: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if left := h.store.All("work"); len(left) != 0 {
		t.Errorf("%d messages left on the queue", len(left))
	}
	dir := h.options.App.Dir
	h.output.waitFor(t, fmt.Sprintf("fake: dir=%s FUNCTIONS_APP_ROOT_PATH=%s\n", dir, dir), 1)
	for _, text := range []string{
		`"message":"host started"`, `"Fn <- work"`, `"message":"handler ready"`, `"message":"Executing"`,
		"New queue message detected on 'work'.", `"message":"fake: logged"`, `"message":"host stopped"`,
	} {
		h.log.waitFor(t, text, 1)
	}
}

func TestRunKilledHandlerIsRestarted(t *testing.T) {
	h := startHost(t, "serve", nil)
	h.put("block/ok")
	h.output.waitFor(t, "fake: block count=1", 1)
	pid := latestPID(t, h.output.text())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.log.waitFor(t, `"result":"Succeeded"`, 1)
	h.stop()
	got := h.summary()
	failures := max(got.failed, 1) // see manyAttempts
	want := stats{received: 1 + failures, succeeded: 1, failed: failures, maxDequeueCount: int64(1 + failures)}
	if got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	h.mustHaveStarted(2)
}

func TestRunExitCodes(t *testing.T) {
	for _, code := range []int{0, intentionalRestart} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			h := startHost(t, "serve", func(h *Host) { h.options.MaxHandlerErrors = 1 })
			h.put(fmt.Sprintf("exit:%d/ok", code))
			h.log.waitFor(t, `"result":"Succeeded"`, 1)
			h.stop()
			h.summary()
		})
	}
}

func TestRunStopsAtThirdError(t *testing.T) {
	h := startHost(t, "serve", nil)
	h.put("exit:1")
	err := h.ended()
	if err == nil || !strings.Contains(err.Error(), "Exceeded http worker restart retry count: 3 errors") ||
		!strings.Contains(err.Error(), "exit status 1: fake: last words") {
		t.Errorf("Run: %v, want the retry count and the end of stderr", err)
	}
	h.mustHaveStarted(3)
}

func TestRunStopsWhenHandlerIsNeverReady(t *testing.T) {
	h := startHost(t, "deaf", func(h *Host) { h.readyTimeout, h.options.MaxHandlerErrors = 100*time.Millisecond, 1 })
	if err := h.ended(); err == nil || !strings.Contains(err.Error(), "no answer to GET / within 100ms") {
		t.Errorf("Run: %v, want an error about readiness", err)
	}
}

func TestRunStopsWhenMessageWaitsTooLong(t *testing.T) {
	h := startHost(t, "deaf", func(h *Host) { h.readyTimeout, h.options.MaxHandlerErrors = 100*time.Millisecond, -1 })
	h.put("ok")
	if err := h.ended(); !errors.Is(err, errInitTime) {
		t.Errorf("Run: %v, want %v", err, errInitTime)
	}
	if left := h.store.All("work"); len(left) != 1 || left[0].NextVisibleAt.After(time.Now()) {
		t.Errorf("queue holds %+v, want the message, visible", left)
	}
}

func TestRunLastLinesOfStderr(t *testing.T) {
	h := startHost(t, "stillborn", func(h *Host) { h.options.MaxHandlerErrors = 1 })
	if err := h.ended(); err == nil || !strings.HasSuffix(err.Error(), "exit status 3: two; three; four") {
		t.Errorf("Run: %v, want the last three lines", err)
	}
	h.output.waitFor(t, "one\n", 1)
}

func TestRunStopLetsInvocationsFinish(t *testing.T) {
	h := startHost(t, "serve", nil)
	h.put("until-interrupted")
	h.output.waitFor(t, "fake: until-interrupted", 1)
	h.stop()
	if got, want := h.summary(), (stats{received: 1, succeeded: 1, maxDequeueCount: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if left := h.store.All("work"); len(left) != 0 {
		t.Errorf("%d messages left on the queue", len(left))
	}
	if err := syscall.Kill(latestPID(t, h.output.text()), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal the handler: %v, want it ended", err)
	}
}

func TestRunStopCutsLongInvocations(t *testing.T) {
	h := startHost(t, "serve", func(h *Host) { h.stopTimeout = 50 * time.Millisecond })
	h.put("block")
	h.output.waitFor(t, "fake: block", 1)
	h.stop()
	if got, want := h.summary(), (stats{received: 1, failed: 1, maxDequeueCount: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	h.mustHaveStarted(1)
	if left := h.store.All("work"); len(left) != 1 || left[0].NextVisibleAt.After(time.Now()) {
		t.Errorf("queue holds %+v, want the message, visible", left)
	}
}

// An empty answer hangs until functionTimeout. Then the handler is killed with all its invocations, and this
// is no error of the handler.
func TestRunFunctionTimeout(t *testing.T) {
	h := startHost(t, "serve", func(h *Host) {
		h.options.MaxHandlerErrors = 1
		h.options.App.Host.FunctionTimeout = 2 * time.Second
	})
	h.put("empty/ok")
	h.put("block/ok")
	h.log.waitFor(t, `"result":"Succeeded"`, 2)
	h.stop()
	if got, want := h.summary(), (stats{received: 4, succeeded: 2, failed: 2, maxDequeueCount: 2}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	h.mustHaveStarted(2)
}

func TestRunHugeLine(t *testing.T) {
	h := startHost(t, "serve", nil)
	h.put("print:3000000")
	h.put("ok")
	h.log.waitFor(t, `"result":"Succeeded"`, 2)
	h.output.waitFor(t, strings.Repeat("x", maxLineBytes)+lineCut+"\n", 1)
	h.stop()
	h.summary()
}

func TestRunStorageRefuses(t *testing.T) {
	h := startHost(t, "serve", func(h *Host) {
		h.options.Store = &faultyStore{Store: h.options.Store, fault: func(operation string) error {
			if operation == "receive" {
				return queue.ErrRefused
			}
			return nil
		}}
	})
	if err := h.ended(); !errors.Is(err, queue.ErrRefused) || !strings.Contains(err.Error(), "function Fn cannot read its queue") {
		t.Errorf("Run: %v, want a refusal that names the function", err)
	}
}

// Every message is delivered, however often the handler is killed.
func TestRunManyKills(t *testing.T) {
	const kills, messages = 5, 40
	h := startHost(t, "serve", func(h *Host) { h.options.MaxHandlerErrors = -1 })
	for range messages {
		h.put("ok")
	}
	for n := range kills {
		h.log.waitFor(t, `"message":"handler ready"`, n+1)
		h.put("block/ok") // every kill interrupts an invocation
		h.output.waitFor(t, "fake: block count=1", n+1)
		if err := syscall.Kill(latestPID(t, h.output.text()), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	h.log.waitFor(t, `"result":"Succeeded"`, messages+kills)
	h.stop()
	if got := h.summary(); got.succeeded != messages+kills || got.failed < kills || got.poisoned != 0 {
		t.Errorf("stats %+v, want every message delivered", got)
	}
	h.mustHaveStarted(kills + 1)
}
