package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/explain"
)

const (
	textColumns  = 100
	labelColumns = 15
)

// page writes labelled lines that fit a terminal.
type page struct{ out io.Writer }

// line writes a label and a text, which goes on below itself where it is too long.
func (p page) line(label, format string, args ...any) {
	for _, part := range wrap(fmt.Sprintf(format, args...), textColumns-labelColumns) {
		fmt.Fprintf(p.out, "%-*s%s\n", labelColumns, label, part)
		label = ""
	}
}

// wrap breaks a text at spaces, and words that are too long anywhere.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		for {
			joined := strings.TrimPrefix(line+" "+word, " ")
			if utf8.RuneCountInString(joined) <= width {
				line = joined
				break
			}
			if line == "" {
				runes := []rune(word)
				lines, word = append(lines, string(runes[:width])), string(runes[width:])
				continue
			}
			lines, line = append(lines, line), ""
		}
	}
	return append(lines, line)
}

func printExplanation(out io.Writer, source string, now time.Time, x explain.Explanation, supposed string) {
	p := page{out}
	if source != "" {
		p.line("found", "%s", source)
	}
	if x.Envelope == nil {
		p.line("envelope", "no: %s", x.Arrival.Detail)
	} else {
		p.envelope(x.Envelope, now)
	}
	fmt.Fprintf(out, "\nnow, %s\n", moment(now))
	p.step(x.Arrival)
	switch {
	case supposed == "":
	case x.AfterCall == nil:
		fmt.Fprintf(out, "\nno call is made, so it does not matter that %s\n", supposed)
	default:
		fmt.Fprintf(out, "\nif %s, %s\n", supposed, moment(x.AfterCall.At))
		p.afterCall(*x.AfterCall, x.Envelope)
	}
	if x.Otherwise != nil {
		fmt.Fprint(out, "\nor, if the wait that is drawn is too long\n")
		p.afterCall(*x.Otherwise, x.Envelope)
	}
}

func (p page) envelope(e *explain.Envelope, now time.Time) {
	p.line("envelope", "yes, %s, %d bytes", e.Format, e.Bytes)
	p.line("request id", "%s", e.RequestID)
	if e.OriginalRequestID != "" {
		p.line("callback of", "%s", e.OriginalRequestID)
	}
	if e.Organization != "" || e.Environment != "" {
		p.line("tenant", "%s", strings.Trim(e.Organization+"/"+e.Environment, "/"))
	}
	if e.CorrelationID != "" {
		p.line("correlation id", "%s", e.CorrelationID)
	}
	p.line("call", "%s %s", e.Method, e.Target)
	if e.Refused != "" {
		p.line("", "it ends as %s: %s", decision.FailureTargetRefused, e.Refused)
	}
	if len(e.Headers) > 0 {
		p.line("headers", "%s", strings.Join(e.Headers, ", "))
	}
	p.line("body", "%d bytes", e.BodyBytes)
	if e.Callback != "" {
		p.line("callback", "%s", e.Callback)
	}
	if e.MovedBack != nil {
		p.line("dead letter", "%s after %d attempts: %s; it starts again", e.MovedBack.Reason, e.MovedBack.Attempts, e.MovedBack.Detail)
	}
	attempts := fmt.Sprintf("%d so far", e.Attempts)
	if e.LatestStatus != 0 {
		attempts += fmt.Sprintf(", the latest answer is %d", e.LatestStatus)
	}
	p.line("attempts", "%s", attempts)
	switch {
	case e.DueAt == nil:
		p.line("due", "yes")
	case e.Due:
		p.line("due", "yes, since %s", moment(*e.DueAt))
	default:
		p.line("due", "no, not before %s, in %s", moment(*e.DueAt), exactly(e.DueAt.Sub(now)))
	}
	left := e.Deadline.Sub(now)
	if left > 0 {
		p.line("deadline", "%s, %s left; then %s", moment(e.Deadline), exactly(left), consequence(e.IfExpired))
	} else {
		p.line("deadline", "%s, passed %s ago", moment(e.Deadline), exactly(-left))
	}
	if e.Policy != "" {
		text := e.Policy
		if e.MaxAttempts > 0 {
			text += fmt.Sprintf(", at most %d attempts", e.MaxAttempts)
		}
		if e.Limited != "" {
			text += "; limited by the operator: " + e.Limited
		}
		p.line("policy", "%s", text)
	}
}

func (p page) afterCall(s explain.Step, e *explain.Envelope) {
	p.line("  rule", "%s", s.Rule)
	p.step(s)
	if s.Next != nil {
		p.line("  time left", "%s to the deadline at %s", exactly(e.Deadline.Sub(s.At)), moment(e.Deadline))
	}
	callback := "no"
	if s.Callback {
		callback = "yes, to " + e.Callback
	}
	p.line("  callback", "%s", callback)
}

func (p page) step(s explain.Step) {
	text := fmt.Sprintf("%s (%s)", s.Action, s.Reason)
	if s.Detail != "" {
		text += ": " + s.Detail
	}
	p.line("  action", "%s", text)
	if s.GivenUp {
		p.line("  given up", "yes: %s", consequence(s.Action))
	}
	if n := s.Next; n != nil {
		p.next(n, s.At)
	}
	for _, ignored := range s.Ignored {
		p.line("  ignored", "%s", ignored)
	}
	w := s.Write
	if w == nil {
		return
	}
	text = fmt.Sprintf("%d of %d bytes to %s, %d left", w.Bytes, w.Max, w.Queue, w.Max-w.Bytes)
	if w.LeftOut != "" {
		text += "; left out: " + w.LeftOut
	}
	if w.Problem != "" {
		text = "cannot be written: " + w.Problem
	}
	p.line("  writes", "%s", text)
}

func (p page) next(n *explain.Next, at time.Time) {
	if n.Earliest.Equal(n.Latest) {
		p.line("  next attempt", "%s, in %s", moment(n.Earliest), exactly(n.Earliest.Sub(at)))
	} else {
		p.line("  next attempt", "%s at the earliest, in %s", moment(n.Earliest), exactly(n.Earliest.Sub(at)))
		p.line("", "%s at the latest, in %s", moment(n.Latest), exactly(n.Latest.Sub(at)))
	}
	if n.Latest.Sub(at) > n.Longest {
		p.line("", "the wait is made of several of at most %s", exactly(n.Longest))
	}
}

// consequence says in words what an action that ends a message means.
func consequence(a decision.Action) string {
	switch a {
	case decision.Callback:
		return "the callback tells the sender"
	case decision.DeadLetter:
		return "it becomes a dead letter"
	case decision.Drop:
		return "it is dropped"
	case decision.Fault:
		return "it is left to the host, which counts it as failed"
	case decision.Call, decision.Finish, decision.Reschedule:
	}
	return string(a)
}

func moment(t time.Time) string {
	return t.UTC().Round(time.Millisecond).Format("2006-01-02T15:04:05.999Z07:00")
}
