package socket

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"asynccaller/handler/tools/freeport"
)

// TestFailures has what Unix and Windows report.
func TestFailures(t *testing.T) {
	for name, row := range map[string]struct {
		err              error
		isRefused, isCut bool
	}{
		"refused":            {syscall.ECONNREFUSED, true, false},
		"refused_on_windows": {syscall.Errno(10061), true, false},
		"reset":              {syscall.ECONNRESET, false, true},
		"closed":             {syscall.EPIPE, false, true},
		"reset_on_windows":   {syscall.Errno(10054), false, true},
		"aborted_on_windows": {syscall.Errno(10053), false, true},
		"unreachable":        {syscall.EHOSTUNREACH, false, false},
		"timeout_on_windows": {syscall.Errno(10060), false, false},
		"end":                {io.EOF, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			wrapped := fmt.Errorf("call: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", row.err)})
			if got := IsRefused(wrapped); got != row.isRefused {
				t.Errorf("IsRefused is %v", got)
			}
			if got := IsReset(wrapped); got != row.isCut {
				t.Errorf("IsReset is %v", got)
			}
		})
	}
}

// TestRefusedHere: what this platform reports is recognized.
func TestRefusedHere(t *testing.T) {
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err == nil {
		err = errors.Join(errors.New("connected"), conn.Close())
	}
	if !IsRefused(err) {
		t.Errorf("IsRefused does not recognize %v", err)
	}
}

// TestClosedPipeHere: what this platform reports is recognized.
func TestClosedPipeHere(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("x"); !IsClosedPipe(err) {
		t.Errorf("IsClosedPipe does not recognize %v", err)
	}
	if IsClosedPipe(syscall.EBADF) {
		t.Error("IsClosedPipe recognizes a file that is not open")
	}
}
