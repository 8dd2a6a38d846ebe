package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// The status line shows progress only on a terminal, and only when work takes longer than a moment.
const (
	statusAfter = 2 * time.Second
	statusEvery = 200 * time.Millisecond
)

// status writes messages and a line of progress to standard error. It implements poison.Observer and is safe
// for concurrent use.
type status struct {
	out      io.Writer
	terminal bool

	mu sync.Mutex
	// subject is what is counted: a queue, or the run. Before is how much of it was done before the count
	// started.
	subject        string
	before         int
	started, shown time.Time
	// width is the width of the line of progress on the terminal, 0 for none.
	width int
}

func newStatus(env Env) *status {
	return &status{out: env.Stderr, terminal: isTerminal(env.Stderr)}
}

// Scanned shows how many messages of a queue were read.
func (s *status) Scanned(queueName string, seen, total int) {
	s.count(queueName, "read", seen, total)
}

// Advanced shows how many messages of a run are done.
func (s *status) Advanced(done, total int) { s.count("", "done", done, total) }

// Note writes a message.
func (s *status) Note(text string) { s.printf("%s", text) }

// printf writes a line to standard error.
func (s *status) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// clear removes the line of progress, so that other output can take its place.
func (s *status) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
}

// count shows that n of total are done. A total of 0 is unknown.
func (s *status) count(subject, verb string, n, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.started.IsZero() || s.subject != subject {
		s.erase()
		s.subject, s.before, s.started = subject, n-1, now
	}
	if !s.terminal || now.Sub(s.started) < statusAfter || now.Sub(s.shown) < statusEvery {
		return
	}
	line := progressLine(verb, n, total, float64(n-s.before)/now.Sub(s.started).Seconds())
	s.erase()
	fmt.Fprint(s.out, line)
	s.shown, s.width = now, len(line)
}

// progressLine formats progress: "read 3,200 of 10,000, 450/s, 15s left". A total may be approximate.
func progressLine(verb string, n, total int, rate float64) string {
	if total <= 0 {
		return fmt.Sprintf("%s %s, %.0f/s", verb, thousands(n), rate)
	}
	line := fmt.Sprintf("%s %s of %s, %.0f/s", verb, thousands(n), thousands(max(total, n)), rate)
	if rate > 0 {
		left := time.Duration(float64(max(total-n, 0)) / rate * float64(time.Second))
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return line
}

func (s *status) erase() {
	if s.width > 0 {
		fmt.Fprintf(s.out, "\r%s\r", strings.Repeat(" ", s.width)) // not every terminal supports escape sequences
		s.width = 0
	}
}

// output is standard output. It removes the line of progress before it writes, and keeps the first error.
type output struct {
	io.Writer
	status *status
	err    error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	o.status.clear()
	n, err := o.Writer.Write(p)
	o.err = err
	return n, err
}

// canAsk reports whether a person can see and answer a question.
func (e Env) canAsk() bool { return isTerminal(e.Stdin) && isTerminal(e.Stderr) }

// ask prints a question and returns the answer without surrounding spaces. The end of the input is an empty
// answer. When ctx ends first, the read from the terminal goes on until the program ends.
func ask(ctx context.Context, in io.Reader, out io.Writer, question string) (string, error) {
	fmt.Fprint(out, question, " ")
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n') // a terminal returns one line per read
		answers <- answer{strings.TrimSpace(line), err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
		return "", context.Cause(ctx)
	case a := <-answers:
		if errors.Is(a.err, io.EOF) {
			fmt.Fprintln(out)
			a.err = nil
		}
		return a.line, a.err
	}
}

// isYes reports whether an answer is a yes.
func isYes(answer string) bool {
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes"
}
