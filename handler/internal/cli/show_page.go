package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/format"
	"asynccaller/handler/internal/history"
	"asynccaller/handler/internal/mask"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/terminal"
	"asynccaller/handler/internal/text"
)

// callPage is the output of show for a call. A list of several calls has only the members before Timeline, History and
// NotLookedAt. A time or a status that is not known is null.
type callPage struct {
	RequestID    string `json:"requestId"`
	Host         string `json:"host"`
	PathPattern  string `json:"pathPattern,omitempty"`
	Organization string `json:"organization,omitempty"`
	Environment  string `json:"environment,omitempty"`
	TraceID      string `json:"traceId,omitempty"`
	// State says where the call is: scheduled, due, stale, queued, poison or ended. Queue and ID are of its message.
	State string `json:"state"`
	Queue string `json:"queue"`
	ID    string `json:"id"`
	// Reason is why the call waits, is a poison message or has ended. Detail and Cause explain it.
	Reason   string              `json:"reason"`
	Detail   string              `json:"detail,omitempty"`
	Cause    string              `json:"cause,omitempty"`
	Status   envelope.StatusCode `json:"status"`
	Attempts int                 `json:"attempts"`

	CreatedAt     time.Time `json:"createdAt"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
	Deadline      time.Time `json:"deadline"`
	DeadAt        time.Time `json:"deadAt"`
	ExpiresAt     time.Time `json:"expiresAt"`
	EndedAt       time.Time `json:"endedAt"`

	Timeline []event `json:"timeline,omitempty"`
	// Target is how the target fails, in the eyes of each app that calls it.
	Target []record.Target `json:"target,omitempty"`
	// Warnings say where the row of a scheduled message contradicts its content.
	Warnings []string `json:"warnings,omitempty"`
	contentDetails
	// Requeue is of a poison message. Next is what the handler does with another one at its next delivery.
	Requeue *requeuePreview      `json:"requeue,omitempty"`
	Next    *explain.Explanation `json:"next,omitempty"`
	// History are the rows of the call and of its callbacks in the history.
	History []endedEntry `json:"history"`
	// NotLookedAt says which parts of the account could not be looked at.
	NotLookedAt []string `json:"notLookedAt,omitempty"`

	call foundCall
	// at is since when the call is where it is; zero if that is not known.
	at time.Time
}

// endedEntry is an entry of the history with its attempts as events.
type endedEntry struct {
	history.Entry

	Trail []event `json:"trail"`
}

// newCallPage returns the page of a call without what only a single one has.
func newCallPage(c foundCall, unread []account.UnreadError) callPage {
	p := callPage{History: []endedEntry{}, TraceID: c.trace(), call: c}
	for _, e := range c.ended {
		p.History = append(p.History, endedEntry{Entry: e, Trail: attemptEvents(e.Trail)})
	}
	for _, u := range unread {
		p.NotLookedAt = append(p.NotLookedAt, text.Printable(u.Error()))
	}
	if c.message == nil {
		p.describeEnded(shownEntry(c.last()))
	} else {
		p.describeMessage(*c.message)
	}
	return p
}

func (p *callPage) describeEnded(e history.Entry) {
	p.RequestID, p.Organization, p.Environment = e.RequestID, e.Organization, e.Environment
	p.Host, p.PathPattern = e.TargetHost, e.PathPattern
	p.State, p.Queue, p.ID, p.Reason = isEnded, e.Queue, e.MessageID, e.Reason
	p.Status, p.Attempts = e.Status, e.Attempts
	p.CreatedAt, p.EndedAt, p.at = e.CreatedAt, e.EndedAt, e.EndedAt
}

func (p *callPage) describeMessage(m foundMessage) {
	p.RequestID, p.Organization, p.Environment = m.RequestID, m.Organization, m.Environment
	p.Host, p.PathPattern = m.Host, m.PathPattern
	p.State, p.Queue, p.ID = m.state, m.Queue, m.ID
	p.Reason, p.Detail, p.Cause = m.Reason, m.Detail, m.Cause
	p.Status, p.Attempts = m.Status, m.Attempts
	p.CreatedAt, p.ExpiresAt, p.at = m.createdAt, m.ExpiresAt, m.Since
	switch {
	case m.scheduled != nil:
		p.NextAttemptAt, p.Deadline = m.scheduled.line.NextAttemptAt, m.scheduled.line.Deadline
		p.Warnings = message.CheckRow(m.scheduled.Row)
	case m.state == isPoison:
		p.DeadAt = m.Since
	}
}

// wholePage returns the whole page of one call.
func (s *session) wholePage(
	ctx context.Context, c foundCall, unread []account.UnreadError, secrets mask.Secrets, now time.Time,
) callPage {
	handled, searchedSince, missing := s.operations.HandledBy(ctx,
		func(step journal.Step, progress journal.Progress) bool {
			return c.concerns(s.account.Rules, step, progress)
		})
	if !searchedSince.IsZero() {
		s.progress.printf("of the runs of this machine, only those since %s were searched",
			format.Moment(searchedSince))
	}
	if missing != nil {
		s.progress.printf("warning: the timeline may lack what runs of this machine did: %v", missing)
	}
	p := newCallPage(c, unread)
	p.Timeline = timeline(c, handled)
	if c.message != nil {
		s.completeMessage(ctx, &p, secrets, now)
	}
	return p
}

// completeMessage adds the content of the message of a page, and what comes next.
func (s *session) completeMessage(ctx context.Context, p *callPage, secrets mask.Secrets, now time.Time) {
	m := p.call.message
	if m.Raw { // whatever it looks like
		p.Content = string(mask.ShowContent(m.content, secrets))
	} else {
		p.contentDetails = newContentDetails(m.content, secrets)
	}
	switch {
	case m.state == isPoison:
		p.Requeue = new(s.previewRequeue(ctx, *m.queued))
		return
	case !m.Raw && (m.queued == nil || m.Reason != message.Undecodable): // explain --queue describes what a route calls
		at := now
		if p.NextAttemptAt.After(now) {
			at = p.NextAttemptAt
		}
		p.Next = new(s.explain(ctx, m.Queue, m.ID, m.content, at))
	}
	failing, err := s.account.Failing(ctx)
	if err != nil {
		s.progress.printf("warning: %v", err)
	}
	host := record.RowHost(m.Host)
	for _, t := range failing {
		if t.Host == host {
			p.Target = append(p.Target, t)
		}
	}
}

func (p callPage) print(out io.Writer, now time.Time) {
	m := p.call.message
	switch {
	case m == nil:
		p.printEnded(out, now)
	case m.scheduled != nil:
		p.printScheduled(out, m.scheduled.line, now)
	default:
		printMessageFields(out, m.Message, m.state, now)
	}
	printTimeline(out, p.Timeline, now)
	p.contentDetails.print(out)
	target := commandTarget(p.ID, p.Queue)
	switch {
	case p.Requeue != nil:
		fmt.Fprint(out, "\nif it is requeued now\n")
		p.Requeue.print(out)
		printCommands(out, p.ID, p.Queue, nextForPoison(p.ID, p.Queue, *p.Requeue))
	case m != nil && m.scheduled != nil && p.Next != nil:
		fmt.Fprint(out, "\nat its next attempt\n")
		printDelivery(out, *p.Next)
		printCommands(out, p.ID, p.Queue, []string{"scheduled expedite " + target, "scheduled cancel " + target})
	case p.Next != nil:
		fmt.Fprint(out, "\nwhen the host delivers it\n")
		printDelivery(out, *p.Next)
	}
}

// printScheduled prints what the record says of a message.
func (p callPage) printScheduled(out io.Writer, line scheduledLine, now time.Time) {
	terminal.PrintLine(out, "message", "%s on %s", p.ID, p.Queue)
	for _, warning := range p.Warnings {
		terminal.PrintLine(out, "warning", "%s", warning)
	}
	terminal.PrintField(out, "request id", p.RequestID)
	terminal.PrintField(out, "tenant", tenantText(p.Organization, p.Environment))
	terminal.PrintLine(out, "state", "%s", map[string]string{
		isScheduled: "scheduled",
		isDue:       "due: the host receives it after the messages before it",
		isStale:     "stale: the message is gone, and only its record is left",
	}[p.State])
	terminal.PrintLine(out, "target", "%s%s", p.Host, p.PathPattern)
	terminal.PrintLine(out, "reason", "%s", p.Reason)
	terminal.PrintField(out, "cause", p.Cause)
	terminal.PrintField(out, "answer", line.Answer)
	for _, t := range p.Target {
		terminal.PrintLine(out, "target fails", "%s", failureText(t, now))
	}
	terminal.PrintLine(out, "attempts", "%s", attemptsText(p.Attempts, line.Status))
	if !p.NextAttemptAt.IsZero() {
		terminal.PrintLine(out, "next attempt", "%s, %s", format.Moment(p.NextAttemptAt),
			format.FromNow(p.NextAttemptAt, now))
	}
	if line.Repeated {
		terminal.PrintLine(out, "written",
			"repeatedly, because storage did not answer: there may be a second message of the call")
	}
	if !p.Deadline.IsZero() {
		terminal.PrintLine(out, "deadline", "%s, %s", format.Moment(p.Deadline), format.FromNow(p.Deadline, now))
	}
}

// failureText says how a target fails.
func failureText(t record.Target, now time.Time) string {
	since, latest := format.Age(now.Sub(t.Since)), format.Age(now.Sub(t.Latest))
	failure := fmt.Sprintf("since %s ago, the last time %s ago: %s", since, latest, t.Cause)
	if t.IsOpen() {
		failure += "; the circuit breaker is open"
	}
	return text.Printable(failure + " (app " + t.App + ")")
}

// printMessageFields prints what a message on a queue says.
func printMessageFields(out io.Writer, m message.Message, state string, now time.Time) {
	terminal.PrintLine(out, "message", "%s on %s", m.ID, m.Queue)
	if state == isQueued {
		terminal.PrintLine(out, "state", "waits on its queue, unless the app has received it meanwhile")
	}
	if m.Reason != message.Waiting {
		terminal.PrintLine(out, "reason", "%s", strings.TrimSuffix(m.Reason+": "+m.Detail, ": "))
	}
	terminal.PrintLine(out, "since", "%s, %s ago", format.Moment(m.Since), format.Age(now.Sub(m.Since)))
	if !m.InsertedAt.Equal(m.Since) {
		terminal.PrintLine(out, "enqueued", "%s", format.Moment(m.InsertedAt))
	}
	expires := "never"
	if !m.ExpiresAt.IsZero() {
		expires = format.Moment(m.ExpiresAt) + ", in " + format.Age(m.ExpiresAt.Sub(now)) + ": storage then deletes it"
		if state == isPoison {
			expires += "; `async-caller poison keep` prevents that"
		}
	}
	terminal.PrintLine(out, "expires", "%s", expires)
	if m.Main != m.Queue {
		terminal.PrintLine(out, "main queue", "%s", m.Main)
	}
	kind := "no"
	if m.Format != "" {
		kind = "yes, " + string(m.Format)
	}
	terminal.PrintLine(out, "envelope", "%s, %d bytes", kind, m.Bytes)
	terminal.PrintField(out, "request id", m.RequestID)
	terminal.PrintField(out, "tenant", tenantText(m.Organization, m.Environment))
	attempts := attemptsText(m.Attempts, m.Status)
	if m.Error != "" {
		attempts += ", latest error " + m.Error
	}
	terminal.PrintLine(out, "attempts", "%s", attempts)
}

// mostShown is the length of the longest text of a row that is shown. A row can be anyone's who writes to the table.
const mostShown = 256

// printEnded prints what the history says of a call.
func (p callPage) printEnded(out io.Writer, now time.Time) {
	e := shownEntry(p.call.last())
	label := "request id"
	if e.IsCallback() {
		label = "callback"
	}
	terminal.PrintLine(out, label, "%s", e.RequestID)
	terminal.PrintField(out, "reports on", e.OriginalRequestID)
	terminal.PrintField(out, "tenant", tenantText(e.Organization, e.Environment))
	terminal.PrintLine(out, "state", "ended %s", format.AgeAt(e.EndedAt, now)+" ago")
	terminal.PrintLine(out, "result", "%s", resultText(e))
	terminal.PrintLine(out, "target", "%s%s", e.TargetHost, e.PathPattern)
	terminal.PrintLine(out, "message", "%s on %s", e.MessageID, e.Queue)
	attempts := strconv.Itoa(e.Attempts)
	if n := len(e.Trail); n != e.Attempts {
		attempts += fmt.Sprintf(", of which %d are known", n)
	}
	terminal.PrintLine(out, "attempts", "%s", attempts)
	terminal.PrintField(out, "trace id", e.TraceID)
}

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
		*member = terminal.Text(text.Clip(*member, mostShown))
	}
	return e
}

func resultText(e history.Entry) string {
	text := e.Reason
	if e.Action != string(decision.Finish) {
		text += " (" + e.Action + ")"
	}
	if e.Status != 0 {
		text += fmt.Sprintf(", status %d", e.Status)
	}
	return text
}
