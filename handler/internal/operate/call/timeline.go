package call

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// Event is something that happened to a call, or will happen.
type Event struct {
	// At is zero if the time is not known.
	At time.Time `json:"at"`
	// Event is the kind: created, attempt, dead_letter, written, run, ended, callback or next_attempt.
	Event string `json:"event"`
	// Status is the target's answer to an attempt or at an end.
	Status envelope.StatusCode `json:"status"`
	Text   string              `json:"text"`
	// Error, TookMs and Run are of an attempt and of what a run did.
	Error  string `json:"error,omitempty"`
	TookMs int64  `json:"tookMs,omitempty"`
	Run    string `json:"run,omitempty"`
}

func newEvent(at time.Time, kind, layout string, args ...any) Event {
	return Event{At: at.UTC(), Event: kind, Text: text.Printable(fmt.Sprintf(layout, args...))}
}

// timeline returns what is known of a call in the order of time: first what has no time.
func timeline(c Call, handled []operation.Handled) (events []Event) {
	if c.message != nil {
		events = messageEvents(*c.message)
	}
	for _, m := range c.callbacks {
		events = append(events, callbackEvent(m))
	}
	for _, e := range slices.Backward(c.ended) { // the oldest first
		if !c.repeats(e) {
			events = append(events, endedEvents(shownEntry(e))...)
		}
	}
	for _, h := range handled {
		by := strings.TrimSuffix(h.User+"@"+h.Machine, "@")
		e := newEvent(h.At, "run", "%s by %s: %s (run %s)", h.Command, cmp.Or(by, "somebody"), h.Result, h.Run)
		e.Run = h.Run
		events = append(events, e)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return withoutRepeated(events)
}

// withoutRepeated leaves out what two sources say: the history and the message.
func withoutRepeated(events []Event) (rest []Event) {
	seen := map[string]bool{}
	for _, e := range events {
		key := e.Event + " " + e.Text + " " + format.Moment(e.At)
		if !seen[key] {
			rest = append(rest, e)
		}
		seen[key] = true
	}
	return rest
}

// notSeen is what is known of a message that is due, and not at the front of its queue.
const notSeen = "not seen since its time: it may be held or received"

// missed is what became of an attempt that was due, by the state of the message.
var missed = map[string]string{StateUnseen: notSeen, StateStale: "the message is gone"}

// messageEvents returns what a message says.
func messageEvents(m foundMessage) (events []Event) {
	if !m.createdAt.IsZero() {
		events = append(events, newEvent(m.createdAt, "created", "created"))
	}
	if e, err := envelope.Parse(m.content); err == nil && !m.Raw {
		events = append(events, attemptEvents(history.TrailOf(e.Trail))...)
	}
	switch {
	case m.scheduled != nil && missed[m.state] != "":
		events = append(events, newEvent(m.scheduled.line.NextAttemptAt, "next_attempt",
			"an attempt was due; %s", missed[m.state]))
	case m.scheduled != nil:
		events = append(events, newEvent(m.scheduled.line.NextAttemptAt, "next_attempt",
			"next attempt: it waits because of %s", m.Reason))
	case m.Since.Equal(m.InsertedAt):
		events = append(events, newEvent(m.InsertedAt, "written", "written to %s", m.Queue))
	default:
		events = append(events, newEvent(m.Since, "dead_letter", "dead letter: %s",
			strings.TrimSuffix(m.Reason+": "+m.Detail, ": ")),
			newEvent(m.InsertedAt, "written", "written to %s", m.Queue))
	}
	return events
}

// callbackEvent says where the message of a callback is.
func callbackEvent(m foundMessage) Event {
	e := newEvent(m.Since, "callback", "callback: on %s, %s", m.Queue, m.Reason)
	switch {
	case missed[m.state] != "":
		e = newEvent(m.scheduled.line.NextAttemptAt, "callback", "callback: an attempt was due; %s", missed[m.state])
	case m.scheduled != nil:
		e = newEvent(m.scheduled.line.NextAttemptAt, "callback",
			"callback: next attempt, it waits because of %s", m.Reason)
	}
	e.Status = m.Status
	return e
}

func attemptEvents(trail []history.Attempt) (events []Event) {
	for _, a := range trail {
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

// endedEvents returns what an entry of the history says.
func endedEvents(e history.Entry) []Event {
	end := newEvent(e.EndedAt, "ended", "ended: %s", ResultText(e))
	switch {
	case e.IsCallback():
		end = newEvent(e.EndedAt, "callback", "callback: %s, to %s, attempts %d",
			ResultText(e), e.TargetHost, e.Attempts)
		end.Status = e.Status
		return []Event{end}
	case e.Action == string(decision.DeadLetter):
		end = newEvent(e.EndedAt, "dead_letter", "dead letter: %s", ResultText(e))
	}
	end.Status = e.Status
	events := []Event{newEvent(e.CreatedAt, "created", "created")}
	return append(append(events, attemptEvents(e.Trail)...), end)
}

// MostEvents is how many events of a call are shown to a person: a sender can use a trace id any number of times.
const MostEvents = 120

// Line returns an event as a line. The label says how far its time is away, and is empty if the time is not known.
func (e Event) Line(now time.Time) Line {
	if e.At.IsZero() {
		return Line{Text: "at an unknown time, " + e.Text}
	}
	return Line{Label: format.FromNow(e.At, now), Text: format.Moment(e.At) + ", " + e.Text}
}
