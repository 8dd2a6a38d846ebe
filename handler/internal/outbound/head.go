package outbound

import (
	"errors"
	"net"
	"sync/atomic"
)

// maxHeaderLines limits the lines of an answer's head, of interim answers (1xx) too. A short line takes up to 20
// times its size in memory, so maxHeaderBytes of such lines would take more than a MiB.
const maxHeaderLines = 256

// errTooManyLines ends a connection whose answer has more lines than maxHeaderLines.
var errTooManyLines = errors.New("the answer has too many header lines")

// targetConn is a connection to a target that limits the lines of each answer's head.
type targetConn struct {
	net.Conn
	// requested says that a request has begun, whose answer comes next.
	requested atomic.Bool
	head      head
}

// Read reads like the connection, up to the line that is too many, and then returns errTooManyLines. It is called
// by one goroutine at a time. An error before the first byte of an answer would make net/http repeat the request.
func (c *targetConn) Read(p []byte) (int, error) {
	if c.head.full {
		return 0, errTooManyLines
	}
	n, err := c.Conn.Read(p)
	if c.requested.Swap(false) {
		c.head = head{left: maxHeaderLines}
	}
	accepted := c.head.read(p[:n])
	if c.head.full {
		return accepted, nil
	}
	return n, err
}

// head counts the lines of a head as its bytes arrive. The zero value is outside of a head.
type head struct {
	// left is how many more lines the head may have, or 0 outside of a head.
	left int
	// full says that the head has too many lines.
	full bool
	// place is what the next byte belongs to.
	place place
	// interim says that the status is 1xx, and so another head follows.
	interim bool
	// empty says that the current line has no bytes so far.
	empty bool
}

// place is a place in a head.
type place int

const (
	inVersion place = iota // of the status line
	beforeStatus
	inLine
)

// read reads the next bytes of a connection, and returns how many of them come before the line that is too many.
func (h *head) read(bytes []byte) int {
	for i, b := range bytes {
		if h.left == 0 {
			break
		}
		switch {
		case b == '\n':
			h.left--
			if h.left == 0 {
				h.full = true
				return i
			}
			h.endLine()
		case b == '\r':
		case h.place == inVersion && b == ' ':
			h.place = beforeStatus
		case h.place == beforeStatus && b != ' ':
			h.interim = b == '1'
			h.place = inLine
			h.empty = false
		default:
			h.empty = false
		}
	}
	return len(bytes)
}

// endLine ends a line, and with an empty one the head.
func (h *head) endLine() {
	switch {
	case !h.empty || h.place != inLine: // the status line is not the last
		h.place = inLine
	case h.interim:
		h.place = inVersion
		h.interim = false
	default:
		h.left = 0
	}
	h.empty = true
}
