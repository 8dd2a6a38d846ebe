package call

import (
	"context"
	"fmt"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/rules/mask"
)

// Page describes a call, for a person or as JSON. A list of several calls has only the members before Timeline, History
// and NotLookedAt. A time or a status that is not known is null in JSON.
type Page struct {
	RequestID    string `json:"requestId"`
	Host         string `json:"host"`
	PathPattern  string `json:"pathPattern,omitempty"`
	Organization string `json:"organization,omitempty"`
	Environment  string `json:"environment,omitempty"`
	TraceID      string `json:"traceId,omitempty"`
	// State says where the call is: scheduled, due, unseen, stale, queued, poison or ended. Queue and ID are of its
	// message.
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

	Timeline []Event `json:"timeline,omitempty"`
	// Target is how the target fails, in the eyes of each app that calls it.
	Target []sight.Target `json:"target,omitempty"`
	// Warnings say where the row of a scheduled message contradicts its content.
	Warnings []string `json:"warnings,omitempty"`
	// Answer and Call describe an envelope, Content a message that is none.
	Answer  *mask.Answer `json:"answer,omitempty"`
	Call    *mask.Call   `json:"call,omitempty"`
	Content string       `json:"content,omitempty"`
	// Requeue is of a poison message. Next is what the handler does with another one at its next delivery.
	Requeue *Preview             `json:"requeue,omitempty"`
	Next    *explain.Explanation `json:"next,omitempty"`
	// History are the rows of the call and of its callbacks in the history.
	History []Ended `json:"history"`
	// NotLookedAt says which parts of the account could not be looked at.
	NotLookedAt []string `json:"notLookedAt,omitempty"`

	// At is since when the call is where it is; zero if that is not known.
	At time.Time `json:"-"`

	call Call
}

// Ended is an entry of the history with its attempts as events.
type Ended struct {
	history.Entry

	Trail []Event `json:"trail"`
}

// newPage returns the page of a call without what only a single one has.
func newPage(c Call, unread []account.UnreadError) Page {
	p := Page{History: []Ended{}, TraceID: c.trace(), call: c}
	for _, e := range c.ended {
		p.History = append(p.History, Ended{Entry: e, Trail: attemptEvents(e.Trail)})
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

func (p *Page) describeEnded(e history.Entry) {
	p.RequestID, p.Organization, p.Environment = e.RequestID, e.Organization, e.Environment
	p.Host, p.PathPattern = e.TargetHost, e.PathPattern
	p.State, p.Queue, p.ID, p.Reason = StateEnded, e.Queue, e.MessageID, e.Reason
	p.Status, p.Attempts = e.Status, e.Attempts
	p.CreatedAt, p.EndedAt, p.At = e.CreatedAt, e.EndedAt, e.EndedAt
}

func (p *Page) describeMessage(m foundMessage) {
	p.RequestID, p.Organization, p.Environment = m.RequestID, m.Organization, m.Environment
	p.Host, p.PathPattern = m.Host, m.PathPattern
	p.State, p.Queue, p.ID = m.state, m.Queue, m.ID
	p.Reason, p.Detail, p.Cause = m.Reason, m.Detail, m.Cause
	p.Status, p.Attempts = m.Status, m.Attempts
	p.CreatedAt, p.ExpiresAt, p.At = m.createdAt, m.ExpiresAt, m.Since
	switch {
	case m.scheduled != nil:
		p.NextAttemptAt, p.Deadline = m.scheduled.line.NextAttemptAt, m.scheduled.line.Deadline
		p.Warnings = message.CheckRow(m.scheduled.Row)
	case m.state == StatePoison:
		p.DeadAt = m.Since
	}
}

// Describe returns the whole page of a call that was found. Unread are the parts of the account that could not be
// looked at. The notes say what the page may lack.
func Describe(
	ctx context.Context, op *operation.Operations, c Call, unread []account.UnreadError, secrets mask.Secrets,
	now time.Time,
) (p Page, notes []string) {
	note := func(layout string, args ...any) {
		notes = append(notes, text.Printable(fmt.Sprintf(layout, args...), '\n'))
	}
	handled, searchedSince, missing := op.HandledBy(ctx, func(step journal.Step, progress journal.Progress) bool {
		return c.concerns(op.Account.Rules, step, progress)
	})
	if !searchedSince.IsZero() {
		note("of the runs of this machine, only those since %s were searched", format.Moment(searchedSince))
	}
	if missing != nil {
		note("warning: the timeline may lack what runs of this machine did: %v", missing)
	}
	p = newPage(c, unread)
	p.Timeline = timeline(c, handled)
	if c.message == nil {
		return p, notes
	}
	p.addContent(secrets)
	for _, err := range p.addNext(ctx, op.Account, now) {
		note("warning: %v", err)
	}
	return p, notes
}

// addContent adds the content of the message of a page.
func (p *Page) addContent(secrets mask.Secrets) {
	m := p.call.message
	e, err := envelope.Parse(m.content)
	if m.Raw || err != nil { // a raw content is none, whatever it looks like
		p.Content = string(mask.ShowContent(m.content, secrets))
		return
	}
	p.Call = new(mask.ShowCall(e, secrets))
	p.Answer = mask.ShowAnswer(e, secrets)
}

// addNext adds what comes next for the message of a page, and how its target fails. The errors are why parts of that
// are not known.
func (p *Page) addNext(ctx context.Context, a *account.Account, now time.Time) (unknown []error) {
	m := p.call.message
	switch {
	case m.state == StatePoison:
		preview, err := previewRequeue(ctx, a, *m.queued)
		p.Requeue = &preview
		return appendError(nil, err)
	case !m.Raw && (m.queued == nil || m.Reason != message.Undecodable): // explain FILE describes what a route calls
		at := now
		if p.NextAttemptAt.After(now) {
			at = p.NextAttemptAt
		}
		next, err := explainMessage(ctx, a, m.Queue, m.ID, m.content, at)
		p.Next = &next
		unknown = appendError(unknown, err)
	}
	failing, err := a.Failing(ctx)
	p.Target = sight.OfHost(failing, m.Host)
	return appendError(unknown, err)
}

// appendError appends an error unless it is nil.
func appendError(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}
