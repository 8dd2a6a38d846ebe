// Package judge says what a run has proved: given what was planned and what was recorded, which messages
// were lost, which calls were made more than once, and whether a fault that was injected explains it.
// It is pure.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/tools/faults/schedule"
)

// Kind is what an event is about.
type Kind int

// The kinds of events. Unless they say otherwise they are about the message with the event's ID.
const (
	// Leased: storage has leased the queue message to the host.
	Leased Kind = iota
	// Called: the target has received a call, and answers with Word; empty when it was cut short.
	Called
	// Wrote: storage has written a queue message of the handler's: a successor, a callback (then the
	// ID is the callback's) or a dead letter.
	Wrote
	// Rescheduled: storage has updated the queue message for the handler.
	Rescheduled
	// Unacknowledged: storage has written, or may have, and a handler that lives on does not know it.
	Unacknowledged
	// Moved: the host has moved the message to the poison queue.
	Moved
	// Deleted: storage has deleted the queue message for the host.
	Deleted
	// Disturbed: a fault was at work from At to Until. An empty ID means that it concerns all messages.
	Disturbed
)

// Cause is a fault that excuses something. A fault that is none excuses nothing: the product must cope
// with it without anybody noticing.
type Cause string

// The causes.
const (
	HandlerKilled Cause = "handler killed"
	HostKilled    Cause = "host killed"
	HostStopped   Cause = "host stopped in good order"
	StorageGone   Cause = "storage away"
	LeaseUnknown  Cause = "lease lost on the way to the host"
	DeleteFailed  Cause = "host's delete failed"
	Stalled       Cause = "this machine stood still"
	// UpdateUnsure: a reschedule in place got no answer. If the host has renewed its lease before the next
	// try, the handler cannot know whether the first was done, and fails the delivery.
	UpdateUnsure Cause = "no answer to an update"
)

// Event is something that was seen, in the order in which it happened.
type Event struct {
	At   time.Duration
	Kind Kind
	// ID is the message's; that of its callback ends with [schedule.CallbackSuffix].
	ID string
	// Message is the queue message's id.
	Message string
	// Attempt, Word and Told are a call's: Told is the status that a callback reports.
	Attempt int
	Word    schedule.Word
	Told    int
	// Cause and Until are a disturbance's.
	Cause Cause
	Until time.Duration
}

// Letter is a message on a poison queue.
type Letter struct {
	ID string
	// Reason is what the handler says about it; empty when the message is as it was sent, or as the
	// host has moved it.
	Reason string
	// Untouched says that it is what was sent, byte for byte.
	Untouched bool
}

// Record is what was seen of a schedule until all was quiet.
type Record struct {
	Events  []Event
	Letters []Letter
	// Left is the number of messages on the main queues after all patience.
	Left int
	// MaxDequeueCount is the host's.
	MaxDequeueCount int
}

// Finding is something about a message.
type Finding struct {
	ID   string `json:"id"`
	What string `json:"what"`
}

// Verdict is what a record proves. Verdicts can be added up.
type Verdict struct {
	Messages int `json:"messages"`
	// Calls and Callbacks are those that targets and senders received, Letters the dead letters.
	Calls     int `json:"calls"`
	Callbacks int `json:"callbacks"`
	Letters   int `json:"deadLetters"`
	// Repeated are those of them that were the same again.
	RepeatedCalls     int `json:"repeatedCalls"`
	RepeatedCallbacks int `json:"repeatedCallbacks"`
	RepeatedLetters   int `json:"repeatedDeadLetters"`
	// MovedByHost are messages that the host moved to the poison queue because their deliveries were
	// broken off too often.
	MovedByHost int `json:"movedByHost"`
	// Redelivered counts by cause what the host was given again.
	Redelivered map[Cause]int `json:"redelivered"`
	// Lost are messages that have met no end and are nowhere.
	Lost []Finding `json:"lost"`
	// Violations are all other things that must not happen.
	Violations []Finding `json:"violations"`
}

// OK reports whether all is as it should be.
func (v Verdict) OK() bool { return len(v.Lost) == 0 && len(v.Violations) == 0 }

// Add adds another verdict.
func (v *Verdict) Add(o Verdict) {
	v.Messages += o.Messages
	v.Calls += o.Calls
	v.Callbacks += o.Callbacks
	v.Letters += o.Letters
	v.RepeatedCalls += o.RepeatedCalls
	v.RepeatedCallbacks += o.RepeatedCallbacks
	v.RepeatedLetters += o.RepeatedLetters
	v.MovedByHost += o.MovedByHost
	if v.Redelivered == nil {
		v.Redelivered = map[Cause]int{}
	}
	for cause, n := range o.Redelivered {
		v.Redelivered[cause] += n
	}
	v.Lost = append(v.Lost, o.Lost...)
	v.Violations = append(v.Violations, o.Violations...)
}

// Judge judges a record of the messages that were planned.
func Judge(planned []schedule.Message, r Record) Verdict {
	v := Verdict{Redelivered: map[Cause]int{}}
	events := slices.Clone(r.Events)
	slices.SortStableFunc(events, func(x, y Event) int { return cmp.Compare(x.At, y.At) })
	// A message and its callback are judged together.
	families, known := map[string][]Event{}, map[string]bool{}
	var everybody []Event
	for _, m := range planned {
		known[m.ID] = true
	}
	for _, e := range events {
		id := strings.TrimSuffix(e.ID, schedule.CallbackSuffix)
		switch {
		case known[id]:
			families[id] = append(families[id], e)
		case e.ID == "" && e.Kind == Disturbed:
			everybody = append(everybody, e)
		default:
			v.Violations = append(v.Violations, Finding{e.ID, "nobody has sent it"})
		}
	}
	letters := map[string][]Letter{}
	for _, l := range r.Letters {
		if !known[l.ID] && !known[strings.TrimSuffix(l.ID, schedule.CallbackSuffix)] {
			v.Violations = append(v.Violations, Finding{l.ID, "a dead letter that nobody has sent"})
			continue
		}
		letters[strings.TrimSuffix(l.ID, schedule.CallbackSuffix)] = append(letters[strings.TrimSuffix(l.ID, schedule.CallbackSuffix)], l)
	}
	for _, m := range planned {
		c := &trial{Message: m, record: r, verdict: &v, events: families[m.ID], everybody: everybody, letters: letters[m.ID]}
		c.judge()
	}
	return v
}

// trial is about one message and its callback.
type trial struct {
	schedule.Message
	record    Record
	verdict   *Verdict
	events    []Event
	everybody []Event // disturbances that concern all messages
	letters   []Letter
	// lives is how many messages may go their way side by side, as far as faults explain it.
	lives int
}

func (t *trial) violated(format string, args ...any) {
	t.verdict.Violations = append(t.verdict.Violations, Finding{t.ID, fmt.Sprintf(format, args...)})
}

func (t *trial) judge() {
	t.verdict.Messages++
	redelivered := t.deliveries()
	t.lives = 1 + redelivered + t.unacknowledged() + t.stops()
	t.deletions()
	t.calls()
	ends := t.judgeLetters()
	ends += t.answered()
	switch {
	case ends == 0 && t.record.Left > 0:
		t.violated("has not met its end, and %d messages are still on the queues", t.record.Left)
	case ends == 0:
		t.verdict.Lost = append(t.verdict.Lost, Finding{t.ID, fmt.Sprintf("%s, %s: no end, and on no queue", t.Outcome, t.Format)})
	case ends > t.lives:
		t.violated("has met its end %d times, faults explain %d", ends, t.lives)
	}
}

// deliveries counts what was delivered again, and wants a cause for each. What the handler has
// re-scheduled in place is meant to come again.
func (t *trial) deliveries() (again int) {
	latest := map[string]time.Duration{}
	for _, e := range t.events {
		switch e.Kind {
		case Leased:
			before, delivered := latest[e.Message]
			if delivered {
				again++
				cause := t.causeOf(before, e.At)
				if cause == "" {
					t.violated("was delivered again at %v after %v, with no cause", e.At, before)
				} else {
					t.verdict.Redelivered[cause]++
				}
			}
			latest[e.Message] = e.At
		case Rescheduled:
			delete(latest, e.Message)
		case Called, Wrote, Unacknowledged, Moved, Deleted, Disturbed:
		}
	}
	return again
}

// causeOf finds a disturbance between two moments.
func (t *trial) causeOf(from, until time.Duration) Cause {
	for _, list := range [][]Event{t.events, t.everybody} {
		for _, e := range list {
			if e.Kind == Disturbed && e.At <= until && max(e.Until, e.At) >= from {
				return e.Cause
			}
		}
	}
	return ""
}

func (t *trial) unacknowledged() (n int) {
	for _, e := range t.events {
		if e.Kind == Unacknowledged {
			n++
		}
	}
	return n
}

// stops counts how often the host was stopped while the message was under way: its call was interrupted
// then and is made again, as the same attempt.
func (t *trial) stops() (n int) {
	if len(t.events) == 0 {
		return 0
	}
	first, last := t.events[0].At, t.events[len(t.events)-1].At
	for _, e := range t.everybody {
		if e.Cause == HostStopped && e.At <= last && e.Until >= first {
			n++
		}
	}
	return n
}

// deletions wants something settled between each lease and the delete that ends it: the first promise.
func (t *trial) deletions() {
	leased, settled := map[string]time.Duration{}, time.Duration(-1)
	for _, e := range t.events {
		switch e.Kind {
		case Leased:
			leased[e.Message] = e.At
		case Wrote, Moved, Rescheduled:
			settled = e.At
		case Called:
			if t.ends(e) {
				settled = e.At
			}
		case Deleted:
			if from, ok := leased[e.Message]; ok && settled < from {
				t.violated("was deleted at %v before anything was settled", e.At)
			}
		case Unacknowledged, Disturbed:
		}
	}
}

// ends reports whether a call is the end of its message: nothing has to be written then.
func (t *trial) ends(e Event) bool {
	return e.Word.Status()/100 == 2 && (t.isCallback(e) || t.Callbacks == nil)
}

func (t *trial) isCallback(e Event) bool { return e.ID != t.ID }

// calls counts repeated calls, and wants each explained.
func (t *trial) calls() {
	type attempt struct {
		id string
		n  int
	}
	made := map[attempt]int{}
	told := map[int]bool{}
	for _, e := range t.events {
		if e.Kind != Called {
			continue
		}
		a := attempt{e.ID, e.Attempt}
		made[a]++
		repeated, total := &t.verdict.RepeatedCalls, &t.verdict.Calls
		if t.isCallback(e) {
			repeated, total = &t.verdict.RepeatedCallbacks, &t.verdict.Callbacks
			told[e.Told] = true
			if !slices.Contains(t.statuses(), e.Told) {
				t.violated("its sender was told %d", e.Told)
			}
		}
		*total++
		if made[a] > 1 {
			*repeated++
		}
	}
	for a, n := range made {
		if n > t.lives {
			t.violated("attempt %d of %s was made %d times, faults explain %d", a.n, a.id, n, t.lives)
		}
	}
	if len(told) > t.lives {
		t.violated("its sender was told %d different things", len(told))
	}
}

// statuses are those that a callback may report.
func (t *trial) statuses() []int {
	switch t.Outcome {
	case schedule.ToldOK, schedule.ToldRejected:
		return []int{t.Answers[len(t.Answers)-1].Status()}
	case schedule.ToldExpired:
		return []int{503, 504} // 504 when no call was answered before the deadline
	case schedule.Delivered, schedule.Rejected, schedule.Expired, schedule.Malformed:
	}
	return nil
}

// worn reports whether the host has received one queue message so often that it moves it to the poison
// queue. A reschedule in place counts as well; deliveries with no cause have been found already.
func (t *trial) worn() bool {
	received := map[string]int{}
	for _, e := range t.events {
		if e.Kind == Leased {
			received[e.Message]++
		}
	}
	for _, n := range received {
		if n >= t.record.MaxDequeueCount {
			return true
		}
	}
	return false
}

// judgeLetters judges the dead letters and counts them.
func (t *trial) judgeLetters() int {
	reason := map[schedule.Outcome]string{schedule.Rejected: "rejected", schedule.Expired: "expired"}[t.Outcome]
	for _, l := range t.letters {
		switch {
		case l.Reason == "" && t.Outcome == schedule.Malformed && l.Untouched:
		case l.Reason == "" && t.worn() && t.Outcome != schedule.Malformed:
			t.verdict.MovedByHost++
		case l.Reason == "" || l.Reason != reason:
			t.violated("is a dead letter for the reason %q", l.Reason)
		}
	}
	t.verdict.Letters += len(t.letters)
	t.verdict.RepeatedLetters += max(len(t.letters)-1, 0)
	return len(t.letters)
}

// answered is 1 when the message has met its end by a call that was answered as planned. How often it
// was made has been judged already.
func (t *trial) answered() int {
	for _, e := range t.events {
		if e.Kind == Called && t.ends(e) {
			return 1
		}
	}
	return 0
}
