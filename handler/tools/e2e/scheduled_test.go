package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// scheduledResult is the JSON output of a command that changes scheduled messages.
type scheduledResult struct {
	Run                        string
	Total, Done, Skipped, Left int
	Why                        []string
}

// scheduled runs a command on scheduled messages and returns its result and exit code.
func (f *fixture) scheduled(args ...string) (result scheduledResult, code int) {
	f.t.Helper()
	command, stdout, stderr := f.operate(append([]string{"scheduled", "--json"}, args...)...)
	err := command.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exited.ExitCode()
	} else {
		f.must(err)
	}
	f.t.Logf("scheduled %s: exit code %d\n%s", strings.Join(args, " "), code, stderr.String())
	if stdout.Len() > 0 {
		f.must(json.Unmarshal(stdout.Bytes(), &result))
	}
	return result, code
}

// TestRunAfterAnOutage schedules calls for a target that is down. The target comes back, and a run drains them at its rate; it
// is killed and resumed in the middle. None is lost, and none is made twice.
func TestRunAfterAnOutage(t *testing.T) {
	t.Parallel()
	const (
		messages = 400
		rate     = 50
	)
	f := newFixture(t, options{})
	f.start(nil)
	for n := range messages {
		f.put(fmt.Sprintf("r%d", n), "503,200", `,"retry":{"schedule":["2h"]}`)
	}
	f.await("all calls to be recorded", func() bool {
		r, _ := f.scheduled("run", "--host", "127.0.0.1", "--status", "503", "--dry-run")
		return r.Total == messages
	})
	run := []string{"run", "--host", "127.0.0.1", "--rate", fmt.Sprint(rate), "--yes"}
	command, _, stderr := f.operate(append([]string{"scheduled"}, run...)...)
	f.must(command.Start())
	f.await("half of the calls", func() bool { return len(f.secondCalls(messages)) >= messages/2 })
	f.must(command.Process.Kill())
	_ = command.Wait() // it was killed
	f.t.Logf("killed: %s", stderr)
	drained := f.secondCalls(messages)
	f.checkRate("before the kill", drained, rate)

	name := f.latestRun()
	resumed := time.Now()
	result, code := f.scheduled("resume", name)
	if code != 0 || result.Total != messages || result.Done != messages {
		t.Errorf("resume: exit code %d, %+v", code, result)
	}
	f.awaitEmpty()
	var later []time.Time
	for _, at := range f.secondCalls(messages) {
		if at.After(resumed) {
			later = append(later, at)
		}
	}
	f.checkRate("after the kill", later, rate)
	for n := range messages {
		if calls := f.target.Calls(fmt.Sprintf("r%d", n)); len(calls) != 2 || calls[1].Answer != "200" || calls[1].Attempt != "2" {
			t.Errorf("r%d was called %d times", n, len(calls))
		}
	}
	if r, code := f.scheduled("run", "--all", "--dry-run"); code != 3 {
		t.Errorf("the record still has messages: exit code %d, %+v", code, r)
	}
}

// secondCalls returns when the second call of each message r0, r1, … was made, as far as it was.
func (f *fixture) secondCalls(messages int) (at []time.Time) {
	for n := range messages {
		if calls := f.target.Calls(fmt.Sprintf("r%d", n)); len(calls) > 1 {
			at = append(at, calls[1].At)
		}
	}
	return at
}

// checkRate checks that calls were made at a rate. The host polls, so that a call can be two seconds late.
func (f *fixture) checkRate(when string, calls []time.Time, rate float64) {
	f.t.Helper()
	if len(calls) < 2 {
		f.t.Errorf("%s: only %d calls", when, len(calls))
		return
	}
	first, last := calls[0], calls[0]
	for _, at := range calls {
		if at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	took, want := last.Sub(first), time.Duration(float64(len(calls))/rate*float64(time.Second))
	f.t.Logf("%s: %d calls in %v, %.1f per second", when, len(calls), took, float64(len(calls))/took.Seconds())
	if took < want*9/10-2*time.Second || took > want*11/10+2*time.Second {
		f.t.Errorf("%s: %d calls took %v, want about %v", when, len(calls), took, want)
	}
}

// latestRun returns the name of the latest run.
func (f *fixture) latestRun() string {
	f.t.Helper()
	command, stdout, _ := f.operate("scheduled", "runs", "--json")
	f.must(command.Run())
	line, _, _ := bytes.Cut(stdout.Bytes(), []byte("\n"))
	var latest struct{ Run, State string }
	f.must(json.Unmarshal(line, &latest))
	if latest.State != "interrupted" {
		f.t.Errorf("%+v", latest)
	}
	return latest.Run
}

// TestCancelAndUndo cancels scheduled calls and restores them.
func TestCancelAndUndo(t *testing.T) {
	t.Parallel()
	const messages = 20
	f := newFixture(t, options{})
	f.start(nil)
	for n := range messages {
		f.put(fmt.Sprintf("r%d", n), "503,200", `,"retry":{"schedule":["2h"]}`)
	}
	f.await("all calls to be recorded", func() bool {
		r, _ := f.scheduled("cancel", "--all", "--dry-run")
		return r.Total == messages
	})
	cancelled, code := f.scheduled("cancel", "--all", "--yes")
	if code != 0 || cancelled.Done != messages || f.count(mainQueue) != 0 {
		t.Fatalf("exit code %d, %+v, %d messages are left", code, cancelled, f.count(mainQueue))
	}
	if undone, code := f.scheduled("undo", cancelled.Run, "--yes"); code != 0 || undone.Done != messages || f.count(mainQueue) != messages {
		t.Fatalf("undo: exit code %d, %+v, %d messages", code, undone, f.count(mainQueue))
	}
	if r, code := f.scheduled("run", "--all", "--yes"); code != 0 || r.Done != messages {
		t.Fatalf("run: exit code %d, %+v", code, r)
	}
	f.awaitEmpty()
	if !f.delivered(messages) {
		t.Error("not all calls were delivered")
	}
}
