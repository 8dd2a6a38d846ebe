// Package delivery takes one message through the handler: open it, let its call pass the gates, make the call, decide,
// settle, and tell the observers. This package contains their order.
package delivery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/storage"
)

// Message is a message that the host delivers.
type Message struct {
	decision.Message
	// IsRouted says that Content is the body of the call of the queue's route, and never an envelope.
	IsRouted bool
	// Content is the decoded content.
	Content []byte
	// Lease is the host's lease on the message; zero if it is not known or not trusted.
	Lease settle.Lease
}

// Result says how a delivery ended.
type Result struct {
	decision.Decision
	settle.Settled
	Message decision.Message
	// Identity is that of the message's envelope, or nil if the message is malformed. Tenant is the sender, and
	// RequestID the id that it gave, as far as they could be read.
	Identity  *decision.Identity
	Tenant    envelope.Tenant
	RequestID string
	// DeadlineLimited is the envelope's deadline if the operator's setting has limited it; otherwise zero.
	DeadlineLimited time.Time
	// Attempt is the number of the call that was made, or 0 if none was.
	Attempt int
	// Took is how long the call lasted.
	Took time.Duration
	// Age is how long the delivery took, from the creation of the envelope or its NotBefore to its end; zero as long as
	// it goes on.
	Age time.Duration
	// LeftOut names the parts of the envelope that had no room; empty if it was written in full.
	LeftOut string
	// NextAttemptAt is when a rescheduled message becomes due: at the time in State or, if the write took longer than
	// the delay, when storage acknowledged it.
	NextAttemptAt time.Time
	// Err says why the message could not be settled: nothing was written, and the host must keep the message.
	Err error
}

// MayDelete reports whether the host may delete the message: storage has acknowledged everything that replaces it.
func (r *Result) MayDelete() bool {
	return r.Err == nil && r.Action != decision.Fault && r.Action != decision.Release
}

// Report is what was decided about a message, before it is settled.
type Report struct {
	// Result has the decision in full, and nothing yet about the write.
	Result
	Lease  settle.Lease
	Intake *decision.Intake
	// Verdict is what came of the call; nil if it was not due.
	Verdict *decision.Verdict
	Write   decision.Write
	// World is the world in which the message was decided.
	World decision.World
}

// ErrHostGone is the cause with which [Deliverer.Stopping] ends when the Functions host has ended.
var ErrHostGone = errors.New("the Functions host has ended")

// Gate stands before a call that is due. It lets the call pass, perhaps after some seconds, or says why it is not made.
// The pass may be nil. If ctx ends, the handler stops. A pass must not keep due, nor parts of it, after the call.
type Gate interface {
	Enter(ctx context.Context, due *decision.Due) (decision.Pass, *decision.Verdict)
}

// Caller makes the call of an envelope, which it must not change. If ctx ends, the call is interrupted.
type Caller interface {
	Do(ctx context.Context, e *envelope.Envelope) decision.Outcome
}

// Observer is told what was decided about a message. It takes what it needs from the report, and keeps nothing of it:
// an envelope takes up to a MiB, and storage a minute to settle a message. What it returns, unless nil, is called with
// the result when storage has answered, before the host is told.
type Observer interface {
	Observe(r *Report) (then func(ctx context.Context, result *Result))
}

// Deliverer delivers messages. It is safe for concurrent use.
type Deliverer struct {
	Rules decision.Rules
	// Routes are the calls of queues with other contents than envelopes.
	Routes route.Routes
	// Gates are passed in their order, and Observers told in theirs.
	Gates     []Gate
	Caller    Caller
	Settler   *settle.Settler
	Observers []Observer
	// Delivered is the gate that knows which calls were delivered. It is also asked about a message whose deadline has
	// passed, which would be given up otherwise. It is nil if nothing is known.
	Delivered Gate
	// Hold is how long hold mode keeps a message before putting it back; zero delivers messages.
	Hold time.Duration
	// Forgeable says that invocations can be forged. Hold mode then only makes a message invisible whose receipt the
	// invocation has.
	Forgeable bool
	// Stopping ends when the handler is told to stop, which interrupts the calls, or with the cause [ErrHostGone].
	// Calls run in it and not in the context of the invocation, because a host that hangs up must not end them.
	Stopping context.Context //nolint:containedctx // the life of the handler, not of a call
	// Now is the clock. Jitter returns random numbers from 0 up to, not including, 1.
	Now    func() time.Time
	Jitter func() float64

	// parsing is held while a message waits to be parsed, and working while one is parsed, or decided and composed: a
	// hostile message of 48 KiB takes 6 MiB while it is parsed, and up to a MiB from then until it is composed. An
	// ordinary one takes microseconds. Those that wait to be composed have only one before them that is parsed, so few
	// of them wait.
	parsing, working sync.Mutex
	// posting is held while a post becomes an envelope. It is another one, so that posts do not delay messages.
	posting sync.Mutex
}

// Deliver takes a message from its arrival to the point where the host may delete it. It does not stop when ctx is
// cancelled: otherwise a host that hangs up could lose the result of a call.
func (d *Deliverer) Deliver(ctx context.Context, m Message) *Result {
	// not in ctx: a host that hangs up must not end it
	pause := func() { storage.Sleep(d.Stopping, d.Hold) }
	if !d.Forgeable {
		pause() // before parsing: an envelope can take much more memory than its message
		return d.deliver(ctx, m)
	}
	result := d.deliver(ctx, m)
	m.Content = nil // a forgery must not take memory while it waits
	pause()
	return result
}

// deliver delivers a message that hold mode does not let wait.
func (d *Deliverer) deliver(ctx context.Context, m Message) *Result {
	var passed passes
	defer func() { passed.released(d.Now()) }() // also after a panic
	in, world := d.open(&m)
	in.CheckBody() // takes little memory, but up to some milliseconds: others are parsed meanwhile
	verdict := d.verdict(&m, &in, world, &passed)
	if verdict != nil {
		world.Now = d.Now()
	}
	result, write, then := d.decide(&m, &in, verdict, world)
	write.InPlace = write.InPlace || d.Forgeable
	lease := m.Lease
	if write.Queue != m.Queue { // only on its own queue can a message be updated
		lease = settle.Lease{}
	}
	result.Settled, result.Err = d.Settler.Settle(ctx, write, lease)
	result.NextAttemptAt = result.State.NextAttemptAt
	if now := d.Now(); result.NextAttemptAt.Before(now) {
		result.NextAttemptAt = now
	}
	for _, tell := range then {
		tell(ctx, result)
	}
	return result
}

// errNoRoute is why a message of a function of a route is not delivered. Start-up does not allow that.
var errNoRoute = errors.New("the queue has no route")

// open reads the content of a message as an envelope or, on the queue of a route, as the body of its call.
func (d *Deliverer) open(m *Message) (in decision.Intake, w decision.World) {
	d.parsing.Lock()
	defer d.parsing.Unlock()
	d.working.Lock()
	defer d.working.Unlock()
	now := d.Now()
	w = decision.World{
		Arrived: now, Now: now, Jitter: d.Jitter(), Hold: d.Hold > 0, HostGone: d.isHostGone(),
		UpdatableUntil: d.Settler.UpdatableUntil(m.Lease),
	}
	limit := d.Settler.MaxContentBytes()
	if !m.IsRouted {
		return d.Rules.OpenUnchecked(m.Content, m.ID, limit, now), w
	}
	to, hasRoute := d.Routes[m.Queue]
	if !hasRoute { // in hold mode, routes.json may be invalid
		return decision.Intake{Content: m.Content, Limit: limit, Malformed: errNoRoute}, w
	}
	a := route.Arrival{Content: m.Content, MessageID: m.ID, InsertedAt: m.Lease.InsertedAt}
	if a.InsertedAt.IsZero() || a.InsertedAt.After(now) {
		a.InsertedAt = now
	}
	return d.Rules.OpenRouted(to, a, m.DequeueCount, limit, now), w
}

// isHostGone reports whether the Functions host has ended.
func (d *Deliverer) isHostGone() bool { return errors.Is(context.Cause(d.Stopping), ErrHostGone) }

// verdict returns what came of the call of a message that is due, or of the earlier one of a message whose deadline has
// passed; nil if there was none.
func (d *Deliverer) verdict(
	m *Message, in *decision.Intake, w decision.World, passed *passes,
) (v *decision.Verdict) {
	switch {
	case d.Rules.IsDue(in, w):
		v = d.attempt(m, in, w, passed)
	case d.Delivered != nil && d.Rules.IsExpired(in, w):
		_, v = d.Delivered.Enter(d.Stopping, d.due(m, in, w))
	}
	return v
}

// attempt makes the call of a message if every gate lets it pass, and returns what came of it.
func (d *Deliverer) attempt(
	m *Message, in *decision.Intake, w decision.World, passed *passes,
) *decision.Verdict {
	due := d.due(m, in, w)
	for _, gate := range d.Gates {
		pass, verdict := gate.Enter(d.Stopping, due)
		if verdict != nil {
			passed.ended(nil, d.Now())
			return verdict
		}
		passed.add(pass)
	}
	outcome := d.Caller.Do(d.Stopping, made(in))
	passed.ended(&outcome, d.Now())
	return &decision.Verdict{Outcome: &outcome}
}

// due returns the call of a message for the gates.
func (d *Deliverer) due(m *Message, in *decision.Intake, w decision.World) *decision.Due {
	due := d.Rules.DueCall(in, w)
	due.Message, due.First = m.Message, isFirst(m, in)
	return &due
}

// made returns the envelope with the call as it is made.
func made(in *decision.Intake) *envelope.Envelope {
	if in.Moved == nil {
		return in.Envelope
	}
	e := *in.Envelope
	e.Call = *in.Moved
	return &e
}

// isFirst reports whether the call of a message cannot have been made before: its id is that of its message, which the
// host has received for the first time.
func isFirst(m *Message, in *decision.Intake) bool {
	return m.Lease.DequeueCount == 1 && cmp.Or(in.RequestID, m.Lease.ID) == m.Lease.ID
}

// decide decides about a message, composes what must be written, and lets the observers see it. The result has nothing
// that takes memory: hundreds of messages may wait for storage.
func (d *Deliverer) decide(
	m *Message, in *decision.Intake, v *decision.Verdict, w decision.World,
) (result *Result, write decision.Write, then []func(context.Context, *Result)) {
	d.working.Lock()
	defer d.working.Unlock()
	w.Jitter, w.HostGone = d.Jitter(), d.isHostGone()
	r := &Report{Lease: m.Lease, Intake: in, Verdict: v, World: w}
	r.Decision = d.Rules.Decide(in, v, w)
	r.Message, r.Identity, r.Tenant, r.RequestID = m.Message, in.Identity(), in.Tenant, in.RequestID
	if v != nil && v.Outcome != nil {
		r.Attempt, r.Took = in.Envelope.Attempts+1, v.Outcome.Took
	}
	if e := in.Envelope; e != nil {
		if e.DeadlineLimited {
			r.DeadlineLimited = e.Deadline
		}
		if r.Action.Ends() {
			r.Age = w.Now.Sub(e.BeginsAt())
		}
	}
	r.Write = d.Rules.Compose(*in, r.Decision, m.Queue, w.Now)
	r.LeftOut, write = r.Write.LeftOut, r.Write
	then = make([]func(context.Context, *Result), 0, len(d.Observers))
	for _, observer := range d.Observers {
		tell := observer.Observe(r)
		if tell != nil {
			then = append(then, tell)
		}
	}
	r.State.Latest, r.State.Trail = nil, nil
	r.Intake, r.Verdict, r.Write = nil, nil, decision.Write{}
	return &r.Result, write, then
}

// passes are the gates that have let a call pass.
type passes struct {
	passed  []decision.Pass
	isEnded bool
	// first has room for the passes of a usual message.
	first [6]decision.Pass
}

func (p *passes) add(pass decision.Pass) {
	if p.passed == nil {
		p.passed = p.first[:0]
	}
	if pass != nil {
		p.passed = append(p.passed, pass)
	}
}

// ended tells the gates, the last one first, that the call has ended, or is not made.
func (p *passes) ended(o *decision.Outcome, at time.Time) {
	p.isEnded = true
	for _, pass := range slices.Backward(p.passed) {
		pass.Ended(o, at)
	}
}

// released tells the gates that the message is settled, or has failed.
func (p *passes) released(at time.Time) {
	if !p.isEnded {
		p.ended(nil, at)
	}
	for _, pass := range slices.Backward(p.passed) {
		pass.Released(at)
	}
}
