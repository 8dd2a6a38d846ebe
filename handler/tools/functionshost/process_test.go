//go:build unix

package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/listener"
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
	h := startHost(t, func(h *host) { h.options.Account = "acme.queue.core.windows.net" })
	h.put("env:FUNCTIONS_APP_ROOT_PATH")
	h.put("env:" + environmentVariable)
	h.log.waitFor(t, `"result":"Succeeded"`, 2)
	h.stop()
	want := listener.Stats{Received: 2, Succeeded: 2, MaxDequeueCount: 1}
	if got := h.summary(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if left := h.store.All("work"); len(left) != 0 {
		t.Errorf("%d messages left on the queue", len(left))
	}
	dir := h.options.App.Dir
	h.output.waitFor(t, fmt.Sprintf("fake: dir=%s FUNCTIONS_APP_ROOT_PATH=%s\n", dir, dir), 1)
	h.output.waitFor(t, " "+environmentVariable+"=Development\n", 1)
	for _, text := range []string{
		`"message":"host started"`, `"account":"acme.queue.core.windows.net"`, `"Fn <- work"`,
		`"message":"handler ready"`, `"message":"Executing"`,
		"New queue message detected on 'work'.", `"message":"fake: logged"`, `"message":"host stopped"`,
	} {
		h.log.waitFor(t, text, 1)
	}
}

// A message that always fails goes to the poison queue, and expires there when the Functions host lets it expire.
func TestRunPoison(t *testing.T) {
	h := startHost(t, func(h *host) { h.options.App.Host.Queues.MaxDequeueCount = 1 })
	h.put("fail")
	h.log.waitFor(t, "Moving message to queue 'work-poison'.", 1)
	h.stop()
	want := listener.Stats{Received: 1, Failed: 1, Poisoned: 1, MaxDequeueCount: 1}
	if got := h.summary(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	poisoned := h.store.All("work-poison")
	if len(poisoned) != 1 || poisoned[0].ExpiresAt.Sub(poisoned[0].InsertedAt) != 7*24*time.Hour {
		t.Errorf("poison queue holds %+v, want the message, for 7 days", poisoned)
	}
}

func TestRunKilledHandlerIsRestarted(t *testing.T) {
	h := startHost(t, nil)
	h.put("block/ok")
	h.output.waitFor(t, "fake: block count=1", 1)
	pid := latestPID(t, h.output.text())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.log.waitFor(t, `"result":"Succeeded"`, 1)
	h.stop()
	got := h.summary()
	failures := max(got.Failed, 1) // see manyAttempts
	want := listener.Stats{Received: 1 + failures, Succeeded: 1, Failed: failures, MaxDequeueCount: int64(1 + failures)}
	if got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	h.mustHaveStarted(2)
}

func TestRunStopsAtThirdError(t *testing.T) {
	h := startHost(t, nil)
	h.put("exit:1")
	err := h.ended()
	if err == nil || !strings.Contains(err.Error(), "Exceeded http worker restart retry count: 3 errors") ||
		!strings.Contains(err.Error(), "exit status 1: fake: last words") {
		t.Errorf("Run: %v, want the retry count and the end of stderr", err)
	}
	h.mustHaveStarted(3)
}

// mustHaveEnded checks that the handler's latest process has ended, or that it has not.
func (r *runningHost) mustHaveEnded(want bool) {
	r.t.Helper()
	if err := syscall.Kill(latestPID(r.t, r.output.text()), 0); errors.Is(err, syscall.ESRCH) != want {
		r.t.Errorf("signal the handler: %v; want it ended: %v", err, want)
	}
}

// mustBeUndisturbed checks that the host sent the handler no signal that it can notice. Call it after the handler has
// ended.
func (r *runningHost) mustBeUndisturbed() {
	r.t.Helper()
	if text := r.output.text(); strings.Contains(text, "fake: interrupted") {
		r.t.Errorf("the handler was interrupted:\n%s", text)
	}
}

// gate is a place where the fake handler waits.
type gate struct {
	net.Listener
	t *testing.T
}

func newGate(t *testing.T) gate {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return gate{listener, t}
}

// reached waits until the handler is at the gate. The function that it returns opens the gate.
func (g gate) reached() (open func() error) {
	g.t.Helper()
	conn, err := g.Accept()
	if err != nil {
		g.t.Fatal(err)
	}
	return conn.Close
}

func TestRunStopLetsInvocationsFinish(t *testing.T) {
	h, gate := startHost(t, nil), newGate(t)
	h.put("gate:" + gate.Addr().String())
	open := gate.reached()
	h.stop()
	h.log.waitFor(t, `"message":"host stopping"`, 1)
	if err := open(); err != nil {
		t.Fatal(err)
	}
	want := listener.Stats{Received: 1, Succeeded: 1, MaxDequeueCount: 1}
	if got := h.summary(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if left := h.store.All("work"); len(left) != 0 {
		t.Errorf("%d messages left on the queue", len(left))
	}
	h.mustHaveEnded(true)
	h.mustBeUndisturbed()
}

// The host leaves a busy handler behind, and its message leased. Close kills it, and leaves the message alone too.
func TestRunStopLeavesBusyHandler(t *testing.T) {
	h := startHost(t, func(h *host) { h.stopTimeout = 50 * time.Millisecond })
	h.put("block")
	h.output.waitFor(t, "fake: block", 1)
	h.stop()
	want := listener.Stats{Received: 1, MaxDequeueCount: 1}
	if got := h.summary(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	h.mustHaveEnded(false)
	h.Close()
	h.mustHaveEnded(true)
	h.mustBeUndisturbed()
	h.mustHold(true)
	h.mustHaveStarted(1)
}

// An empty answer hangs until functionTimeout. Then the handler is killed with all its invocations, and this
// is no error of the handler.
func TestRunFunctionTimeout(t *testing.T) {
	h := startHost(t, func(h *host) {
		h.options.MaxHandlerErrors = 1
		h.options.App.Host.FunctionTimeout = 2 * time.Second
	})
	h.put("empty/ok")
	h.put("block/ok")
	h.log.waitFor(t, `"result":"Succeeded"`, 2)
	h.stop()
	want := listener.Stats{Received: 4, Succeeded: 2, Failed: 2, MaxDequeueCount: 2}
	if got := h.summary(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	h.mustHaveStarted(2)
}

// withTimer adds a timer that runs at the start of the host and then on 29 February.
func withTimer(t *testing.T, name string) func(*host) {
	t.Helper()
	timer := functionapp.Timer{Name: name, Binding: "timer", Schedule: "0 0 0 29 2 *", RunOnStartup: true}
	return func(h *host) { h.options.App.Timers = []functionapp.Timer{timer} }
}

func TestRunTimer(t *testing.T) {
	h := startHost(t, withTimer(t, "ok"))
	h.log.waitFor(t, `"result":"Succeeded"`, 1)
	h.put("ok")
	h.log.waitFor(t, `"result":"Succeeded"`, 2)
	h.stop()
	want := listener.Stats{Received: 1, Succeeded: 1, MaxDequeueCount: 1}
	if got := h.summary(); got != want {
		t.Errorf("stats %+v, want those of messages alone: %+v", got, want)
	}
	for _, text := range []string{`"timers":["ok <- 0 0 0 29 2 *"]`, `"reason":"Timer fired at `} {
		h.log.waitFor(t, text, 1)
	}
}
