// Package schedule plans a run of faults: messages, the answers of their targets, and the faults that are injected
// while the messages are delivered. A plan follows from a seed; nothing here acts.
package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"asynccaller/handler/internal/program/demo/target"
)

// Schedule is a batch of messages and the faults that are injected while they are delivered.
type Schedule struct {
	Messages []Message
	Faults   []Fault
}

// Message is a planned message.
type Message struct {
	ID string
	// Nexus is true for a message in the Nexus format, Priority for one on a priority queue.
	Nexus, Priority bool
	Outcome         Outcome
	// Answers are the target's to the first attempt, the second and so on; the last one repeats. Callbacks are the
	// sender's answers to the callback; nil if there is none.
	Answers, Callbacks []string
	// Deadline is counted from when the message is put on the queue; 0 is the default.
	Deadline time.Duration
}

// CallbackSuffix makes the id of a callback from a message's, as native callbacks do.
const CallbackSuffix = ".callback"

// Writes reports whether the handler must write something to settle the message.
func (m Message) Writes() bool {
	return len(m.Answers) != 1 || m.Outcome != Delivered || m.Callbacks != nil
}

// String describes how the message must end.
func (m Message) String() string {
	if m.Callbacks != nil {
		return string(m.Outcome) + ", callback"
	}
	return string(m.Outcome)
}

// Outcome is how a message must end. Without a callback, all but Delivered end as a dead letter.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered"
	Rejected  Outcome = "rejected"
	Expired   Outcome = "expired"
	Malformed Outcome = "malformed"
)

// Status returns the status that the handler receives with an answer; 0 if there is none.
func Status(answer string) int {
	a, _ := target.Parse(answer) // an unknown answer has no status
	return a.Status
}

// Point is a moment in the message flow.
type Point string

// The points, in order.
const (
	Leased       Point = "leased"        // storage has leased the message to the host, which does not know yet
	BeforeCall   Point = "before call"   // the call has left the handler; the target does not have it
	DuringCall   Point = "during call"   // the target has the call and has not answered
	AfterCall    Point = "after call"    // the target has answered
	BeforeWrite  Point = "before write"  // the settle write has left the handler; storage does not have it
	AfterWrite   Point = "after write"   // storage has the settle write; the handler does not know yet
	BeforeDelete Point = "before delete" // the handler has answered; storage does not have the host's delete
	AfterDelete  Point = "after delete"  // storage has deleted the message; the host does not know yet
)

// Action is a fault.
type Action string

// The faults.
const (
	KillHandler    Action = "handler killed"
	KillHost       Action = "host killed" // the handler lives on as an orphan
	KillBoth       Action = "host and handler killed"
	InterruptHost  Action = "host stopped (SIGINT)"
	TerminateHost  Action = "host stopped (SIGTERM)"
	Answer500      Action = "storage answers 500"
	Answer503      Action = "storage answers 503"
	HangRequest    Action = "storage hangs"
	ResetRequest   Action = "storage resets the connection"
	SlowRequest    Action = "storage is slow"
	LoseAnswer     Action = "acknowledgement lost"     // storage has carried out the request
	WithholdAnswer Action = "acknowledgement withheld" // until the client has given up
	StorageDown    Action = "storage down"             // every connection is reset
	StorageBusy    Action = "storage busy"             // every request is answered with 503
	RestartStorage Action = "storage restarted"
	RefuseCalls    Action = "target refuses"
	BadDeploy      Action = "bad deploy" // the handler starts again and has a wrong setting, until the next deploy
)

// Fault is an action that is taken when a message reaches a point.
type Fault struct {
	Point  Point
	Action Action
	// ID is the message's, or that of its callback.
	ID string
	// Skip is how often the message passes the point before.
	Skip int
	// Length is how long the fault lasts, if it does.
	Length time.Duration
	// End is the fault with which the handler of a bad deploy ends.
	End Action
}

// New returns the schedule with a number. It is always the same for a seed.
func New(seed uint64, number int) Schedule {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	var s Schedule
	for i := range 6 + r.IntN(5) {
		s.Messages = append(s.Messages, newMessage(r, fmt.Sprintf("s%d-m%d", number, i)))
	}
	for range 1 + r.IntN(4) {
		s.Faults = append(s.Faults, newFault(r, s.Messages[r.IntN(len(s.Messages))]))
	}
	return s
}

// Outage returns the schedule in which storage is down for longer than the handler retries a settle write.
func Outage(seed uint64, number int) Schedule {
	s := New(seed, number)
	for i := range s.Messages {
		m := &s.Messages[i]
		if m.Deadline == 0 && m.Outcome != Malformed {
			m.Answers = append([]string{"503"}, m.Answers...)
		}
	}
	s.Messages[0] = Message{ID: s.Messages[0].ID, Outcome: Delivered, Answers: []string{"503", "200"}}
	s.Faults = []Fault{{Point: BeforeWrite, Action: StorageDown, ID: s.Messages[0].ID, Length: 65 * time.Second}}
	return s
}

// Later returns the schedule with another failure at the beginning of each message that does not expire: the target
// asks it to wait so long that it is recorded.
func Later(s Schedule) Schedule {
	for i := range s.Messages {
		if m := &s.Messages[i]; m.Outcome == Delivered || m.Outcome == Rejected {
			m.Answers = append([]string{"later-429"}, m.Answers...)
		}
	}
	return s
}

func newMessage(r *rand.Rand, id string) Message {
	m := Message{ID: id, Nexus: r.IntN(2) == 0, Priority: r.IntN(3) == 0}
	type outcome struct {
		Outcome
		callback bool
	}
	drawn := draw(r, []choice[outcome]{
		{8, outcome{Delivered, false}},
		{4, outcome{Delivered, true}},
		{2, outcome{Rejected, false}},
		{2, outcome{Rejected, true}},
		{1, outcome{Expired, false}},
		{1, outcome{Expired, true}},
		{1, outcome{Malformed, false}},
	})
	m.Outcome = drawn.Outcome
	switch m.Outcome {
	case Delivered:
		last := []choice[string]{{12, "200"}, {3, "204"}, {1, "huge-200"}}
		if !drawn.callback { // a callback needs the whole answer
			last = append(last, choice[string]{1, "half-body-200"}, choice[string]{1, "drip-body-200"})
		}
		m.Answers = append(failures(r, drawn.callback), draw(r, last))
	case Rejected:
		m.Answers = append(failures(r, drawn.callback), "400")
	case Expired:
		m.Answers, m.Deadline = []string{"503"}, 3*time.Second
	case Malformed:
	}
	if drawn.callback {
		m.Callbacks = append(failures(r, false), "200")
	}
	return m
}

// failures draws none to three answers after which the handler retries: also a 2xx without its end, if its callback
// needs it.
func failures(r *rand.Rand, callback bool) (answers []string) {
	for range draw(r, []choice[int]{{4, 0}, {4, 1}, {2, 2}, {1, 3}}) {
		choices := slices.Concat(
			[]choice[string]{{6, "503"}, {2, "429"}, {2, "404"}, {2, "reset"}, {2, "close"}, {1, "hang"}},
			[]choice[string]{{2, "half-head"}, {2, "half-body-503"}, {2, "garbage"}, {1, "drip-head"}},
		)
		if callback {
			choices = append(choices, choice[string]{2, "half-body-200"})
		}
		answers = append(answers, draw(r, choices))
	}
	return answers
}

// actions are the faults that are possible at a point.
var actions = map[Point][]choice[Action]{
	Leased: {{2, KillHandler}, {2, KillHost}, {2, KillBoth}, {1, InterruptHost}, {2, LoseAnswer}, {2, BadDeploy}},
	BeforeCall: {
		{4, KillHandler},
		{1, KillHost},
		{2, KillBoth},
		{1, InterruptHost},
		{1, TerminateHost},
		{2, RefuseCalls},
		{2, BadDeploy},
	},
	DuringCall: {
		{4, KillHandler},
		{2, KillHost},
		{2, KillBoth},
		{2, InterruptHost},
		{2, TerminateHost},
		{1, StorageDown},
		{2, BadDeploy},
	},
	AfterCall: {
		{4, KillHandler},
		{1, KillHost},
		{2, KillBoth},
		{1, InterruptHost},
		{1, StorageDown},
		{1, StorageBusy},
		{2, RefuseCalls},
	},
	BeforeWrite: slices.Concat(
		[]choice[Action]{
			{5, KillHandler},
			{2, KillHost},
			{2, KillBoth},
			{1, InterruptHost},
			{1, TerminateHost},
			{2, StorageDown},
			{2, StorageBusy},
		},
		[]choice[Action]{
			{2, Answer500},
			{2, Answer503},
			{1, HangRequest},
			{2, ResetRequest},
			{2, SlowRequest},
			{2, RestartStorage},
			{2, BadDeploy},
		},
	),
	AfterWrite: {
		{5, KillHandler},
		{2, KillHost},
		{2, KillBoth},
		{1, InterruptHost},
		{3, LoseAnswer},
		{1, WithholdAnswer},
		{1, RestartStorage},
	},
	BeforeDelete: slices.Concat(
		[]choice[Action]{
			{3, KillHandler},
			{3, KillHost},
			{3, KillBoth},
			{1, InterruptHost},
			{1, TerminateHost},
			{1, StorageDown},
			{1, StorageBusy},
		},
		[]choice[Action]{{1, Answer500}, {1, Answer503}, {2, ResetRequest}, {1, SlowRequest}, {1, RestartStorage}},
	),
	AfterDelete: {{2, KillHost}, {2, KillBoth}, {2, LoseAnswer}},
}

// requestLimit is longer than the 10 s that the handler waits for one request to storage.
const requestLimit = 12 * time.Second

// lengths are how long faults last, from and to; the others are over at once.
var lengths = map[Action][2]time.Duration{
	SlowRequest:    {200 * time.Millisecond, 2 * time.Second},
	StorageDown:    {time.Second, 5 * time.Second},
	StorageBusy:    {time.Second, 5 * time.Second},
	RefuseCalls:    {500 * time.Millisecond, 3 * time.Second},
	HangRequest:    {requestLimit, requestLimit + 1},
	WithholdAnswer: {requestLimit, requestLimit + 1},
	BadDeploy:      {time.Second, 4 * time.Second},
}

func newFault(r *rand.Rand, m Message) Fault {
	points := []choice[Point]{{1, Leased}, {4, BeforeDelete}, {1, AfterDelete}}
	if m.Outcome != Malformed {
		points = append(points, choice[Point]{2, BeforeCall}, choice[Point]{3, DuringCall}, choice[Point]{3, AfterCall})
	}
	if m.Writes() {
		points = append(points, choice[Point]{7, BeforeWrite}, choice[Point]{5, AfterWrite})
	}
	f := Fault{Point: draw(r, points), ID: m.ID}
	f.Action = draw(r, actions[f.Point])
	write := f.Point == BeforeWrite || f.Point == AfterWrite
	switch {
	case m.Callbacks != nil && r.IntN(2) == 0:
		f.ID += CallbackSuffix
	case write && len(m.Answers) > 2:
		f.Skip = r.IntN(2)
	case !write && len(m.Answers) > 1:
		f.Skip = r.IntN(len(m.Answers))
	}
	if length, ok := lengths[f.Action]; ok {
		f.Length = length[0] + time.Duration(r.Int64N(int64(length[1]-length[0])))
	}
	if f.Action == BadDeploy {
		f.End = draw(r, []choice[Action]{
			{2, InterruptHost},
			{2, TerminateHost},
			{2, KillHost},
			{1, KillBoth},
			{1, KillHandler},
		})
	}
	return f
}

// choice is a value and its weight.
type choice[T any] struct {
	weight int
	value  T
}

func draw[T any](r *rand.Rand, choices []choice[T]) T {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := r.IntN(sum)
	for _, c := range choices {
		n -= c.weight
		if n < 0 {
			return c.value
		}
	}
	panic("no choice")
}
