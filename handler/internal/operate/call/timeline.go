package call

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// Event is something that happened to a call, or will happen.
type Event struct {
	// At is zero if the time is not known.
	At time.Time `json:"at"`
	// Event is the kind: created, waited, attempt, dead_letter, written, run, ended, callback or next_attempt.
	Event string `json:"event"`
	// Status is the target's answer to an attempt or at an end.
	Status envelope.StatusCode `json:"status"`
	Text   string              `json:"text"`
	// Error is of an attempt, Run of what a run did. TookMs is how long an attempt took, or how long the call waited.
	Error  string `json:"error,omitempty"`
	TookMs int64  `json:"tookMs,omitempty"`
	Run    string `json:"run,omitempty"`

	// order is At, or that of a cause if that is later, see [inOrder].
	order time.Time
}

func newEvent(at time.Time, kind, layout string, args ...any) Event {
	return Event{At: at.UTC(), Event: kind, Text: text.Printable(fmt.Sprintf(layout, args...))}
}

// inOrder sets the order of events of which each one follows from the one before it, and the first one from an event
// with the order after. The times alone do not say that: the clocks of the sender, of the handler and of storage
// differ, and that of storage has whole seconds.
func inOrder(after time.Time, events ...Event) []Event {
	for i, e := range events {
		at := e.At
		if at.Nanosecond() == 0 && !at.IsZero() { // it may be any time of its second
			at = at.Add(time.Second - 1)
		}
		after = bounds.Later(at, after)
		events[i].order = after
	}
	return events
}

// timeline returns what is known of a call: a cause before its effects, and the rest in the order of time. An event
// without a time follows its cause.
func timeline(c Call, handled []operation.Handled, now time.Time) (events []Event) {
	var reported time.Time // the order of the first end that the sender was told
	for _, e := range slices.Backward(c.ends) {
		if e.isCallback() || c.repeats(e) {
			continue
		}
		events = append(events, inOrder(time.Time{}, e.events(now)...)...)
		if reported.IsZero() && e.end.Action == string(decision.Callback) {
			reported = events[len(events)-1].order
		}
	}
	for _, h := range slices.Backward(handled) {
		events = append(events, inOrder(time.Time{}, runEvent(h))...)
	}
	if c.end == nil {
		events = append(events, inOrder(time.Time{}, c.events(now)...)...)
	}
	for _, f := range slices.Concat(c.callbacks, c.ends) {
		if f.end == nil || f.isCallback() {
			events = append(events, inOrder(reported, f.callbackEvent())...)
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.order.Compare(b.order) })
	seen := map[string]bool{}
	return slices.DeleteFunc(events, func(e Event) bool { // the history and the message say the same
		key := e.Event + " " + e.Text + " " + format.Moment(e.At)
		isRepeated := seen[key] && !e.At.IsZero()
		seen[key] = true
		return isRepeated
	})
}

// notSeen is what is known of a message that is due, and not at the front of its queue.
const notSeen = "not seen since its time: it may be held or received"

// missed is what became of an attempt that was due, by the state of the message.
var missed = map[string]string{StateUnseen: notSeen, StateStale: "the message is gone"}

// events returns what a message, or an end in the history, says of a call.
func (f finding) events(now time.Time) (events []Event) {
	if !f.CreatedAt.IsZero() {
		events = append(events, newEvent(f.CreatedAt, "created", "created"))
	}
	events = slices.Concat(events, f.wait(now), f.attempts())
	switch {
	case f.end != nil:
		e := newEvent(f.Since, "ended", "ended: %s", ResultText(*f.end))
		if f.end.Action == string(decision.DeadLetter) {
			e = newEvent(f.Since, "dead_letter", "dead letter: %s", ResultText(*f.end))
		}
		e.Status = f.Status
		return append(events, e)
	case f.row != nil:
		return append(events, f.nextAttempt("next_attempt", ""))
	case !f.Since.Equal(f.InsertedAt):
		events = append(events, newEvent(f.Since, "dead_letter", "dead letter: %s", f.reasonText()))
	}
	return append(events, newEvent(f.InsertedAt, "written", "written to %s", f.Queue))
}

// nextAttempt says when a scheduled message is due, and why it waits.
func (f finding) nextAttempt(kind, prefix string) Event {
	if why := missed[f.State]; why != "" {
		return newEvent(f.NextAttemptAt, kind, "%san attempt was due; %s", prefix, why)
	}
	return newEvent(f.NextAttemptAt, kind, "%snext attempt: it waits because of %s", prefix, f.Reason)
}

// wait says how long a call has waited for its first attempt, if that is long and every attempt is known. An attempt
// that was interrupted is not recorded. Nothing keeps why a message was rescheduled without a call, except for the
// latest time: the row of a scheduled message, and the dead letter of an expired one.
func (f finding) wait(now time.Time) []Event {
	begin, end := bounds.Later(f.CreatedAt, f.notBefore), f.Since
	reason := "reason unknown"
	switch {
	case f.CreatedAt.IsZero() || len(f.trail) != f.Attempts:
		return nil
	case len(f.trail) > 0:
		end = f.trail[0].At
	case f.row != nil:
		end, reason = bounds.Earlier(now, f.NextAttemptAt), "latest reason "+f.Reason
	case f.State == StateQueued:
		end = now
	case f.Reason == string(decision.Expired) && slices.Contains(refusals, decision.Reason(f.Detail)):
		reason = "latest reason " + f.Detail
	}
	took := end.Sub(begin)
	if end.IsZero() || took < decision.MinRecordedDelay {
		return nil
	}
	e := newEvent(begin, "waited", "waited %s without a recorded call: %s", format.Duration(took), reason)
	e.TookMs = took.Milliseconds()
	return []Event{e}
}

// refusals are the reasons of a message that is rescheduled without a call.
var refusals = []decision.Reason{decision.Busy, decision.TargetDown, decision.Auth, decision.Paused}

func (f finding) attempts() (events []Event) {
	for _, a := range f.trail {
		result := cmp.Or(a.Error, "no answer")
		if a.Status != 0 {
			result = strings.TrimSuffix(fmt.Sprintf("answered %d, %s", a.Status, a.Error), ", ")
		}
		e := newEvent(a.At, "attempt", "%s, took %v", result, time.Duration(a.TookMs)*time.Millisecond)
		e.Status, e.Error, e.TookMs = envelope.StatusCode(a.Status), text.Printable(a.Error), a.TookMs
		events = append(events, e)
	}
	return events
}

// callbackEvent says where the message of a callback is, or how the callback ended.
func (f finding) callbackEvent() Event {
	const kind = "callback"
	e := newEvent(f.Since, kind, "callback: on %s, %s", f.Queue, f.Reason)
	switch {
	case f.end != nil:
		e = newEvent(f.Since, kind, "callback: %s, to %s, attempts %d", ResultText(*f.end), f.Host, f.Attempts)
	case f.row != nil:
		e = f.nextAttempt(kind, "callback: ")
	}
	e.Status = f.Status
	return e
}

// runEvent says what a run did to a message of the call.
func runEvent(h operation.Handled) Event {
	by := strings.TrimSuffix(h.User+"@"+h.Machine, "@")
	e := newEvent(h.At, "run", "%s by %s: %s (run %s)", h.Command, cmp.Or(by, "somebody"), h.Result, h.Run)
	e.Run = h.Run
	return e
}

// mostEvents is how many events of a call are shown to a person: a sender can use a trace id any number of times.
const mostEvents = 120

// Latest returns the events that are shown to a person, and the number of earlier ones.
func (p Page) Latest() (events []Event, earlier int) {
	earlier = max(len(p.Timeline)-mostEvents, 0)
	return p.Timeline[earlier:], earlier
}

// timelineLines returns the timeline for a person.
func (p Page) timelineLines(now time.Time) []Line {
	var l lines
	events, earlier := p.Latest()
	if earlier > 0 {
		l.add("earlier", "%s, which --json prints", format.Plural(earlier, "event"))
	}
	for _, e := range events {
		if e.At.IsZero() {
			l.add("", "at an unknown time, %s", e.Text)
		} else {
			l.add(format.FromNow(e.At, now), "%s, %s", format.Moment(e.At), e.Text)
		}
	}
	return l
}
