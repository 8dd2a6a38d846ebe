package call

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
)

// mostShown is the length of the longest text of a row that is shown. A row can be anyone's who writes to the table.
const mostShown = 256

// shownEntry returns an entry with texts that can be printed.
func shownEntry(e history.Entry) history.Entry {
	e.Trail = slices.Clone(e.Trail)
	members := []*string{
		&e.RequestID, &e.Organization, &e.Environment, &e.Queue, &e.MessageID, &e.TargetHost, &e.PathPattern,
		&e.Action, &e.Reason, &e.OriginalRequestID, &e.TraceID,
	}
	for i := range e.Trail {
		members = append(members, &e.Trail[i].Error)
	}
	for _, member := range members {
		*member = text.LimitMarks(text.Printable(text.Clip(*member, mostShown)))
	}
	return e
}

// reasonText says why a message waits or was given up.
func (s Summary) reasonText() string { return strings.TrimSuffix(s.Reason+": "+s.Detail, ": ") }

// ResultText describes the result of a call that has ended.
func ResultText(e history.Entry) string {
	text := e.Reason
	if e.Action != string(decision.Finish) {
		text += " (" + e.Action + ")"
	}
	if e.Status != 0 {
		text += fmt.Sprintf(", status %d", e.Status)
	}
	return text
}

// FailureText says how a target fails.
func FailureText(t sight.Target, now time.Time) string {
	if t.IsUnanswered() {
		return text.Printable(CauseText(t, now) + " (app " + t.App + ")")
	}
	since, latest := format.Age(now.Sub(t.Since)), format.Age(now.Sub(t.Latest))
	failure := fmt.Sprintf("since %s ago, the last time %s ago: %s", since, latest, t.Cause)
	if t.IsOpen() {
		failure += "; the circuit breaker is open"
	}
	return text.Printable(failure + " (app " + t.App + ")")
}

// CauseText says in a few words why a target fails.
func CauseText(t sight.Target, now time.Time) string {
	if !t.IsUnanswered() {
		return t.Cause
	}
	return fmt.Sprintf("%s, the oldest for %s as of %s ago", t.Cause, format.Age(t.Age(now)),
		format.Age(now.Sub(t.SeenAt)))
}

// TenantText names a tenant; empty if there is none.
func TenantText(organization, environment string) string {
	return strings.Trim(organization+"/"+environment, "/")
}

// AttemptsText describes the attempts of a call.
func AttemptsText(n int, latestStatus envelope.StatusCode) string {
	if latestStatus == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d, latest status %d", n, latestStatus)
}

// Consequence describes the effect of giving up.
func Consequence(a decision.Action) string {
	return map[decision.Action]string{
		decision.Callback:   "the callback reports it to the sender",
		decision.DeadLetter: "it becomes a dead letter",
		decision.Drop:       "it is dropped",
		decision.Fault:      "the host gets an error, and in the end moves the message to the poison queue",
	}[a]
}

// bodyText describes a body.
func bodyText(b mask.Body) string {
	text := fmt.Sprintf("%s, %d bytes", b.Kind, b.Bytes)
	switch {
	case b.Kind == mask.BodyNone:
		return "none"
	case b.Text == "":
		text += ", not shown without --reveal"
	case b.Partial:
		text += ", the rest only with --reveal"
	}
	return text
}
