package logs

import (
	"bytes"
	"io"
	"time"

	"github.com/rs/zerolog"
)

// maxLine is the number of bytes of an unfinished line that a readable writer holds back.
const maxLine = 64 << 10

// Readable returns a writer for people: it writes lines of JSON as text and all other lines unchanged. It is not
// safe for concurrent use.
func Readable(out io.Writer) io.Writer {
	return &readable{out: out, console: zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly}}
}

type readable struct {
	out     io.Writer
	console zerolog.ConsoleWriter
	// pending is the beginning of an unfinished line.
	pending []byte
}

// Write ignores errors of out: the reader sees that output is missing.
func (r *readable) Write(p []byte) (int, error) {
	r.pending = append(r.pending, p...)
	for {
		end := bytes.IndexByte(r.pending, '\n') + 1
		if end == 0 && len(r.pending) > maxLine {
			end = len(r.pending)
		}
		if end == 0 {
			return len(p), nil
		}
		r.writeLine(r.pending[:end])
		r.pending = append(r.pending[:0], r.pending[end:]...)
	}
}

func (r *readable) writeLine(line []byte) {
	if line[0] == '{' {
		if _, err := r.console.Write(line); err == nil {
			return
		}
	}
	_, _ = r.out.Write(line)
}
