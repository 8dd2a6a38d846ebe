package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/socket"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
)

// The status line shows progress only on a terminal, and only when work takes longer than a moment.
const (
	progressDelay    = 2 * time.Second
	progressInterval = 200 * time.Millisecond
)

// progress writes messages and a line of progress to standard error. It implements [run.Observer] and is safe
// for concurrent use.
type progress struct {
	out      io.Writer
	terminal bool

	mu sync.Mutex
	// subject is the queue or the run whose progress is counted. Before is the part of it that was done before the
	// count started.
	subject        string
	before         int
	started, shown time.Time
	// width is the width of the line of progress on the terminal, 0 for none.
	width int
}

func newProgress(env Env) *progress {
	return &progress{out: env.Stderr, terminal: terminal.Is(env.Stderr)}
}

// Scanned shows how many messages of a queue were read.
func (s *progress) Scanned(queueName string, seen, total int) {
	s.count(queueName, "read", seen, total)
}

// Advanced shows how many messages of a run are done.
func (s *progress) Advanced(done, total int) { s.count("", "done", done, total) }

// Note writes a message.
func (s *progress) Note(text string) { s.printf("%s", text) }

// printf writes a text to standard error.
func (s *progress) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		fmt.Fprintln(s.out, text.Printable(line))
	}
}

// clear removes the line of progress, so that other output can take its place.
func (s *progress) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
}

// count shows that n of total are done. A total of 0 is unknown.
func (s *progress) count(subject, verb string, n, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.started.IsZero() || s.subject != subject {
		s.erase()
		s.subject = subject
		s.before = n - 1
		s.started = now
	}
	tooEarly := now.Sub(s.started) < progressDelay || now.Sub(s.shown) < progressInterval
	if !s.terminal || tooEarly {
		return
	}
	line := progressLine(verb, n, total, float64(n-s.before)/now.Sub(s.started).Seconds())
	s.erase()
	fmt.Fprint(s.out, line)
	s.shown = now
	s.width = len(line)
}

// progressLine formats progress: "read 3,200 of 10,000, 450/s, 15s left". A total may be approximate.
func progressLine(verb string, n, total int, rate float64) string {
	if total <= 0 {
		return fmt.Sprintf("%s %s, %.0f/s", verb, format.Number(n), rate)
	}
	line := fmt.Sprintf("%s %s of %s, %.0f/s", verb, format.Number(n), format.Number(max(total, n)), rate)
	if rate > 0 {
		left := time.Duration(float64(max(total-n, 0)) / rate * float64(time.Second))
		line += ", " + format.Age(left) + " left"
	}
	return line
}

func (s *progress) erase() {
	if s.width > 0 {
		fmt.Fprintf(s.out, "\r%s\r", strings.Repeat(" ", s.width)) // not every terminal supports escape sequences
		s.width = 0
	}
}

// output is standard output. On a terminal, it removes the line of progress before it writes. After an error it writes
// nothing more, and stops the command as Ctrl-C does: nobody would see the rest.
type output struct {
	io.Writer
	// progress is nil as long as the command shows none.
	progress *progress
	stop     func()
	err      error
	// changed says what the command has changed, or how to see it. It is empty if nothing was changed.
	changed string
}

// result returns the error of a command, which has returned err, including that of its output.
func (o *output) result(err error) error {
	_, hasCode := errors.AsType[*codeError](err)
	isClosed := socket.IsClosedPipe(o.err) || errors.Is(o.err, io.ErrClosedPipe)
	switch {
	case o.err == nil:
		return err
	case o.changed != "":
		return &codeError{exitPartly, errors.Join(err, fmt.Errorf("%w\n%s", o.err, o.changed))}
	case !isClosed:
		return &codeError{exitFailed, o.err}
	case hasCode:
		return err
	}
	return nil // as in: async-caller calls list --state poison | head
}

func (o *output) Columns() int { return terminal.Width(o.Writer) }

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	if o.progress != nil && terminal.Is(o.Writer) {
		o.progress.clear()
	}
	n, err := o.Writer.Write(p)
	if err != nil {
		o.err = err
		o.stop()
	}
	return n, err
}

// canAsk reports whether a person can see and answer a question.
func (e Env) canAsk() bool { return terminal.Is(e.Stdin) && terminal.Is(e.Stderr) }

// canRedraw reports whether standard output is a terminal that obeys escape sequences.
func (e Env) canRedraw() bool {
	kind := e.getenv("TERM")
	return terminal.Is(e.Stdout) && kind != "" && kind != "dumb"
}
