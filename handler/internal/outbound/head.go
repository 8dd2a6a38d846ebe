package outbound

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
)

const (
	// maxHeaderLines limits the lines of an answer's head, of interim answers (1xx) too. A short line takes up to 20
	// times its size in memory, so maxHeaderBytes of such lines would take more than a MiB.
	maxHeaderLines = 256
	// maxHeaderBytes limits the head of an answer, which stays in memory while the body is read.
	maxHeaderBytes = 64 << 10
	// maxHeldBytes limits the bytes of a head that wait for a decision: the status line, the name of a header, and the
	// lines about the body's end.
	maxHeldBytes = 8 << 10
)

// These errors end a connection whose answer has more than these limits allow.
var (
	errTooManyLines = errors.New("the answer has too many header lines")
	errHeadTooLarge = errors.New("the answer's headers are too large")
)

// targetConn is a connection to a target. It limits the head of each answer, and tells net/http in a form that net/http
// accepts where the body ends.
type targetConn struct {
	net.Conn
	// requested says that a request has begun, whose answer comes next.
	requested atomic.Bool
	head      head
	// pending has the bytes for the next calls of Read, and err is what Read returns after them.
	pending []byte
	err     error
}

// Read reads like the connection, but a head as [head.filter] returns it. It is called by one goroutine at a time. An
// error before the first byte of an answer would make net/http repeat the request, so Read returns what it has of the
// status line first.
func (c *targetConn) Read(p []byte) (int, error) {
	for len(c.pending) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		n, err := c.Conn.Read(p)
		if c.requested.Swap(false) {
			c.head = head{inside: true}
		}
		if !c.head.inside {
			return n, err
		}
		c.pending, c.err = c.head.filter(p[:n])
		if c.err == nil {
			c.err = err
		}
		if c.err != nil && c.head.lines == 1 {
			c.pending = append(c.pending, c.head.line...)
		}
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	if len(c.pending) == 0 {
		c.pending = nil // the connection may be idle for long
	}
	return n, nil
}

// head filters the head of an answer as its bytes arrive. The zero value is outside of a head.
type head struct {
	inside bool
	// lines and size count what has arrived.
	lines, size int
	place       place
	// line is the beginning of the current line, until it is known what to do with the line.
	line []byte
	// withheld says that the current line is in framing.
	withheld bool
	// framing has the lines that say where the body ends, unfolded.
	framing []byte
	// interim says that the status is 1xx, and so another head follows.
	interim bool
	// http10 says that the answer is of HTTP/1.0.
	http10 bool
}

// place is a place in a head.
type place int

const (
	inStatusLine place = iota
	inName             // or in the empty line
	inValue
)

// filter returns what net/http reads instead of the next bytes of a connection. It passes all bytes on, except for the
// lines that say where the body ends: at the end of the head it writes those of [frame] in their place, and none for an
// interim answer. The error is why nothing of the connection can be read after these bytes.
func (h *head) filter(in []byte) (out []byte, err error) {
	out = make([]byte, 0, len(in))
	for h.inside && len(in) > 0 {
		n := bytes.IndexByte(in, '\n') + 1
		if n == 0 {
			n = len(in)
		}
		out, err = h.filterPart(out, in[:n])
		if err != nil {
			return out, err
		}
		in = in[n:]
	}
	return append(out, in...), nil
}

// filterPart filters a line, or a part of one, and appends the result to out.
func (h *head) filterPart(out, part []byte) ([]byte, error) {
	if h.place != inValue && len(h.line) == 0 {
		h.lines++
	}
	h.size += len(part)
	switch {
	case h.lines > maxHeaderLines:
		return out, errTooManyLines
	case h.size > maxHeaderBytes:
		return out, errHeadTooLarge
	}
	ends := part[len(part)-1] == '\n'
	if h.place != inValue {
		h.line = append(h.line, part...)
		part = h.line
		isKnown := ends || h.place == inName && (isFolded(part) || bytes.IndexByte(part, ':') >= 0)
		if !isKnown {
			return out, limitHeld(h.line)
		}
		h.line = h.line[:0] // part is used before the next line
		if h.place == inName && isEmpty(part) {
			return h.end(out, part)
		}
		h.begin(part)
	}
	h.place = inValue
	if ends {
		h.place = inName
	}
	if h.withheld {
		h.framing = append(h.framing, part...)
		return out, limitHeld(h.framing)
	}
	return append(out, part...), nil
}

// begin decides what to do with a line by its beginning.
func (h *head) begin(line []byte) {
	switch {
	case h.place == inStatusLine:
		_, status, _ := bytes.Cut(line, []byte(" "))
		h.interim = bytes.HasPrefix(bytes.TrimLeft(status, " "), []byte("1"))
		h.http10 = bytes.HasPrefix(line, []byte("HTTP/1.0 "))
		if h.http10 {
			copy(line, "HTTP/1.1") // of which alone net/http reads chunks
		}
		h.withheld = false
	case isFolded(line): // it belongs to the line before
		if h.withheld {
			h.framing = bytes.TrimRight(h.framing, "\r\n")
		}
	default:
		name, _, _ := bytes.Cut(line, []byte(":"))
		h.withheld = slices.Contains(framingNames, fieldName(string(name)))
	}
}

// end ends a head, or an interim one, with its empty line.
func (h *head) end(out, empty []byte) ([]byte, error) {
	if h.interim {
		h.place = inStatusLine
		h.framing = nil
		return append(out, empty...), nil
	}
	encodings, lengths := fieldValues(h.framing)
	lines, err := frame(h.http10, encodings, lengths)
	*h = head{}
	out = append(out, lines...)
	return append(out, empty...), err
}

func limitHeld(held []byte) error {
	if len(held) > maxHeldBytes {
		return errHeadTooLarge
	}
	return nil
}

// isFolded reports whether a line continues the one before it (RFC 9112, 5.2).
func isFolded(line []byte) bool { return line[0] == ' ' || line[0] == '\t' }

func isEmpty(line []byte) bool { return len(bytes.TrimRight(line, "\r\n")) == 0 }

// Names of the headers that say where a body ends.
const (
	transferEncoding = "transfer-encoding"
	contentLength    = "content-length"
)

// framingNames are the headers that do not reach net/http as they came. It refuses an answer whose Trailer names one of
// the others, and nobody reads trailers.
var framingNames = []string{transferEncoding, contentLength, "trailer"}

// fieldName returns the name of a header in lower case, without the spaces in front of the colon that a client ignores
// (RFC 9112, 5.1).
func fieldName(text string) string { return strings.ToLower(strings.TrimRight(text, " \t")) }

// fieldValues returns the values of the headers that say where a body ends, one for each line.
func fieldValues(lines []byte) (encodings, lengths []string) {
	for line := range strings.Lines(string(lines)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.Trim(value, " \t\r\n")
		switch fieldName(name) {
		case transferEncoding:
			encodings = append(encodings, value)
		case contentLength:
			lengths = append(lengths, value)
		}
	}
	return encodings, lengths
}
