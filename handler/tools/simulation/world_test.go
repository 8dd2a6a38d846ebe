package simulation

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
)

const (
	week = 7 * 24 * time.Hour
	// lastAttemptLead is the time between the last attempt and the deadline, as docs/retry.md says.
	lastAttemptLead = 10 * time.Second
)

// begin is the time at which each simulation begins.
var begin = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// message is an item of the simulated queue.
type message struct {
	visibleAt time.Time
	content   []byte
	// envelope is the parsed content, without its trail, once it was delivered.
	envelope *envelope.Envelope
}

// event is a message and the time, in Unix nanoseconds, at which it becomes visible.
type event struct {
	at int64
	*message
}

// events is a heap by time.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// step is one delivery of a message: the decision and its inputs.
type step struct {
	now      time.Time
	envelope *envelope.Envelope
	policy   retry.Policy
	called   bool
	decision.Decision
}

// world is a queue, a handler and a target in virtual time. A call takes no time.
type world struct {
	rules  decision.Rules
	jitter func() float64
	// target returns the status of a call at that time.
	target func(now time.Time) int
	// observe is called with every delivery.
	observe func(*step)

	events events
}

func newWorld(jitter func() float64, target func(time.Time) int) *world {
	return &world{
		rules: decision.Rules{
			Expiration: week, GiveUp: envelope.GiveUpDeadLetter, Retry: retry.Default(),
			MaxDelay: storage.MaxDelay,
		},
		jitter: jitter,
		target: target,
	}
}

// send puts a new envelope on the queue, with additional members.
func (w *world) send(id string, created time.Time, members string) {
	content := fmt.Appendf(nil,
		`{"asyncCaller":1,"requestId":%q,"createdAt":%q,"call":{"url":"https://target.example/"}%s}`,
		id, created.Format(time.RFC3339Nano), members)
	heap.Push(&w.events, event{created.UnixNano(), &message{visibleAt: created, content: content}})
}

// run delivers messages until none is left.
func (w *world) run(t *testing.T) {
	t.Helper()
	for len(w.events) > 0 {
		m := w.events[0].message
		d := w.deliver(t, m)
		if w.observe != nil {
			w.observe(d)
		}
		if d.Action != decision.Reschedule {
			heap.Pop(&w.events)
			continue
		}
		w.reschedule(t, m, d)
		w.events[0].at = m.visibleAt.UnixNano()
		heap.Fix(&w.events, 0)
	}
}

// deliver processes a message like the handler.
func (w *world) deliver(t *testing.T, m *message) *step {
	now := m.visibleAt
	var in decision.Intake
	if m.envelope == nil {
		in = w.rules.Open(m.content, "m1", storage.Base64.MaxContentBytes(), now)
	} else {
		in.Envelope = m.envelope
		in.Policy, in.Malformed = w.rules.PolicyFor(m.envelope, nil)
	}
	if in.Malformed != nil {
		t.Fatalf("%s: %v", m.content, in.Malformed)
	}
	d := &step{now: now, envelope: in.Envelope, policy: in.Policy}
	d.Decision = w.rules.Decide(&in, nil, decision.World{Now: now})
	if d.Action == decision.Call {
		d.called = true
		ended := &decision.Verdict{Outcome: &decision.Outcome{Status: w.target(now)}}
		d.Decision = w.rules.Decide(&in, ended, decision.World{Arrived: now, Now: now, Jitter: w.jitter()})
	}
	return d
}

// reschedule makes the message its own successor. Like the queue it rounds up to whole seconds.
func (w *world) reschedule(t *testing.T, m *message, d *step) {
	if d.Delay < 0 || d.Delay > storage.MaxDelay {
		t.Fatalf("%s: a delay of %v, which no queue takes", d.envelope.RequestID, d.Delay)
	}
	m.visibleAt = m.visibleAt.Add((d.Delay + time.Second - 1).Truncate(time.Second))
	d.State.Trail = nil
	m.envelope = d.envelope.WithState(d.State)
}
