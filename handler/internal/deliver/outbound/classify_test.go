package outbound

import (
	"net"
	"os"
	"syscall"
	"testing"

	"asynccaller/handler/internal/rules/decision"
)

// TestFailuresOnWindows: Windows has numbers of its own.
func TestFailuresOnWindows(t *testing.T) {
	for name, row := range map[string]struct {
		op, call string
		number   syscall.Errno
		kind     decision.Failure
		detail   string
	}{
		"refused": {"dial", "connectex", 10061, decision.FailureConnect, "connection refused"},
		"reset":   {"read", "wsarecv", 10054, decision.FailureConnection, "connection reset"},
	} {
		t.Run(name, func(t *testing.T) {
			kind, detail := classify(nil, &net.OpError{Op: row.op, Err: os.NewSyscallError(row.call, row.number)})
			if kind != row.kind || detail != row.detail {
				t.Errorf("got %q: %s", kind, detail)
			}
		})
	}
}
