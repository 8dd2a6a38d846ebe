// Package settle writes what must exist before the host may delete a message: the successor, the
// callback or the dead letter that a decision asks for. It is the one place that writes to queues on
// the way of a message.
package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/queue"
)

// Timeout is how long one settle write is tried in all: storage fails over within a minute. With the call's
// 120 s it stays below the host's functionTimeout, which start-up checks.
const Timeout = time.Minute

// tryTimeout lets a write that hangs be tried again.
const tryTimeout = 10 * time.Second

// Store is the part of a queue account that settling needs.
type Store interface {
	Create(ctx context.Context, queue string) error
	Put(ctx context.Context, queue string, item queue.Item) (queue.Message, error)
	Update(ctx context.Context, queue, id, popReceipt string, text string, delay time.Duration) (string, error)
}

// Settler settles messages. It is safe for concurrent use.
type Settler struct {
	store    Store
	encoding queue.Encoding
	mode     RescheduleMode
	// maxDequeueCount is the host's.
	maxDequeueCount int64
}

// New returns a settler that encodes what it writes as the host will decode it, and puts messages back
// by writing a successor.
func New(store Store, encoding queue.Encoding) *Settler {
	return &Settler{store: store, encoding: encoding, mode: RescheduleEnqueue}
}

// WithReschedule returns a settler that puts messages back in the given mode, for a host with the given
// maxDequeueCount.
func (s *Settler) WithReschedule(mode RescheduleMode, maxDequeueCount int64) *Settler {
	changed := *s
	changed.mode, changed.maxDequeueCount = mode, maxDequeueCount
	return &changed
}

// MaxContentBytes is the size of the largest content that it can write.
func (s *Settler) MaxContentBytes() int { return s.encoding.MaxContentBytes() }

// NeedsLease reports whether it looks at the lease of a message.
func (s *Settler) NeedsLease() bool { return s.mode == RescheduleUpdate }

// Message is what is settled.
type Message struct {
	// Queue is where it came from: the successor and the callback go there, the dead letter to its
	// poison queue.
	Queue string
	// Content is the message as it came. Envelope is what it holds, nil when that is malformed.
	Content  []byte
	Envelope *envelope.Envelope
	// Lease may be zero unless the settler needs it.
	Lease Lease
}

// Written tells what the decision does not: how it was carried out.
type Written struct {
	// LeftOut names what had no room; empty when all of it had.
	LeftOut string
	// Reschedule is how the message was rescheduled in mode update; empty in mode enqueue, or when it was not.
	Reschedule RescheduleMode
}

// Settle does what the decision asks for and returns when storage has acknowledged it. It goes on when ctx is
// cancelled, for at most [Timeout]: the host would otherwise repeat a call that was made. When it returns an
// error nothing that it knows of has been written, and the host must keep the message.
func (s *Settler) Settle(ctx context.Context, m Message, d decision.Decision, now time.Time) (Written, error) {
	switch d.Action {
	case decision.Reschedule:
		return s.successor(ctx, m, d)
	case decision.Callback:
		return s.callback(ctx, m, d, now)
	case decision.DeadLetter:
		return s.deadLetter(ctx, m, d, now)
	case decision.Finish, decision.Drop, decision.Fault:
		return Written{}, nil
	case decision.Call:
	}
	return Written{}, fmt.Errorf("action %q is no end of a message", d.Action)
}

// patiently is the time for what is written.
func patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), Timeout)
}

func (s *Settler) successor(ctx context.Context, m Message, d decision.Decision) (Written, error) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	content, err := m.Envelope.WithState(d.State).Successor(s.MaxContentBytes())
	if err != nil {
		return Written{}, fmt.Errorf("reschedule to %s: %w", m.Queue, err)
	}
	mode, err := s.reschedule(ctx, m, content.Bytes, time.Now().Add(d.Delay))
	return Written{LeftOut: content.LeftOut, Reschedule: mode}, err
}

func (s *Settler) callback(ctx context.Context, m Message, d decision.Decision, now time.Time) (Written, error) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	content, err := m.Envelope.CallbackWith(d.Report(now), s.MaxContentBytes())
	if err != nil {
		return Written{}, fmt.Errorf("callback to %s: %w", m.Queue, err)
	}
	return Written{LeftOut: content.LeftOut}, s.put(ctx, m.Queue, content.Bytes, time.Now())
}

// deadLetter writes the envelope with its reason or, where there is no envelope, the message untouched.
func (s *Settler) deadLetter(ctx context.Context, m Message, d decision.Decision, now time.Time) (Written, error) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	poison, ok := queue.PoisonName(m.Queue)
	if !ok {
		return Written{}, fmt.Errorf("dead-letter from %s: there is no poison queue for a queue of that name", m.Queue)
	}
	if m.Envelope == nil {
		return Written{}, s.put(ctx, poison, m.Content, time.Now())
	}
	content, err := m.Envelope.WithState(d.State).DeadLettered(d.DeadLetter(m.Queue, now), s.MaxContentBytes())
	if err != nil {
		return Written{}, fmt.Errorf("dead-letter to %s: %w", poison, err)
	}
	return Written{LeftOut: content.LeftOut}, s.put(ctx, poison, content.Bytes, time.Now())
}

// put writes a message that is visible when it is due. A write whose acknowledgement got lost is written
// again: twice is the price of never being lost. What the write takes is not added to the delay, or a last
// attempt would come after the deadline.
func (s *Settler) put(ctx context.Context, name string, content []byte, due time.Time) error {
	item := queue.Item{Text: s.encoding.Encode(content)}
	return queue.Persist(ctx, tryTimeout, func(ctx context.Context) error {
		item.Delay = max(time.Until(due), 0)
		_, err := s.store.Put(ctx, name, item)
		if !errors.Is(err, queue.ErrNoQueue) {
			return err
		}
		if err := s.store.Create(ctx, name); err != nil {
			return err
		}
		_, err = s.store.Put(ctx, name, item)
		return err
	}, queue.ErrRefused)
}
