//go:build unix

package azurite

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/tools/testbed"
)

// patience is how long a test waits for an event.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := testbed.Await(ctx, condition); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// mustRun starts a shell script and waits until it has printed ready.
func mustRun(t *testing.T, script string) *child {
	t.Helper()
	c, err := startChild(exec.Command("sh", "-c", script)) //nolint:noctx // the child is stopped otherwise
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	eventually(t, "the script", func() bool { return strings.Contains(c.printed.String(), "ready") })
	return c
}

func TestChildStop(t *testing.T) {
	c := mustRun(t, `trap 'echo saved; exit 0' INT; echo ready; while :; do sleep 0.05; done`)
	if err := c.stop(patience); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.printed.String(), "saved") {
		t.Errorf("it printed %q, want it to have saved", c.printed.String())
	}
}

func TestChildKilledAfterTheGrace(t *testing.T) {
	c := mustRun(t, `trap '' INT; echo ready; exec sleep 60`)
	err := c.stop(50 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "killed it: still running after 50ms") {
		t.Errorf("error %v, want it to say that it was killed", err)
	}
}

func TestChildEnded(t *testing.T) {
	c := mustRun(t, `echo ready; exit 3`)
	<-c.ended
	if got := c.cmd.ProcessState.String(); got != "exit status 3" {
		t.Errorf("ended with %q", got)
	}
	if err := c.stop(patience); err != nil {
		t.Errorf("stop of an ended process: %v", err)
	}
}

func TestChildCannotStart(t *testing.T) {
	if _, err := startChild(exec.Command("/nowhere/to/be/found")); err == nil { //nolint:noctx // see mustRun
		t.Error("started")
	}
}
