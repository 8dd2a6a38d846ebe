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
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/rules/mask"
)

// Page describes a call, for a person or as JSON: its message, or its last one if it has ended, and what the account
// says of it. A list of several calls has only summaries, with TraceID, Warnings, History and NotLookedAt. A time or a
// status that is not known is null in JSON.
type Page struct {
	Summary

	TraceID  string  `json:"traceId,omitempty"`
	Timeline []Event `json:"timeline,omitempty"`
	// Target is how the target fails, in the eyes of each app that calls it.
	Target []sight.Target `json:"target,omitempty"`
	// Warnings say where the row of a scheduled message contradicts its content.
	Warnings []string `json:"warnings,omitempty"`
	// Answer and Call describe an envelope, Content a message that is none.
	Answer  *mask.Answer `json:"answer,omitempty"`
	Call    *mask.Call   `json:"call,omitempty"`
	Content string       `json:"content,omitempty"`
	// Retry is of a dead letter. Next is what the handler does with another one at its next delivery.
	Retry *Preview             `json:"retry,omitempty"`
	Next  *explain.Explanation `json:"next,omitempty"`
	// History are the rows of the call and of its callbacks in the history.
	History []history.Entry `json:"history"`
	// NotLookedAt says which parts of the account could not be looked at.
	NotLookedAt []string `json:"notLookedAt,omitempty"`

	call Call
}

// newPage returns the page of a call without what only a single one has.
func newPage(c Call, unread []account.UnreadError) Page {
	p := Page{Summary: c.Summary, History: []history.Entry{}, TraceID: c.trace, call: c}
	for _, e := range c.ends {
		p.History = append(p.History, *e.end)
	}
	for _, u := range unread {
		p.NotLookedAt = append(p.NotLookedAt, text.Printable(u.Error()))
	}
	if c.row != nil {
		p.Warnings = message.CheckRow(*c.row)
	}
	return p
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
	p.Timeline = timeline(c, handled, now)
	if c.end != nil {
		return p, notes
	}
	p.addContent(secrets)
	for _, err := range p.addNext(ctx, op.Account, now) {
		if err != nil {
			note("warning: %v", err)
		}
	}
	return p, notes
}

// addContent adds the content of the message of a page.
func (p *Page) addContent(secrets mask.Secrets) {
	e, err := envelope.Parse(p.call.content)
	if p.Raw || err != nil { // a raw content is none, whatever it looks like
		p.Content = string(mask.ShowContent(p.call.content, secrets))
		return
	}
	p.Call = new(mask.ShowCall(e, secrets))
	p.Answer = mask.ShowAnswer(e, secrets)
}

// addNext adds what comes next for the message of a page, and how its target fails. The errors that are not nil are why
// parts of that are not known.
func (p *Page) addNext(ctx context.Context, a *account.Account, now time.Time) (unknown []error) {
	if p.State == StatePoison {
		preview, err := previewRetry(ctx, a, *p.call.queued)
		p.Retry = &preview
		return []error{err}
	}
	// What a route calls, explain FILE describes.
	if !p.Raw && (p.call.row != nil || p.Reason != message.Undecodable) {
		at := bounds.Later(now, p.NextAttemptAt)
		next, err := explainMessage(ctx, a, p.Queue, p.ID, p.call.content, at)
		p.Next, unknown = &next, append(unknown, err)
	}
	failing, err := a.Failing(ctx)
	p.Target = sight.OfHost(failing, p.CalledHost())
	return append(unknown, err)
}
