// Package logview shows the log of handler and host to a person: one line for each delivery of a message, the warnings
// and the errors.
package logview

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/decision"
)

const (
	// maxLine is the number of bytes of a line that are kept; the longest line of the handler has the stack of a panic.
	maxLine = 64 << 10
	// maxPrefixBraces is how many braces before its JSON a line may have.
	maxPrefixBraces = 16
	// maxGivenUp bounds the deliveries that are remembered. All of them are given up without a line `settled`, if the
	// handler logs only warnings.
	maxGivenUp = 1000
)

// Writer shows the lines that are written to it on another writer, each as soon as it is complete. A line can have any
// text before its JSON, such as the time and level that the Functions host adds. A line that is not JSON is shown as it
// is. Every character is printable. Writer is not safe for concurrent use.
type Writer struct {
	out io.Writer
	// line is the beginning of an unfinished line, and cut the number of its bytes after maxLine.
	line []byte
	cut  int
	// givenUp has the invocations whose "Giving up" line was shown: their line `settled` would say the same.
	givenUp map[string]bool
}

// NewWriter returns a writer that shows lines on out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out, givenUp: map[string]bool{}} }

// OnTerminal returns a writer for log lines in JSON: on a terminal it shows them to a person, elsewhere it is out.
func OnTerminal(out io.Writer) io.Writer {
	if !terminal.Is(out) {
		return out
	}
	return NewWriter(out)
}

// Write shows the lines that p ends. It returns only errors of the other writer.
func (w *Writer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		kept := part[:min(len(part), maxLine-len(w.line))]
		w.line = append(w.line, kept...)
		w.cut += len(part) - len(kept)
		rest = after
		if !ended {
			break
		}
		if err := w.Flush(); err != nil {
			return len(p) - len(rest), err
		}
	}
	return len(p), nil
}

// Flush shows a last line that has no line end.
func (w *Writer) Flush() error {
	shown := w.show(colors.ReplaceAllString(string(w.line), ""))
	if w.cut > 0 {
		shown += fmt.Sprintf(" ... (cut off: %d more bytes)", w.cut)
	}
	w.line, w.cut = w.line[:0], 0
	if shown == "" {
		return nil
	}
	_, err := fmt.Fprintln(w.out, text.Printable(shown, '\t'))
	return err
}

var (
	// colors matches what selects colours on a terminal.
	colors = regexp.MustCompile(`\x1b\[[\d;]*m`)
	// routine matches what the Functions host writes about each invocation that succeeds: the handler's line says more.
	// Core Tools put the time in brackets before it; the log stream has the time and the level.
	routine = regexp.MustCompile(`^(\[?[\d:.TZ-]+\]?\s+)?(\[Information[^\]]*\]\s+)?` +
		`(Executing 'Functions\.|Trigger Details: |Executed 'Functions\.[^']*' \(Succeeded, )`)
)

// show returns a line for a person, or "" if it is neither about a delivery nor about a problem.
func (w *Writer) show(line string) string {
	e, ok := parse(line)
	switch {
	case !ok && routine.MatchString(line):
		return ""
	case !ok:
		return strings.TrimSuffix(line, "\r")
	case strings.HasPrefix(e.text("message"), "Giving up on envelope"):
		if len(w.givenUp) == maxGivenUp {
			clear(w.givenUp)
		}
		w.givenUp[e.delivery()] = true
		return e.begin() + e.settled()
	case e.text("message") == "settled":
		known := w.givenUp[e.delivery()]
		delete(w.givenUp, e.delivery())
		if known {
			return ""
		}
		return e.begin() + e.settled()
	}
	switch e.text("level") {
	case "trace", "debug", "info":
		return ""
	}
	return e.begin() + e.problem()
}

// entry has the fields of a line of the log.
type entry map[string]any

// parse finds the JSON at the end of a line.
func parse(line string) (entry, bool) {
	for range maxPrefixBraces {
		at := strings.IndexByte(line, '{')
		if at < 0 {
			break
		}
		var e entry
		if json.Unmarshal([]byte(line[at:]), &e) == nil && e.text("level") != "" && !e.time().IsZero() {
			return e, true
		}
		line = line[at+1:]
	}
	return nil, false
}

func (e entry) text(name string) string {
	text, _ := e[name].(string)
	return text
}

func (e entry) number(name string) float64 {
	number, _ := e[name].(float64)
	return number
}

// show returns the value of a field as text.
func (e entry) show(name string) string {
	if number, ok := e[name].(float64); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return fmt.Sprint(e[name])
}

// duration returns a field in milliseconds.
func (e entry) duration(name string) time.Duration {
	const longest = 1 << 40 // 34 years: no line of the handler has more
	return time.Duration(max(0, min(e.number(name), longest))) * time.Millisecond
}

func (e entry) time() time.Time {
	at, _ := time.Parse(time.RFC3339, e.text("time"))
	return at
}

// delivery identifies the delivery that the line is about.
func (e entry) delivery() string {
	return e.text(logs.InvocationID) + " " + e.text(logs.MessageID) + " " + e.text(logs.RequestID)
}

// begin returns the time and what the line is about.
func (e entry) begin() string {
	host := e.text(logs.TargetHost)
	if moved := e.text(logs.MovedTo); moved != "" {
		host += ", moved to " + moved
	}
	parts := []string{
		e.time().Local().Format(time.TimeOnly), cmp.Or(e.text(logs.RequestID), e.text(logs.MessageID)), host,
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	return strings.Join(parts, "  ") + "  "
}

// settled says how a delivery ended.
func (e entry) settled() string {
	var text string
	detail := e.text(logs.Detail)
	if e.number(logs.Attempt) > 0 {
		text = fmt.Sprintf("attempt %s (%v): ", e.show(logs.Attempt), e.duration(logs.Took))
		if e.isAnswered() {
			answered := "answered " + e.show(logs.Status)
			text += answered + ", "
			detail = strings.TrimPrefix(strings.TrimPrefix(detail, answered), ", ")
		}
	}
	why := e.text(logs.Reason)
	if detail != "" {
		why += ": " + detail
	}
	outcome := e.text(logs.Action) + ", " + why
	switch decision.Action(e.text(logs.Action)) {
	case decision.Finish, decision.Reschedule:
		outcome = why
	case decision.Callback:
		outcome = why + ", callback enqueued"
	case decision.DeadLetter:
		outcome = "dead letter, " + why
	case decision.Drop, decision.Fault, decision.Hold, decision.Release, decision.Call: // named by the action
	}
	text += outcome
	if delay := e.duration(logs.Delay); delay > 0 {
		text += ", next in " + format.Duration(delay)
	}
	return text
}

// isAnswered reports whether the status is the answer to this attempt. In other lines it can be that of an earlier
// attempt, and the detail says how this one ended.
func (e entry) isAnswered() bool {
	switch reason := decision.Reason(e.text(logs.Reason)); {
	case e.number(logs.Status) <= 0 || reason == decision.Interrupted:
		return false
	case reason == decision.Delivered, reason == decision.Rejected:
		return true
	}
	return decision.Action(e.text(logs.Action)) == decision.Reschedule
}

// problem returns a warning or an error with all its fields, except those that only identify the delivery.
func (e entry) problem() string {
	text := e.text("message")
	if cause := e.text("error"); cause != "" {
		text += ": " + cause
	}
	hidden := []string{
		"level", "time", "message", "error", logs.RequestID, logs.MessageID, logs.TargetHost, logs.MovedTo,
		logs.Function, logs.InvocationID, logs.DequeueCount, logs.TraceID, logs.SpanID, logs.Stack,
	}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if !slices.Contains(hidden, name) {
			fields = append(fields, name+"="+e.show(name))
		}
	}
	if fields != nil {
		text += " (" + strings.Join(fields, ", ") + ")"
	}
	if level := e.text("level"); level != "warn" {
		return level + ": " + text
	}
	return "warning: " + text
}
