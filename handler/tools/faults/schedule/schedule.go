// Package schedule plans what happens in a run: messages, what their targets answer, and when which part
// fails. Everything follows from a seed; nothing here acts.
package schedule

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Schedule is a batch of messages and the faults that strike while they are delivered.
type Schedule struct {
	Messages []Message
	Faults   []Fault
}

// Message is one message and its fate.
type Message struct {
	ID       string
	Format   Format
	Priority bool // it goes to a priority queue
	Outcome  Outcome
	// Answers are the target's to the first attempt, the second and so on; the last one repeats.
	// Callbacks are the sender's, when it wants to be told.
	Answers, Callbacks []Word
	// Deadline is counted from when the message is put on the queue; 0 is the default.
	Deadline time.Duration
}

// CallbackSuffix makes the id of a callback out of a message's. It is the one that native callbacks have.
const CallbackSuffix = ".callback"

// Writes reports whether the handler has to write anything to settle the message.
func (m Message) Writes() bool { return len(m.Answers) != 1 || m.Outcome != Delivered }

// Format is what a message is written in.
type Format string

// The formats.
const (
	Native Format = "native"
	Nexus  Format = "nexus"
)

// Outcome is how a message must end.
type Outcome string

// The outcomes.
const (
	Delivered    Outcome = "delivered"
	ToldOK       Outcome = "delivered, sender told"
	ToldRejected Outcome = "rejected, sender told"
	ToldExpired  Outcome = "expired, sender told"
	Rejected     Outcome = "rejected, dead letter"
	Expired      Outcome = "expired, dead letter"
	Malformed    Outcome = "malformed, dead letter untouched"
)

// Word is an answer: a status, or one of those below.
type Word string

// The ways to answer badly. Those that end with a status count as that answer, though not all of it comes.
const (
	Reset       Word = "reset"         // the connection is reset, no byte of an answer
	Close       Word = "close"         // the connection is closed, no byte of an answer
	Hang        Word = "hang"          // no answer
	HalfHead    Word = "half head"     // the connection is closed within the header
	HalfBody503 Word = "half body 503" // the connection is closed within the body
	HalfBody200 Word = "half body 200"
	Garbage     Word = "garbage"   // what is no HTTP
	DripHead    Word = "drip head" // 1 byte a second
	DripBody200 Word = "drip 200"  // 1 byte of the body a second
	Huge200     Word = "huge 200"  // 1 GiB
)

// Status is the status that the handler sees, 0 for none.
func (w Word) Status() int {
	switch w {
	case Reset, Close, Hang, HalfHead, Garbage, DripHead:
		return 0
	case HalfBody503:
		return 503
	case HalfBody200, DripBody200, Huge200:
		return 200
	}
	status := 0
	_, _ = fmt.Sscan(string(w), &status)
	return status
}

// Point is a moment on the way of a message.
type Point string

// The points, in order.
const (
	Leased       Point = "leased"        // storage has leased it to the host, which does not know yet
	BeforeCall   Point = "before call"   // the call has left the handler; the target does not know yet
	DuringCall   Point = "during call"   // the target has the call, and has not answered
	AfterCall    Point = "after call"    // the target has answered
	BeforeWrite  Point = "before write"  // the settle write has left the handler; storage does not have it
	AfterWrite   Point = "after write"   // storage has the settle write; the handler does not know yet
	BeforeDelete Point = "before delete" // the handler has answered; the host's delete has not reached storage
	AfterDelete  Point = "after delete"  // storage has deleted it; the host does not know yet
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
	LoseAnswer     Action = "acknowledgement lost"     // storage has done it
	WithholdAnswer Action = "acknowledgement withheld" // until the client has given up
	StorageAway    Action = "storage away"             // every connection is reset
	StorageBusy    Action = "storage busy"             // every request is answered with 503
	RestartStorage Action = "storage restarted"
	RefuseCalls    Action = "target refuses"
)

// Fault is an action that strikes when a message comes to a point.
type Fault struct {
	Point  Point
	Action Action
	// ID is the message's, or that of its callback.
	ID string
	// Skip is how often the message passes the point before.
	Skip int
	// For is how long it lasts, where it lasts.
	For time.Duration
}

// How much is in a schedule.
const (
	minMessages, maxMessages = 6, 10
	minFaults, maxFaults     = 1, 4
)

// Withheld is how long a hanging request and an answer withheld last: beyond the 10 s of one try.
const Withheld = 12 * time.Second

// New makes the schedule with a number, always the same for a seed.
func New(seed uint64, number int) Schedule {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	var s Schedule
	for i := range minMessages + r.IntN(maxMessages-minMessages+1) {
		s.Messages = append(s.Messages, newMessage(r, fmt.Sprintf("s%d-m%d", number, i)))
	}
	for range minFaults + r.IntN(maxFaults-minFaults+1) {
		s.Faults = append(s.Faults, newFault(r, s.Messages[r.IntN(len(s.Messages))]))
	}
	return s
}

// Outage is the schedule in which storage is away for longer than a settle write is tried.
func Outage(seed uint64, number int) Schedule {
	s := New(seed, number)
	for i := range s.Messages {
		m := &s.Messages[i]
		if m.Deadline == 0 && m.Outcome != Malformed {
			m.Answers = append([]Word{"503"}, m.Answers...)
		}
	}
	s.Faults = []Fault{{Point: BeforeWrite, Action: StorageAway, ID: s.Messages[0].ID, For: 65 * time.Second}}
	s.Messages[0].Outcome, s.Messages[0].Answers, s.Messages[0].Callbacks = Delivered, []Word{"503", "200"}, nil
	s.Messages[0].Deadline = 0
	return s
}

func newMessage(r *rand.Rand, id string) Message {
	m := Message{ID: id, Format: pick(r, Native, Nexus), Priority: r.IntN(3) == 0}
	m.Outcome = weighted(r, []choice[Outcome]{
		{8, Delivered}, {4, ToldOK}, {2, ToldRejected}, {1, ToldExpired}, {2, Rejected}, {1, Expired}, {1, Malformed},
	})
	switch m.Outcome {
	case Delivered, ToldOK:
		m.Answers = append(failures(r), weighted(r, []choice[Word]{
			{12, "200"}, {3, "204"}, {1, HalfBody200}, {1, DripBody200}, {1, Huge200},
		}))
	case Rejected, ToldRejected:
		m.Answers = append(failures(r), "400")
	case Expired, ToldExpired:
		m.Answers, m.Deadline = []Word{"503"}, 3*time.Second
	case Malformed:
	}
	switch m.Outcome {
	case ToldOK, ToldRejected, ToldExpired:
		m.Callbacks = append(failures(r), "200")
	case Delivered, Rejected, Expired, Malformed:
	}
	return m
}

// failures are answers after which the call is made again: none to three.
func failures(r *rand.Rand) (words []Word) {
	for range weighted(r, []choice[int]{{4, 0}, {4, 1}, {2, 2}, {1, 3}}) {
		words = append(words, weighted(r, []choice[Word]{
			{6, "503"},
			{2, "429"},
			{2, "404"},
			{2, Reset},
			{2, Close},
			{1, Hang},
			{2, HalfHead},
			{2, HalfBody503},
			{2, Garbage},
			{1, DripHead},
		}))
	}
	return words
}

// actions are the faults that can strike at a point.
var actions = map[Point][]choice[Action]{
	Leased:      {{2, KillHandler}, {2, KillHost}, {2, KillBoth}, {1, InterruptHost}, {2, LoseAnswer}},
	BeforeCall:  {{4, KillHandler}, {1, KillHost}, {2, KillBoth}, {1, InterruptHost}, {1, TerminateHost}, {2, RefuseCalls}},
	DuringCall:  {{4, KillHandler}, {1, KillHost}, {2, KillBoth}, {2, InterruptHost}, {2, TerminateHost}, {1, StorageAway}},
	AfterCall:   {{4, KillHandler}, {1, KillHost}, {2, KillBoth}, {1, InterruptHost}, {1, StorageAway}, {1, StorageBusy}, {2, RefuseCalls}},
	BeforeWrite: {{5, KillHandler}, {2, KillHost}, {2, KillBoth}, {1, InterruptHost}, {1, TerminateHost}, {2, Answer500}, {2, Answer503}, {1, HangRequest}, {2, ResetRequest}, {2, SlowRequest}, {2, StorageAway}, {2, StorageBusy}, {2, RestartStorage}},
	AfterWrite:  {{5, KillHandler}, {2, KillHost}, {2, KillBoth}, {1, InterruptHost}, {3, LoseAnswer}, {1, WithholdAnswer}, {1, RestartStorage}},
	BeforeDelete: {
		{3, KillHandler},
		{3, KillHost},
		{3, KillBoth},
		{1, InterruptHost},
		{1, TerminateHost},
		{1, Answer500},
		{1, Answer503},
		{2, ResetRequest},
		{1, SlowRequest},
		{1, StorageAway},
		{1, StorageBusy},
		{1, RestartStorage},
	},
	AfterDelete: {{2, KillHost}, {2, KillBoth}, {2, LoseAnswer}},
}

func newFault(r *rand.Rand, m Message) Fault {
	points := []choice[Point]{{1, Leased}, {4, BeforeDelete}, {1, AfterDelete}}
	if m.Outcome != Malformed {
		points = append(points, choice[Point]{2, BeforeCall}, choice[Point]{3, DuringCall}, choice[Point]{3, AfterCall})
	}
	if m.Writes() {
		points = append(points, choice[Point]{7, BeforeWrite}, choice[Point]{5, AfterWrite})
	}
	f := Fault{Point: weighted(r, points), ID: m.ID}
	f.Action = weighted(r, actions[f.Point])
	callback := m.Callbacks != nil && r.IntN(2) == 0
	switch {
	case f.Point == BeforeWrite || f.Point == AfterWrite:
		if callback { // a callback's id is written when the callback is
			f.ID += CallbackSuffix
		} else if len(m.Answers) > 2 {
			f.Skip = r.IntN(2)
		}
	case callback:
		f.ID += CallbackSuffix
	case len(m.Answers) > 1:
		f.Skip = r.IntN(len(m.Answers))
	}
	f.For = f.Action.length(r)
	return f
}

// length draws how long a fault lasts.
func (a Action) length(r *rand.Rand) time.Duration {
	between := func(from, to time.Duration) time.Duration {
		return from + time.Duration(r.Int64N(int64(to-from))).Round(time.Millisecond)
	}
	switch a {
	case SlowRequest:
		return between(200*time.Millisecond, 2*time.Second)
	case StorageAway, StorageBusy:
		return between(time.Second, 5*time.Second)
	case RefuseCalls:
		return between(500*time.Millisecond, 3*time.Second)
	case HangRequest, WithholdAnswer:
		return Withheld
	case KillHandler, KillHost, KillBoth, InterruptHost, TerminateHost, Answer500, Answer503, ResetRequest, LoseAnswer, RestartStorage:
	}
	return 0
}

// choice is a value and how often it comes, compared with the others.
type choice[T any] struct {
	weight int
	value  T
}

func weighted[T any](r *rand.Rand, choices []choice[T]) T {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	n := r.IntN(sum)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c.value
		}
	}
	panic("no choice")
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }
