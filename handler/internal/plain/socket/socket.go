// Package socket names failures of connections and pipes on every platform: Windows reports them by numbers of its own,
// which syscall.ECONNREFUSED and the like do not match.
package socket

import (
	"errors"
	"runtime"
	"syscall"
)

// The numbers of Windows Sockets. No error of another platform has such a number.
const (
	errAborted = syscall.Errno(10053)
	errReset   = syscall.Errno(10054)
	errRefused = syscall.Errno(10061)
)

// IsRefused reports whether nothing listens at the address.
func IsRefused(err error) bool { return isOneOf(err, syscall.ECONNREFUSED, errRefused) }

// IsReset reports whether the other side, or this machine, has broken off the connection.
func IsReset(err error) bool {
	return isOneOf(err, syscall.ECONNRESET, syscall.EPIPE, errReset, errAborted)
}

// The numbers of Windows for pipes. On other platforms they are those of other errors.
const (
	errBrokenPipe  = syscall.Errno(109)
	errPipeClosing = syscall.Errno(232)
)

// IsClosedPipe reports whether nobody can read a pipe any more.
func IsClosedPipe(err error) bool {
	return isOneOf(err, syscall.EPIPE) || runtime.GOOS == "windows" && isOneOf(err, errBrokenPipe, errPipeClosing)
}

func isOneOf(err error, numbers ...syscall.Errno) bool {
	for _, number := range numbers {
		if errors.Is(err, number) {
			return true
		}
	}
	return false
}
