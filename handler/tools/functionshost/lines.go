package main

import (
	"bytes"
	"io"
	"sync"
)

// lastLines is the number of stderr lines in the text of an exit.
const lastLines = 3

// lineWriter passes a stream on line by line: one Write to dst per line. Write never fails, because a failing writer
// would end the copying, and the handler would die writing to a closed pipe. It is for one goroutine.
type lineWriter struct {
	mu   *sync.Mutex // serialises the writes of several lineWriters
	dst  io.Writer
	last []string // the last lines, at most lastLines
	line []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		w.line = append(w.line, line...)
		if ended {
			w.pass()
		}
		rest = after
	}
	return len(p), nil
}

// flush passes on a last line without a line end.
func (w *lineWriter) flush() {
	if len(w.line) > 0 {
		w.pass()
	}
}

func (w *lineWriter) pass() {
	line := bytes.TrimSuffix(w.line, []byte("\r"))
	w.last = append(w.last, string(line))
	w.last = w.last[max(0, len(w.last)-lastLines):]
	w.mu.Lock()
	_, _ = w.dst.Write(append(line, '\n')) // an error must not stop the handler
	w.mu.Unlock()
	w.line = w.line[:0]
}
