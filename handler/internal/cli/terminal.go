package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/socket"
	"asynccaller/handler/internal/text"
)

// The status line shows progress only on a terminal, and only when work takes longer than a moment.
const (
	progressAfter = 2 * time.Second
	progressEvery = 200 * time.Millisecond
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
	return &progress{out: env.Stderr, terminal: isTerminal(env.Stderr)}
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
	tooEarly := now.Sub(s.started) < progressAfter || now.Sub(s.shown) < progressEvery
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
		return fmt.Sprintf("%s %s, %.0f/s", verb, thousands(n), rate)
	}
	line := fmt.Sprintf("%s %s of %s, %.0f/s", verb, thousands(n), thousands(max(total, n)), rate)
	if rate > 0 {
		left := time.Duration(float64(max(total-n, 0)) / rate * float64(time.Second))
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return line
}

func (s *progress) erase() {
	if s.width > 0 {
		fmt.Fprintf(s.out, "\r%s\r", strings.Repeat(" ", s.width)) // not every terminal supports escape sequences
		s.width = 0
	}
}

// output is standard output. It removes the line of progress before it writes. After an error it writes nothing more,
// and stops the command as Ctrl-C does: nobody would see the rest.
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
	return nil // as in: async-caller poison list | head
}

func (o *output) columns() int { return widthOf(o.Writer) }

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	if o.progress != nil {
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
func (e Env) canAsk() bool { return isTerminal(e.Stdin) && isTerminal(e.Stderr) }

// canRedraw reports whether standard output is a terminal that obeys escape sequences.
func (e Env) canRedraw() bool {
	kind := e.getenv("TERM")
	return isTerminal(e.Stdout) && kind != "" && kind != "dumb"
}

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

const labelColumns = 15

// printLine writes a label and a text. It wraps the text to the width of the terminal.
func printLine(out io.Writer, label, format string, args ...any) {
	for _, part := range wrap(fmt.Sprintf(format, args...), widthOf(out)-labelColumns) {
		fmt.Fprintf(out, "%-*s %s\n", labelColumns-1, label, part)
		label = ""
	}
}

// printField writes a label and a text, or nothing if the text is empty.
func printField(out io.Writer, label, text string) {
	if text != "" {
		printLine(out, label, "%s", text)
	}
}

// commandOrWord matches a command in backquotes, or a word.
var commandOrWord = regexp.MustCompile("[^\\s`]*`" + programName + " [^`\n]*`\\S*|\\S+")

// wrap breaks a text into lines, at spaces or within words that are longer than a line. A command in backquotes stays
// in one line, however long: a person copies it to a shell.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range commandOrWord.FindAllString(text, -1) {
		isCommand := strings.Contains(word, " ")
		if line != "" && displayWidth(line+" "+word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
		for displayWidth(line) > width && !isCommand {
			part := beginning(line, width)
			lines = append(lines, part)
			line = line[len(part):]
		}
	}
	return append(lines, line)
}

// moment formats a time to the millisecond. The last one of the year 9999 is not rounded up.
func moment(t time.Time) string {
	t = t.UTC()
	rounded := t.Round(time.Millisecond)
	if rounded.Year() <= 9999 {
		t = rounded
	}
	return t.Format("2006-01-02T15:04:05.999Z07:00")
}

// exactly formats a duration to the second.
func exactly[D ~int64](d D) string { return units(time.Duration(d), 4) }

// age formats a duration in its largest unit.
func age(d time.Duration) string { return units(max(d, 0).Truncate(time.Second), 1) }

// units formats a duration with at most the given number of units. It cuts the rest and does not round.
func units(d time.Duration, most int) string {
	if d >= time.Duration(math.MaxInt64).Truncate(time.Second) { // the largest result of time.Time.Sub
		return "over 292 years"
	}
	d = d.Round(100 * time.Millisecond) // the largest jitter is some nanoseconds short of its bound
	switch {
	case d < 0:
		return "-" + units(-max(d, -math.MaxInt64), most) // the shortest duration has no opposite
	case d < time.Minute:
		return d.String() // 0s, 1.5s
	}
	text := ""
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		n := int(d / unit.size)
		isLeading := n == 0 && text == ""
		if most == 0 || isLeading {
			continue
		}
		d %= unit.size
		if n > 0 {
			text += strconv.Itoa(n) + unit.name
		}
		most--
	}
	return text
}

// thousands formats a number with thousands separators.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// plural formats a number with a noun.
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(n) + " " + noun
}

func messages(n int) string { return plural(n, "message") }
