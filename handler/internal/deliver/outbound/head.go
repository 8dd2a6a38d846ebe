package outbound

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxHeaderLines limits the lines of an answer's head, of interim answers (1xx) too. A short line takes up to 20
	// times its size in memory, so maxHeaderBytes of such lines would take more than a MiB.
	maxHeaderLines = 256
	// maxHeaderBytes limits the head of an answer, which stays in memory while the body is read.
	maxHeaderBytes = 64 << 10
	// maxHeldBytes limits the status line, and the lines about the body's end.
	maxHeldBytes = 8 << 10
)

// These errors end a connection whose answer has more than these limits allow.
var (
	errTooManyLines = errors.New("the answer has too many header lines")
	errHeadTooLarge = errors.New("the answer's headers are too large")
)

// targetConn is a connection to a target. It limits the head of each answer, leaves out the lines that net/http
// refuses, and tells net/http in a form that net/http accepts where the body ends.
type targetConn struct {
	net.Conn
	// certificate says whether the target has asked for one; nil without TLS.
	certificate *asked
	// requested is set while a request has begun, whose answer comes next. It is set to true if lines are left out.
	requested atomic.Pointer[atomic.Bool]
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
		if n > 0 && c.certificate != nil {
			c.certificate.isAnswered.Store(true)
		}
		if dropped := c.requested.Swap(nil); dropped != nil {
			c.head = head{inside: true, dropped: dropped}
		}
		if !c.head.inside {
			return n, err
		}
		c.pending, c.err = c.head.filter(p[:n])
		if c.err == nil {
			c.err = err
		}
		if c.err != nil && c.head.lines == 1 {
			c.pending = append(c.pending, c.head.held...)
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
	// held is the beginning of the status line or, behind that, the header lines so far, of which the current one
	// begins at line.
	held []byte
	line int
	// hasStatus says that the status line has passed.
	hasStatus bool
	// interim says that the status is 1xx, and so another head follows.
	interim bool
	// http10 says that the answer is of HTTP/1.0.
	http10 bool
	// dropped becomes true if header lines are left out.
	dropped *atomic.Bool
}

// filter returns what net/http reads instead of the next bytes of a connection. It passes all bytes on, the header
// lines at the end of the head, except for those that net/http refuses, and for those that say where the body ends: it
// writes those of [frame] in their place, and none for an interim answer. The error is why nothing of the connection
// can be read after these bytes.
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
	if len(h.held) == h.line {
		h.lines++
	}
	h.size += len(part)
	h.held = append(h.held, part...)
	switch {
	case h.lines > maxHeaderLines:
		return out, errTooManyLines
	case h.size > maxHeaderBytes, !h.hasStatus && len(h.held) > maxHeldBytes:
		return out, errHeadTooLarge
	case part[len(part)-1] != '\n':
		return out, nil
	case !h.hasStatus:
		out = append(out, h.readStatus()...)
	case isEmpty(h.held[h.line:]):
		return h.end(out)
	}
	h.line = len(h.held)
	return out, nil
}

// readStatus ends the status line, and returns it for net/http.
func (h *head) readStatus() []byte {
	line := h.held
	_, status, _ := bytes.Cut(line, []byte(" "))
	h.interim = bytes.HasPrefix(bytes.TrimLeft(status, " "), []byte("1"))
	h.http10 = bytes.HasPrefix(line, []byte("HTTP/1.0 "))
	if h.http10 {
		copy(line, "HTTP/1.1") // of which alone net/http reads chunks
	}
	h.hasStatus, h.held = true, nil
	return line
}

// end ends a head, or an interim one, with its empty line.
func (h *head) end(out []byte) ([]byte, error) {
	var framing []string
	framingBytes := 0
	for _, line := range fieldsOf(string(h.held[:h.line])) {
		name, _, _ := strings.Cut(line, ":")
		switch {
		case !isFolded(line) && slices.Contains(framingNames, fieldName(name)):
			framing = append(framing, line)
			framingBytes += len(line)
		case isReadable(line), isDisguised(name):
			out = append(out, line...)
		default:
			h.dropped.Store(true)
		}
	}
	empty := h.held[h.line:]
	if h.interim {
		h.held, h.line, h.hasStatus = nil, 0, false
		return append(out, empty...), nil
	}
	if framingBytes > maxHeldBytes {
		return out, errHeadTooLarge
	}
	encodings, lengths := fieldValues(framing)
	lines, err := frame(h.http10 || h.dropped.Load(), encodings, lengths)
	*h = head{}
	out = append(out, lines...)
	return append(out, empty...), err
}

// fieldsOf returns the header lines of a head, each with the lines that continue it (RFC 9112, 5.2).
func fieldsOf(lines string) (fields []string) {
	for line := range strings.Lines(lines) {
		if isFolded(line) && len(fields) > 0 {
			fields[len(fields)-1] += line
		} else {
			fields = append(fields, line)
		}
	}
	return fields
}

// isReadable reports whether net/http accepts a header line, with the lines that continue it.
func isReadable(field string) bool {
	name, value, hasColon := strings.Cut(field, ":")
	for line := range strings.Lines(value) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if !httpguts.ValidHeaderFieldValue(line) {
			return false
		}
	}
	return hasColon && !isFolded(field) && httpguts.ValidHeaderFieldName(strings.ReplaceAll(name, " ", ""))
}

// isDisguised reports whether another reader of a head could take a name for that of a header about the body's end. An
// answer with one is no usable HTTP, because nobody knows where its body ends.
func isDisguised(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, transferEncoding) || strings.Contains(name, contentLength)
}

// isFolded reports whether a line continues the one before it (RFC 9112, 5.2).
func isFolded(line string) bool { return line[0] == ' ' || line[0] == '\t' }

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

// fieldValues returns the values of the headers that say where a body ends, one for each.
func fieldValues(fields []string) (encodings, lengths []string) {
	for _, field := range fields {
		var lines []string
		for line := range strings.Lines(field) {
			lines = append(lines, strings.TrimRight(line, "\r\n"))
		}
		name, value, _ := strings.Cut(strings.Join(lines, ""), ":")
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
