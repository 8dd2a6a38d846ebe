package logs

import (
	"bytes"
	"io"
	"time"

	"github.com/rs/zerolog"
)

// maxLine is how much of a line without an end is held back.
const maxLine = 64 << 10

// Readable returns a writer for JSON log lines that a person is to read: it writes them as text, and any
// other line as it is. It is for one goroutine at a time.
func Readable(out io.Writer) io.Writer {
	return &readable{out: out, console: zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly}}
}

type readable struct {
	out     io.Writer
	console zerolog.ConsoleWriter
	// begun is the beginning of a line whose end has not come yet.
	begun []byte
}

// Write never reports an error of the terminal: nobody could be told.
func (r *readable) Write(p []byte) (int, error) {
	r.begun = append(r.begun, p...)
	for {
		end := bytes.IndexByte(r.begun, '\n') + 1
		if end == 0 && len(r.begun) > maxLine {
			end = len(r.begun)
		}
		if end == 0 {
			return len(p), nil
		}
		r.line(r.begun[:end])
		r.begun = append(r.begun[:0], r.begun[end:]...)
	}
}

func (r *readable) line(line []byte) {
	if line[0] == '{' {
		if _, err := r.console.Write(line); err == nil {
			return
		}
	}
	_, _ = r.out.Write(line)
}
