// Package call finds one call wherever it is, and describes it: its state, its timeline, its content and what comes
// next. It reads the record of scheduled messages, the queues and the history. It changes nothing, except that [Find]
// may receive messages of long poison queues for a moment, unless it only peeks.
//
// Every byte of a message and of a row may come from an attacker. The texts of a [Page] are printable, except for the
// keys of the rows of its History.
package call

import (
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// finding is what was found of a call: one of its messages, or its end in the history.
type finding struct {
	Summary

	trace     string
	trail     []history.Attempt
	notBefore time.Time
	content   []byte
	// row is that of a scheduled message, queued a message on a queue, and end an end in the history; the others are
	// nil.
	row    *record.Row
	queued *account.Found
	end    *history.Entry
}

func newScheduled(rules message.Rules, m message.Recorded, presence record.Presence, now time.Time) finding {
	f := finding{Summary: NewSummary(m, presence, now), row: &m.Row}
	f.read(rules, m.Row.Content, m.Row.ID, now)
	return f
}

func newQueued(rules message.Rules, q account.Found, state string, now time.Time) finding {
	f := finding{Summary: Summary{Message: q.Message, State: state}, content: q.Content, queued: &q}
	if q.Format != "" {
		f.read(rules, q.Content, q.ID, now)
	}
	return f
}

func newEnd(e history.Entry) finding {
	e = shownEntry(e)
	return finding{
		Summary: Summary{State: StateEnded, CreatedAt: e.CreatedAt, Message: message.Message{
			RequestID: e.RequestID, Organization: e.Organization, Environment: e.Environment,
			Queue: e.Queue, Main: e.Queue, ID: e.MessageID, Since: e.EndedAt, Host: e.TargetHost, MovedTo: e.MovedTo,
			PathPattern: e.PathPattern, Reason: e.Reason, Status: e.Status, Attempts: e.Attempts,
		}},
		trace: e.TraceID, trail: e.Trail, end: &e,
	}
}

// read adds what the content says, if it is an envelope.
func (f *finding) read(rules message.Rules, content []byte, messageID string, now time.Time) {
	f.content, f.trace = content, traceOf(rules, content, messageID, now)
	e, err := envelope.Parse(content)
	if err != nil {
		return
	}
	f.trail, f.notBefore = history.TrailOf(e.Trail), e.NotBefore
	if f.CreatedAt.IsZero() {
		f.CreatedAt = e.CreatedAt
	}
}

// traceOf returns the trace id of an envelope, which it has or which the handler gives it; empty if it is malformed.
func traceOf(rules message.Rules, content []byte, messageID string, now time.Time) string {
	in := rules.Open(content, messageID, now)
	if in.Envelope == nil {
		return ""
	}
	return in.Envelope.Trace.ID
}

func (f finding) tenant() envelope.Tenant {
	return envelope.Tenant{Organization: f.Organization, Environment: f.Environment}
}

// isUnseen reports whether only the row of a message was seen.
func (f finding) isUnseen() bool { return f.State == StateUnseen || f.State == StateStale }

// isCallback reports whether the history says that a callback has ended.
func (f finding) isCallback() bool { return f.end != nil && f.end.IsCallback() }

// isNamed reports whether the history says that a call, or its callback, has an id as its request id.
func (f finding) isNamed(id string) bool {
	isSame := envelope.WithoutCallbackSuffix(f.end.RequestID) == envelope.WithoutCallbackSuffix(id)
	return isSame || f.end.OriginalRequestID == id
}

// Call is a call that an ID names, see [Find]. The finding is its message, or its newest end.
type Call struct {
	finding
	// callbacks are messages of its callback.
	callbacks []finding
	// ends are those of the call, the newest first, and then those of its callbacks.
	ends []finding
}

// group is what was found with the same tenant and trace. What has no trace is a group of its own.
type group struct {
	// ends are in the order of those of a [Call].
	messages, callbacks, ends []finding
	// isNamed says that one of the ends has the ID that was looked for.
	isNamed bool
}

// joinCalls joins messages and ends by tenant and trace. Each message is a call of its own, even a copy, except for a
// callback that only the request id of its call names. Ends of other calls are left out unless the ID is their request
// id. So is the row of a message that was not seen, if the call has ended since or is elsewhere.
func joinCalls(messages, ends []finding, id string) (calls []Call) {
	slices.SortStableFunc(ends, func(a, b finding) int {
		switch {
		case a.isCallback() == b.isCallback():
			return b.Since.Compare(a.Since)
		case b.isCallback():
			return -1
		}
		return 1
	})
	type key struct {
		tenant envelope.Tenant
		trace  string
	}
	var groups []*group
	known := map[key]*group{}
	groupOf := func(f finding) *group {
		k := key{f.tenant(), f.trace}
		if f.trace == "" || known[k] == nil {
			known[k] = &group{}
			groups = append(groups, known[k])
		}
		return known[k]
	}
	for _, m := range messages {
		g := groupOf(m)
		if m.RequestID == id+envelope.CallbackSuffix && !message.MatchID(m.Message, id) {
			g.callbacks = append(g.callbacks, m)
		} else {
			g.messages = append(g.messages, m)
		}
	}
	for _, e := range ends {
		g := groupOf(e)
		g.ends, g.isNamed = append(g.ends, e), g.isNamed || e.isNamed(id)
	}
	for _, g := range groups {
		calls = append(calls, g.calls()...)
	}
	return slices.DeleteFunc(slices.Clone(calls), func(c Call) bool {
		isElsewhere := func(other Call) bool {
			return !other.isUnseen() && other.RequestID == c.RequestID && other.tenant() == c.tenant()
		}
		return c.isUnseen() && slices.ContainsFunc(calls, isElsewhere)
	})
}

// calls returns the calls of a group. Callbacks of a call that was not found are calls of their own.
func (g *group) calls() (calls []Call) {
	for _, m := range g.messages {
		if len(g.ends) == 0 || !m.isUnseen() || g.ends[0].Since.Before(m.NextAttemptAt) {
			calls = append(calls, Call{m, g.callbacks, g.ends})
		}
	}
	if len(calls) == 0 && len(g.ends) > 0 && (g.isNamed || len(g.messages) > 0) {
		calls = append(calls, Call{g.ends[0], g.callbacks, g.ends})
	}
	if len(calls) == 0 {
		for _, m := range g.callbacks {
			calls = append(calls, Call{finding: m})
		}
	}
	return calls
}

// messageIDs returns the ids of the messages of the call that are known.
func (c Call) messageIDs() []string {
	ids := []string{c.ID}
	for _, e := range c.ends {
		if !e.isCallback() {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// hasMessage reports whether a message of the call has an id with this beginning.
func (c Call) hasMessage(beginning string) bool {
	return slices.ContainsFunc(c.messageIDs(), func(id string) bool {
		return len(id) >= len(beginning) && strings.EqualFold(id[:len(beginning)], beginning)
	})
}

// concerns reports whether a step of a run is about the call: about one of its messages, or about another one with its
// request id, unless that has another trace.
func (c Call) concerns(rules message.Rules, s journal.Step, p journal.Progress) bool {
	ids := c.messageIDs()
	if s.Take != nil && slices.Contains(ids, s.Take.ID) || p.NewID != "" && slices.Contains(ids, p.NewID) {
		return true
	}
	if s.RequestID == "" || s.RequestID != c.RequestID {
		return false
	}
	trace := ""
	if s.Take != nil && s.Take.Text != "" {
		trace = traceOf(rules, rules.Content(s.Take.Text), s.Take.ID, p.NewAt)
	}
	return trace == "" || c.trace == "" || trace == c.trace
}

// repeats reports whether an end in the history is that of the call as the dead letter that was found.
func (c Call) repeats(e finding) bool {
	const near = time.Minute
	return c.State == StatePoison && e.end.Action == string(decision.DeadLetter) && e.Reason == c.Reason &&
		e.Since.Sub(c.Since).Abs() < near
}
