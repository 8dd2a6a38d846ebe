package e2e_test

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// targets runs a command on targets, and returns what it says and its exit code.
func (f *fixture) targets(args ...string) (said string, code int) {
	f.t.Helper()
	command, stdout, stderr := f.operate(append([]string{"targets"}, args...)...)
	err := command.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exited.ExitCode()
	} else {
		f.must(err)
	}
	said = stdout.String() + stderr.String()
	f.t.Logf("targets %q: exit code %d\n%s", args, code, said)
	return said, code
}

// TestPause: within 20 s of a pause no call is made any more, also by an instance that starts later. A message whose
// deadline comes first expires. After the resume, the others are delivered at once, each by one call.
func TestPause(t *testing.T) {
	t.Parallel()
	const messages = 10
	f := newFixture(t, options{tables: true})
	f.stageMonitor()
	f.start(nil)
	f.put("before", "200", "")
	f.awaitEmpty()
	f.await("the app to be known", func() bool {
		_, code := f.targets("pause", "127.0.0.1", "--because", "maintenance")
		return code == 0
	})
	paused := time.Now()
	f.await("the pause to be noticed", func() bool {
		id := fmt.Sprintf("probe-%d", time.Since(paused))
		f.put(id, "200", "")
		f.await("the probe to be settled", func() bool {
			return len(f.target.Calls(id)) > 0 || len(f.paused()) > 0
		})
		return len(f.target.Calls(id)) == 0
	})
	if took := time.Since(paused); took > 25*time.Second { // 20 s, and the machine is busy
		t.Errorf("noticed after %v", took)
	}
	f.must(f.host.Stop(hostGrace))
	f.start(nil)
	for n := range messages {
		f.put(fmt.Sprintf("r%d", n), "200", "")
	}
	deadline := time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339)
	f.put("expires", "200", fmt.Sprintf(`,"deadline":%q`, deadline))
	f.await("the messages to be rescheduled", func() bool { return len(f.paused()) >= messages })
	f.await("a dead letter", func() bool { return f.count(poisonQueue) == 1 })
	f.await("the messages to be recorded", func() bool {
		r, _ := f.scheduled("retry", "--reason", "paused", "--all", "--dry-run")
		return r.Total >= messages
	})
	for n := range messages {
		if calls := f.target.Calls(fmt.Sprintf("r%d", n)); len(calls) > 0 {
			t.Errorf("r%d was called while its target was paused", n)
		}
	}
	if letters := f.deadLetters(); len(letters) != 1 || len(f.target.Calls("expires")) > 0 {
		t.Errorf("dead letters %v", letters)
	}
	if said, code := f.targets("resume", "127.0.0.1"); code != 0 {
		t.Errorf("resume: exit code %d\n%s", code, said)
	}
	f.awaitEmpty()
	for n := range messages {
		if calls := f.target.Calls(fmt.Sprintf("r%d", n)); len(calls) != 1 || calls[0].Attempt != "1" {
			t.Errorf("r%d was called %d times", n, len(calls))
		}
	}
	if _, code := f.targets("list"); code != 0 {
		t.Errorf("list: exit code %d after the resume", code)
	}
}

// paused returns the ids of the messages that this host has rescheduled because of a pause.
func (f *fixture) paused() (ids []string) {
	for _, line := range f.host.Lines("settled") {
		if line["reason"] == "paused" {
			ids = append(ids, fmt.Sprint(line["request_id"]))
		}
	}
	return ids
}
