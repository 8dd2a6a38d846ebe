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

func TestChildKilledAfterTheGrace(t *testing.T) {
	c, err := startChild(exec.Command("sh", "-c", `trap '' INT; echo ready; exec sleep 60`)) //nolint:noctx // see stop
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the script", func() bool { return strings.Contains(c.printed.String(), "ready") })
	err = c.stop(50 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "killed it: still running after 50ms") {
		t.Errorf("error %v, want it to say that it was killed", err)
	}
}
