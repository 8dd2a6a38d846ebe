package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/explain"
)

// printExplanation prints an explanation as text.
func printExplanation(out io.Writer, q explain.Question, x explain.Explanation) {
	if x.Envelope == nil {
		printLine(out, "envelope", "no: %s", x.Arrival.Detail)
	} else {
		printEnvelope(out, x.Envelope, q.Now)
	}
	fmt.Fprintf(out, "\nnow, %s\n", moment(q.Now))
	printStep(out, x.Arrival)
	if q.Outcome == nil {
		return
	}
	assumption := fmt.Sprintf("the answer is %d", q.Outcome.Status)
	if q.Outcome.Failure != "" {
		assumption = fmt.Sprintf("there is no answer (%s)", q.Outcome.Failure)
	}
	if x.AfterCall == nil {
		fmt.Fprintf(out, "\nno call is made, so it does not matter that %s\n", assumption)
		return
	}
	fmt.Fprintf(out, "\nif %s, %s\n", assumption, moment(x.AfterCall.At))
	printAfterCall(out, *x.AfterCall, x.Envelope)
	if x.Otherwise != nil {
		fmt.Fprint(out, "\nor, if the random part of the delay is too long\n")
		printAfterCall(out, *x.Otherwise, x.Envelope)
	}
}

func printEnvelope(out io.Writer, e *explain.Envelope, now time.Time) {
	printLine(out, "envelope", "yes, %s, %d bytes", e.Format, e.Bytes)
	printField(out, "request id", e.RequestID)
	printField(out, "callback of", e.OriginalRequestID)
	printField(out, "tenant", tenantText(e.Organization, e.Environment))
	printField(out, "correlation id", e.CorrelationID)
	printLine(out, "call", "%s %s", e.Method, e.Target)
	if e.Refused != "" {
		printLine(out, "", "it ends as %s: %s", decision.FailureTargetRefused, e.Refused)
	}
	printField(out, "headers", strings.Join(e.Headers, ", "))
	printLine(out, "body", "%d bytes", e.BodyBytes)
	printField(out, "callback", e.Callback)
	if letter := e.MovedBack; letter != nil {
		printLine(out, "dead letter", "%s after %d attempts: %s; it starts again", letter.Reason, letter.Attempts, letter.Detail)
	}
	printField(out, "attempts", attemptsText(e.Attempts, e.LatestStatus))
	switch {
	case e.DueAt == nil:
		printLine(out, "due", "yes")
	case e.Due:
		printLine(out, "due", "yes, since %s", moment(*e.DueAt))
	default:
		printLine(out, "due", "no, not before %s, in %s", moment(*e.DueAt), exactly(e.DueAt.Sub(now)))
	}
	if left := e.Deadline.Sub(now); left > 0 {
		printLine(out, "deadline", "%s, %s left; then %s", moment(e.Deadline), exactly(left), consequence(e.IfExpired))
	} else {
		printLine(out, "deadline", "%s, passed %s ago", moment(e.Deadline), exactly(-left))
	}
	printField(out, "policy", policyText(e.Policy, e.MaxAttempts, e.Limited))
}

func policyText(name string, maxAttempts int, limited string) string {
	if maxAttempts > 0 {
		name += fmt.Sprintf(", at most %d attempts", maxAttempts)
	}
	if limited != "" {
		name += " (limited by the operator: " + limited + ")"
	}
	return name
}

func printAfterCall(out io.Writer, s explain.Step, e *explain.Envelope) {
	printLine(out, "  rule", "%s", s.Rule)
	printStep(out, s)
	if s.Next != nil {
		printLine(out, "  time left", "%s until the deadline at %s", exactly(e.Deadline.Sub(s.At)), moment(e.Deadline))
	}
	callback := "no"
	if s.Callback {
		callback = "yes, to " + e.Callback
	}
	printLine(out, "  callback", "%s", callback)
}

func printStep(out io.Writer, s explain.Step) {
	action := fmt.Sprintf("%s (%s)", s.Action, s.Reason)
	if s.Detail != "" {
		action += ": " + s.Detail
	}
	printLine(out, "  action", "%s", action)
	if s.GivenUp {
		printLine(out, "  given up", "yes: %s", consequence(s.Action))
	}
	if s.Next != nil {
		printNext(out, s.Next, s.At)
	}
	for _, ignored := range s.Ignored {
		printLine(out, "  ignored", "%s", ignored)
	}
	if w := s.Write; w != nil && w.Problem != "" {
		printLine(out, "  writes", "cannot be written: %s", w.Problem)
	} else if w != nil {
		text := fmt.Sprintf("%d of %d bytes to %s, %d left", w.Bytes, w.Max, w.Queue, w.Max-w.Bytes)
		if w.LeftOut != "" {
			text += "; left out: " + w.LeftOut
		}
		printLine(out, "  writes", "%s", text)
	}
}

func printNext(out io.Writer, n *explain.Next, at time.Time) {
	if n.Earliest.Equal(n.Latest) {
		printLine(out, "  next attempt", "%s, in %s", moment(n.Earliest), exactly(n.Earliest.Sub(at)))
	} else {
		printLine(out, "  next attempt", "%s at the earliest, in %s", moment(n.Earliest), exactly(n.Earliest.Sub(at)))
		printLine(out, "", "%s at the latest, in %s", moment(n.Latest), exactly(n.Latest.Sub(at)))
	}
	if n.Latest.Sub(at) > time.Duration(n.Longest) {
		printLine(out, "", "the message is rescheduled several times, by at most %s", exactly(n.Longest))
	}
}

// consequence describes what giving up means.
func consequence(a decision.Action) string {
	switch a {
	case decision.Callback:
		return "the callback reports it to the sender"
	case decision.DeadLetter:
		return "it becomes a dead letter"
	case decision.Drop:
		return "it is dropped"
	case decision.Fault:
		return "it fails, and the host's dequeue count and poison queue take over"
	case decision.Call, decision.Finish, decision.Reschedule:
	}
	return string(a)
}
