// Package judge judges a run of faults. From the plan and the recorded events it finds messages that were lost, and
// calls that were repeated, and whether the injected faults explain each repetition. It is pure.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/tools/faults/schedule"
)

// Kind is the kind of an event.
type Kind int

// The kinds of events.
const (
	// Leased: storage has leased the queue message to the host.
	Leased Kind = iota
	// Called: the target has received a call and answers it; Answer is empty if the connection was reset first.
	Called
	// Wrote: storage has written a queue message of the handler's: a successor, a callback (then ID is the callback's)
	// or a dead letter.
	Wrote
	// Updated: storage has updated the queue message for the handler.
	Updated
	// Unacknowledged: storage has written, or may have, and a living handler does not know.
	Unacknowledged
	// Moved: the host has moved the message to the poison queue.
	Moved
	// Deleted: storage has deleted the queue message for the host.
	Deleted
	// Disturbed: a fault was active from At to Until. An empty ID means that it concerns all messages.
	Disturbed
	// Kept: the history has the row that says that the call was delivered, and is asked before each call.
	Kept
	// Held: from At to Until all handlers had a wrong setting, with which they must make no calls.
	Held
)

// Cause is a fault that explains a repetition. Any other fault does not excuse one.
type Cause string

// The causes.
const (
	HandlerKilled Cause = "handler killed"
	HostKilled    Cause = "host killed"
	HostStopped   Cause = "host stopped"
	StorageDown   Cause = "storage down"
	LeaseUnknown  Cause = "lease lost on the way to the host"
	DeleteFailed  Cause = "host's delete failed"
	Stalled       Cause = "this machine stalled"
	// UpdateUnsure: an update of a message's visibility got no answer. If the host renews its lease before the next
	// try, the handler cannot know whether the first one was carried out, and fails the delivery.
	UpdateUnsure Cause = "no answer to an update"
)

// Event is something that was observed.
type Event struct {
	At   time.Duration
	Kind Kind
	// ID is the message's; that of its callback ends with [schedule.CallbackSuffix].
	ID string
	// Message is the queue message's id, DequeueCount how often it was received when it was leased: more often than was
	// seen if storage stopped meanwhile.
	Message      string
	DequeueCount int64
	// Attempt and Answer belong to a call, Reported is the status that a callback reports.
	Attempt  int
	Answer   string
	Reported int
	// Report identifies the whole report of a callback: two copies of a message can report one status, each after
	// another number of attempts.
	Report string
	// Cause belongs to a disturbance, Until to that and to Held.
	Cause Cause
	Until time.Duration
}

// DeadLetter is a message on a poison queue.
type DeadLetter struct {
	ID string
	// Reason is the handler's; empty if the message is as it was sent, or as the host moved it.
	Reason string
	// Unchanged is true if the message equals the one that was sent, byte for byte.
	Unchanged bool
}

// Record has the observations of a schedule until the system was idle.
type Record struct {
	Events      []Event
	DeadLetters []DeadLetter
	// Left is the number of messages that are still on the main queues.
	Left int
	// MaxDequeueCount is the host's.
	MaxDequeueCount int64
}

// Finding is a statement about a message.
type Finding struct{ ID, Text string }

// Count counts events, and those of them that repeat an earlier one.
type Count struct{ All, Repeated int }

func (c *Count) add(o Count) {
	c.All += o.All
	c.Repeated += o.Repeated
}

// Verdict is the result of judging a record.
type Verdict struct {
	Messages                      int
	Calls, Callbacks, DeadLetters Count
	// MovedByHost counts messages that the host moved to the poison queue because their deliveries failed too often.
	MovedByHost int
	// Redelivered counts repeated deliveries by cause.
	Redelivered map[Cause]int
	// Lost are messages that have not ended and are on no queue. Unexplained are all other violations.
	Lost, Unexplained []Finding
}

// OK reports whether nothing was lost and nothing is unexplained.
func (v Verdict) OK() bool { return len(v.Lost) == 0 && len(v.Unexplained) == 0 }

// Add adds another verdict.
func (v *Verdict) Add(o Verdict) {
	v.Messages += o.Messages
	v.Calls.add(o.Calls)
	v.Callbacks.add(o.Callbacks)
	v.DeadLetters.add(o.DeadLetters)
	v.MovedByHost += o.MovedByHost
	if v.Redelivered == nil {
		v.Redelivered = map[Cause]int{}
	}
	for cause, n := range o.Redelivered {
		v.Redelivered[cause] += n
	}
	v.Lost = append(v.Lost, o.Lost...)
	v.Unexplained = append(v.Unexplained, o.Unexplained...)
}

// Judge judges the record of the planned messages.
func Judge(planned []schedule.Message, r Record) Verdict {
	v := Verdict{Redelivered: map[Cause]int{}}
	checks := map[string]*check{}
	for _, m := range planned {
		checks[m.ID] = &check{Message: m, record: r, verdict: &v}
	}
	// A message and its callback are judged together.
	of := func(id string) *check { return checks[strings.TrimSuffix(id, schedule.CallbackSuffix)] }
	var general []Event
	for _, e := range slices.SortedStableFunc(slices.Values(r.Events),
		func(x, y Event) int { return cmp.Compare(x.At, y.At) }) {
		switch c := of(e.ID); {
		case c != nil:
			c.events = append(c.events, e)
		case e.ID == "" && (e.Kind == Disturbed || e.Kind == Held):
			general = append(general, e)
		case e.Kind == Kept: // rows can be written after their schedule has ended
		default:
			v.Unexplained = append(v.Unexplained, Finding{e.ID, "nobody sent this message"})
		}
	}
	for _, d := range r.DeadLetters {
		if c := of(d.ID); c != nil {
			c.deadLetters = append(c.deadLetters, d)
		} else {
			v.Unexplained = append(v.Unexplained, Finding{d.ID, "nobody sent this dead letter"})
		}
	}
	for _, m := range planned {
		checks[m.ID].general = general
		checks[m.ID].judge()
	}
	return v
}

// check judges one message and its callback.
type check struct {
	schedule.Message
	record  Record
	verdict *Verdict
	events  []Event
	// general are the events that concern all messages.
	general     []Event
	deadLetters []DeadLetter
	// copies is how many copies of the message may exist, or have been made again by a stop, as far as faults explain
	// them; repeats is how often each call may be made: a stop interrupts the calls of all copies.
	copies, repeats int
}

func (c *check) unexplained(format string, args ...any) {
	c.verdict.Unexplained = append(c.verdict.Unexplained, Finding{c.ID, fmt.Sprintf(format, args...)})
}

func (c *check) judge() {
	c.verdict.Messages++
	copies, stops := 1+c.redeliveries()+c.count(Unacknowledged), c.stops()
	c.copies, c.repeats = copies+stops, copies*(1+stops)
	c.deletions()
	c.calls()
	c.judgeDeadLetters()
	ends := len(c.deadLetters)
	if slices.ContainsFunc(c.events, c.endedBy) { // repeated calls are judged already
		ends++
	}
	switch {
	case ends == 0 && c.record.Left > 0:
		c.unexplained("has not ended, and %d messages are still on the queues", c.record.Left)
	case ends == 0:
		c.verdict.Lost = append(c.verdict.Lost, Finding{c.ID, c.String() + ": has not ended and is on no queue"})
	case ends > c.copies:
		c.unexplained("has ended %d times, faults explain %d", ends, c.copies)
	}
}

func (c *check) count(kind Kind) (n int) {
	for _, e := range c.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// redeliveries counts repeated deliveries, each of which needs a cause. A message that was updated is expected again;
// if its host was killed, the handler may have released it, so that its call is made again.
func (c *check) redeliveries() (n int) {
	latest := map[string]time.Duration{}
	for _, e := range c.events {
		if e.Kind == Updated {
			if before, ok := latest[e.Message]; ok && c.hostKilled(before, e.At) {
				n++
				c.verdict.Redelivered[HostKilled]++
			}
			delete(latest, e.Message)
		}
		if e.Kind != Leased {
			continue
		}
		if before, repeated := latest[e.Message]; repeated {
			n++
			if cause := c.causeOf(before, e.At); cause != "" {
				c.verdict.Redelivered[cause]++
			} else {
				c.unexplained("was delivered again at %v after %v, with no cause", e.At, before)
			}
		}
		latest[e.Message] = e.At
	}
	return n
}

// causeOf returns the cause of a disturbance between two moments.
func (c *check) causeOf(from, until time.Duration) Cause {
	for _, e := range slices.Concat(c.events, c.general) {
		if e.Kind == Disturbed && e.within(from, until) {
			return e.Cause
		}
	}
	return ""
}

// within reports whether something that lasted from At to Until, if it did, was going on between two moments.
func (e Event) within(from, until time.Duration) bool {
	return e.At <= until && max(e.Until, e.At) >= from
}

func (c *check) hostKilled(from, until time.Duration) bool {
	return slices.ContainsFunc(c.general, func(e Event) bool { return e.Cause == HostKilled && e.within(from, until) })
}

// stops counts how often the host was stopped during the message's life: the calls of all its copies were interrupted
// then and are made again, as the same attempt.
func (c *check) stops() (n int) {
	if len(c.events) == 0 {
		return 0
	}
	first, last := c.events[0].At, c.events[len(c.events)-1].At
	for _, e := range c.general {
		if e.Cause == HostStopped && e.within(first, last) {
			n++
		}
	}
	return n
}

// deletions checks that something was settled between each lease and the delete that ends it: the first guarantee.
func (c *check) deletions() {
	leased, settled, kept := map[string]time.Duration{}, time.Duration(-1), map[string]bool{}
	for _, e := range c.events {
		switch e.Kind {
		case Leased:
			leased[e.Message] = e.At
		case Wrote, Moved, Updated:
			settled = e.At
		case Called:
			if c.endedBy(e) {
				settled = e.At
			}
		case Deleted:
			if from, ok := leased[e.Message]; ok && settled < from && !kept[e.ID] {
				c.unexplained("was deleted at %v before anything was settled", e.At)
			}
		case Kept:
			kept[e.ID] = true // a later copy is a duplicate
		case Unacknowledged, Disturbed, Held:
		}
	}
}

// endedBy reports whether the message ended with a call, so that nothing had to be written.
func (c *check) endedBy(e Event) bool {
	return e.Kind == Called && schedule.Status(e.Answer)/100 == 2 && (e.ID != c.ID || c.Callbacks == nil)
}

// calls counts calls, and checks that faults explain the repeated ones.
func (c *check) calls() {
	type attempt struct {
		id string
		n  int
	}
	made := map[attempt]int{}
	reported := map[int]bool{}
	for _, e := range c.events {
		if e.Kind != Called {
			continue
		}
		if slices.ContainsFunc(c.general,
			func(held Event) bool { return held.Kind == Held && held.within(e.At, e.At) }) {
			c.unexplained("was called at %v, when a setting was wrong", e.At)
		}
		if slices.ContainsFunc(c.events, func(kept Event) bool { return c.isRepeated(kept, e) }) {
			c.unexplained("%s was called at %v, though its row says that it was delivered", e.ID, e.At)
		}
		count := &c.verdict.Calls
		if e.ID != c.ID {
			count = &c.verdict.Callbacks
			reported[e.Reported] = true
			if !slices.Contains(c.statuses(), e.Reported) {
				c.unexplained("its callback reported %d", e.Reported)
			}
		}
		a := attempt{e.ID, e.Attempt}
		made[a]++
		count.add(Count{1, min(made[a]-1, 1)})
	}
	for a, n := range made {
		if n > c.repeats {
			c.unexplained("attempt %d of %s was made %d times, faults explain %d", a.n, a.id, n, c.repeats)
		}
	}
	if len(reported) > c.copies {
		c.unexplained("its callbacks reported %d different statuses", len(reported))
	}
}

// isRepeated reports whether a call was made although a row says that the same call was delivered, and could be read. A
// callback with another report is another call.
func (c *check) isRepeated(kept, call Event) bool {
	isAway := func(e Event) bool { return e.Cause == StorageDown && e.within(call.At-notAsked, call.At) }
	isLater := kept.Kind == Kept && kept.ID == call.ID && call.At > kept.At+keptGrace
	if !isLater || slices.ContainsFunc(c.general, isAway) {
		return false
	}
	return slices.ContainsFunc(c.events, func(before Event) bool {
		return before.Kind == Called && before.ID == call.ID && before.At <= kept.At && before.Report == call.Report
	})
}

// keptGrace is how long after the answer that there is no row a call can end.
const keptGrace = 3 * time.Second

// notAsked is a second more than the handler does not ask the table after a request without an answer.
const notAsked = 6 * time.Second

// statuses are those that a callback may report.
func (c *check) statuses() []int {
	switch {
	case c.Callbacks == nil:
		return nil
	case c.Outcome == schedule.Expired:
		return []int{503, 504} // 504 if no call was answered before the deadline
	}
	return []int{schedule.Status(c.Answers[len(c.Answers)-1])}
}

// exhausted reports whether the host has received one queue message so often that it moves it to the poison queue. A
// reschedule by update counts too. Deliveries without a cause are reported elsewhere.
func (c *check) exhausted() bool {
	return slices.ContainsFunc(c.events, func(e Event) bool { return e.DequeueCount >= c.record.MaxDequeueCount })
}

func (c *check) judgeDeadLetters() {
	for i, d := range c.deadLetters {
		c.verdict.DeadLetters.add(Count{1, min(i, 1)})
		switch {
		case c.Outcome == schedule.Malformed && d.Reason == "" && d.Unchanged:
		case c.Outcome != schedule.Malformed && d.Reason == "" && c.exhausted():
			c.verdict.MovedByHost++
		case c.Outcome == schedule.Malformed, c.Outcome == schedule.Delivered, c.Callbacks != nil,
			d.Reason != string(c.Outcome):
			c.unexplained("is a dead letter with the reason %q", d.Reason)
		}
	}
}
