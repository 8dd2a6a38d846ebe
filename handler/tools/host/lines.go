package host

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

const (
	// maxLineBytes bounds what is kept of one line of the handler's output.
	maxLineBytes = 64 << 10
	lineCut      = " [line cut]"
	// tailLines is how many lines of stderr explain an exit.
	tailLines = 3
)

// lineWriter passes a stream on line by line: one Write to dst per line, at most maxLineBytes long, the
// rest of a longer line dropped. Its Write never fails, because a writer that fails would end the
// copying, and the handler would die writing to a closed pipe. Not for concurrent use.
type lineWriter struct {
	dst  io.Writer
	seen func(line string) // nil, or called with every line
	line []byte
	over bool // the current line is longer than what is kept
}

func (w *lineWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			w.keep(rest)
			break
		}
		w.keep(rest[:end])
		w.pass()
		rest = rest[end+1:]
	}
	return len(p), nil
}

// flush passes on a last line without a line end.
func (w *lineWriter) flush() {
	if len(w.line) > 0 {
		w.pass()
	}
}

func (w *lineWriter) keep(p []byte) {
	if room := maxLineBytes - len(w.line); len(p) > room {
		p, w.over = p[:room], true
	}
	w.line = append(w.line, p...)
}

func (w *lineWriter) pass() {
	line := bytes.TrimSuffix(w.line, []byte("\r"))
	if w.over {
		line = append(line, lineCut...)
	}
	if w.seen != nil {
		w.seen(string(line))
	}
	_, _ = w.dst.Write(append(line, '\n')) // what becomes of the output is not the handler's problem
	w.line, w.over = w.line[:0], false
}

// sharedWriter keeps writes to two streams apart, which may well be the same file.
type sharedWriter struct {
	mu  *sync.Mutex
	dst io.Writer
}

func (w *sharedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dst.Write(p)
}

// tail keeps the last lines of a stream. Not for concurrent use.
type tail struct{ lines []string }

func (t *tail) add(line string) {
	if len(t.lines) == tailLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
}

func (t *tail) String() string { return strings.Join(t.lines, "; ") }
