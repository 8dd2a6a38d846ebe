// Package call finds one call wherever it is, and describes it: its state, its timeline, its content and what comes
// next. It reads the record of scheduled messages, the queues and the history. It changes nothing, except that [Find]
// may receive messages of long poison queues for a moment, unless it only peeks.
//
// Every byte of a message and of a row may come from an attacker. The texts of a [Page] are printable, except for those
// of its History, which are the rows as they are.
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

// foundMessage is a message that an ID names.
type foundMessage struct {
	message.Message
	// state is one of the constants.
	state   string
	content []byte
	trace   string
	// scheduled is the row of a scheduled message, and queued a message on a queue.
	scheduled *scheduledRow
	queued    *account.Found
	createdAt time.Time
}

// scheduledRow is a scheduled message with its line in lists.
type scheduledRow struct {
	message.Scheduled
	line ScheduledLine
}

func newScheduledMessage(
	rules message.Rules, m message.Scheduled, presence record.Presence, now time.Time,
) foundMessage {
	line := NewScheduledLine(m, presence, now)
	state := line.State
	if state == StateWaiting {
		state = StateScheduled
	}
	return foundMessage{
		Message: m.Message, state: state, content: m.Row.Content, scheduled: &scheduledRow{m, line},
		trace: traceOf(rules, m.Row.Content, m.Row.ID, now), createdAt: m.Since,
	}
}

func newQueuedMessage(rules message.Rules, f account.Found, state string, now time.Time) foundMessage {
	m := foundMessage{Message: f.Message, state: state, content: f.Content, queued: &f}
	if f.Format == "" {
		return m
	}
	m.trace = traceOf(rules, f.Content, f.ID, now)
	if e, err := envelope.Parse(f.Content); err == nil {
		m.createdAt = e.CreatedAt
	}
	return m
}

// traceOf returns the trace id of an envelope, which it has or which the handler gives it; empty if it is malformed.
func traceOf(rules message.Rules, content []byte, messageID string, now time.Time) string {
	in := rules.Open(content, messageID, now)
	if in.Envelope == nil {
		return ""
	}
	return in.Envelope.Trace.ID
}

// withoutGone leaves out a message at the front of its queue that the record has as well.
func withoutGone(messages []foundMessage) []foundMessage {
	return slices.DeleteFunc(slices.Clone(messages), func(m foundMessage) bool {
		return m.state == StateQueued && slices.ContainsFunc(messages, func(other foundMessage) bool {
			return other.scheduled != nil && other.Queue == m.Queue && other.ID == m.ID
		})
	})
}

// keysToFind returns the calls to look for in the history: those of messages, and the one with an ID of a tenant.
func keysToFind(messages []foundMessage, id string, tenant envelope.Tenant) []message.RequestKey {
	keys := []message.RequestKey{{
		Organization: tenant.Organization, Environment: tenant.Environment,
		RequestID: envelope.WithoutCallbackSuffix(id),
	}}
	for _, m := range messages {
		key := message.RequestKey{
			Organization: m.Organization, Environment: m.Environment,
			RequestID: envelope.WithoutCallbackSuffix(m.RequestID),
		}
		if key.RequestID != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Call is a call that an ID names, see [Find].
type Call struct {
	// message is where the call is; nil if it has ended.
	message *foundMessage
	// callbacks are messages of its callback.
	callbacks []foundMessage
	// ended is what the history has of the call, the newest first, with its callbacks.
	ended []history.Entry
}

// NewPoison returns the call of a message on a poison queue, without its callbacks and what the history has of it.
func NewPoison(rules message.Rules, f account.Found, now time.Time) Call {
	m := newQueuedMessage(rules, f, StatePoison, now)
	return Call{message: &m}
}

// joinCalls joins messages and entries of the history by tenant and trace. Each message is a call of its own, even if
// it is a copy, except for a callback that only the request id of its call names. Entries of other calls are left out
// unless the ID is their request id. So is the row of a message that was not seen, if the call has ended since or is
// elsewhere.
func joinCalls(messages []foundMessage, entries []history.Entry, id string) []Call {
	var waiting, ended []Call
	var callbacks []foundMessage
	for _, m := range messages {
		if m.RequestID == id+envelope.CallbackSuffix && !message.MatchID(m.Message, id) {
			callbacks = append(callbacks, m)
		} else {
			waiting = append(waiting, Call{message: &m})
		}
	}
	for _, e := range entries {
		isSame := envelope.WithoutCallbackSuffix(e.RequestID) == envelope.WithoutCallbackSuffix(id)
		isNamed := isSame || e.OriginalRequestID == id
		if !addEntry(waiting, e) && !addEntry(ended, e) && isNamed {
			ended = append(ended, Call{ended: []history.Entry{e}})
		}
	}
	for i, c := range waiting {
		if c.isUnseen() && len(c.ended) > 0 && !c.last().EndedAt.Before(c.message.scheduled.line.NextAttemptAt) {
			waiting[i].message = nil
		}
	}
	slices.SortStableFunc(ended, func(a, b Call) int { return b.last().EndedAt.Compare(a.last().EndedAt) })
	calls := addCallbacks(slices.Concat(waiting, ended), callbacks)
	return slices.DeleteFunc(slices.Clone(calls), func(c Call) bool {
		isElsewhere := func(other Call) bool {
			return !other.isUnseen() && other.requestID() == c.requestID() && other.tenant() == c.tenant()
		}
		return c.isUnseen() && slices.ContainsFunc(calls, isElsewhere)
	})
}

// addCallbacks adds messages of callbacks to the calls with their traces. A callback without one is a call of its own.
func addCallbacks(calls []Call, callbacks []foundMessage) []Call {
	for _, m := range callbacks {
		own := Call{message: &m}
		isKnown := false
		for i, c := range calls {
			if c.trace() != "" && c.trace() == own.trace() && c.tenant() == own.tenant() {
				calls[i].callbacks = append(calls[i].callbacks, m)
				isKnown = true
			}
		}
		if !isKnown {
			calls = append(calls, own)
		}
	}
	return calls
}

// addEntry adds an entry of the history to the calls that it is of, and reports whether there is one.
func addEntry(calls []Call, e history.Entry) (added bool) {
	for i := range calls {
		if calls[i].has(e) {
			calls[i].ended = append(calls[i].ended, e)
			added = true
		}
	}
	return added
}

// isUnseen reports whether only the row of a message was seen.
func (c Call) isUnseen() bool {
	return c.message != nil && (c.message.state == StateUnseen || c.message.state == StateStale)
}

// has reports whether an entry of the history is one of the call or of its callback.
func (c Call) has(e history.Entry) bool {
	return e.TraceID != "" && e.TraceID == c.trace() && tenantOf(e) == c.tenant()
}

// last returns the newest entry of the call, or of its callback if it has none. The call has ended.
func (c Call) last() history.Entry {
	for _, e := range c.ended {
		if !e.IsCallback() {
			return e
		}
	}
	return c.ended[0]
}

func (c Call) trace() string {
	if c.message != nil {
		return c.message.trace
	}
	return c.ended[0].TraceID
}

func (c Call) requestID() string {
	if c.message != nil {
		return c.message.RequestID
	}
	return c.last().RequestID
}

func (c Call) tenant() envelope.Tenant {
	if c.message != nil {
		return envelope.Tenant{Organization: c.message.Organization, Environment: c.message.Environment}
	}
	return tenantOf(c.ended[0])
}

func tenantOf(e history.Entry) envelope.Tenant {
	return envelope.Tenant{Organization: e.Organization, Environment: e.Environment}
}

// messageIDs returns the ids of the messages of the call that are known.
func (c Call) messageIDs() (ids []string) {
	if c.message != nil {
		ids = append(ids, c.message.ID)
	}
	for _, e := range c.ended {
		if !e.IsCallback() {
			ids = append(ids, e.MessageID)
		}
	}
	if len(ids) == 0 { // a callback without its call
		ids = append(ids, c.last().MessageID)
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
	if s.RequestID == "" || s.RequestID != c.requestID() {
		return false
	}
	trace := ""
	if s.Take != nil && s.Take.Text != "" {
		trace = traceOf(rules, rules.Content(s.Take.Text), s.Take.ID, p.NewAt)
	}
	return trace == "" || c.trace() == "" || trace == c.trace()
}

// repeats reports whether an entry of the history says that the call has become the dead letter that was found.
func (c Call) repeats(e history.Entry) bool {
	const near = time.Minute
	m := c.message
	return m != nil && m.state == StatePoison && e.Action == string(decision.DeadLetter) && e.Reason == m.Reason &&
		e.EndedAt.Sub(m.Since).Abs() < near
}
