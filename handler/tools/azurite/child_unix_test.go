//go:build unix

package azurite

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %s for %s", patience, what)
		}
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
		_ = c.process.Kill()
		<-c.ended
	})
	eventually(t, "the script", func() bool { return strings.Contains(c.output(), "ready") })
	return c
}

func TestChild_stopsGently(t *testing.T) {
	c := mustRun(t, `trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done`)
	if err := c.stop(patience); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.output(), "saved") {
		t.Errorf("it printed %q, want it to have saved", c.output())
	}
}

func TestChild_isKilledAfterTheGrace(t *testing.T) {
	c := mustRun(t, `trap '' TERM; echo ready; exec sleep 60`)
	err := c.stop(50 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "killed it: still running after 50ms") {
		t.Errorf("error %v, want it to say that it was killed", err)
	}
}

func TestChild_endedByItself(t *testing.T) {
	c := mustRun(t, `echo ready; exit 3`)
	<-c.ended
	if got := c.exitError().Error(); got != "exit status 3" {
		t.Errorf("exit error %q", got)
	}
	if err := c.stop(patience); err != nil {
		t.Errorf("stop of what has ended: %v", err)
	}
}

func TestChild_cannotStart(t *testing.T) {
	if c, err := startChild(exec.Command("/nowhere/to/be/found")); err == nil { //nolint:noctx // see mustRun
		t.Errorf("started %v", c)
	}
}
