// Package settle writes what must exist before the host may delete a message: the successor, the
// callback or the dead letter that a decision asks for. It is the one place that writes to queues on
// the way of a message.
package settle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"asynccaller/handler/decision"
	"asynccaller/handler/envelope"
	"asynccaller/handler/queue"
)

// The time that a settle write may take. Timeout plus the call's 120 s stays below the host's
// functionTimeout, which start-up checks.
const (
	// Timeout is how long one settle write is tried in all: storage fails over within a minute.
	Timeout = time.Minute
	// tryTimeout lets a write that hangs be tried again.
	tryTimeout = 10 * time.Second
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Store is the part of a queue account that settling needs.
type Store interface {
	Create(ctx context.Context, queue string) error
	Put(ctx context.Context, queue string, item queue.Item) (queue.Message, error)
}

// Settler settles messages. It is safe for concurrent use.
type Settler struct {
	store    Store
	encoding queue.Encoding
}

// New returns a settler that encodes what it writes as the host will decode it.
func New(store Store, encoding queue.Encoding) *Settler {
	return &Settler{store: store, encoding: encoding}
}

// MaxContentBytes is the size of the largest content that it can write.
func (s *Settler) MaxContentBytes() int { return s.encoding.MaxContentBytes() }

// Message is what is settled.
type Message struct {
	// Queue is where it came from: the successor and the callback go there, the dead letter to its
	// poison queue.
	Queue string
	// Content is the message as it came. Envelope is what it holds, nil when that is malformed.
	Content  []byte
	Envelope *envelope.Envelope
}

// Settle does what the decision asks for and returns when storage has acknowledged it. The outcome is
// the latest call's. What it leaves out for lack of room it names in leftOut. It goes on when ctx is
// cancelled, for at most [Timeout]: the host would otherwise repeat a call that was made. When it
// returns an error nothing that it knows of has been written, and the host must keep the message.
func (s *Settler) Settle(ctx context.Context, m Message, d decision.Decision, o decision.Outcome, now time.Time) (leftOut string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()

	switch d.Action {
	case decision.PutBack:
		content, err := m.Envelope.WithState(d.State).PutBack(s.MaxContentBytes())
		if err != nil {
			return "", fmt.Errorf("put back to %s: %w", m.Queue, err)
		}
		return content.LeftOut, s.put(ctx, m.Queue, content.Bytes, d.Delay)
	case decision.Callback:
		content, err := m.Envelope.CallbackWith(d.Report(o, now), s.MaxContentBytes())
		if err != nil {
			return "", fmt.Errorf("callback to %s: %w", m.Queue, err)
		}
		return content.LeftOut, s.put(ctx, m.Queue, content.Bytes, 0)
	case decision.DeadLetter:
		return s.deadLetter(ctx, m, d, now)
	case decision.Finish, decision.Drop, decision.Fault:
		return "", nil
	case decision.Call:
	}
	return "", fmt.Errorf("action %q is no end of a message", d.Action)
}

// deadLetter writes the envelope with its reason or, where there is no envelope, the message untouched.
func (s *Settler) deadLetter(ctx context.Context, m Message, d decision.Decision, now time.Time) (leftOut string, err error) {
	poison, ok := queue.PoisonName(m.Queue)
	if !ok {
		return "", fmt.Errorf("dead-letter from %s: there is no poison queue for a queue of that name", m.Queue)
	}
	if m.Envelope == nil {
		return "", s.put(ctx, poison, m.Content, 0)
	}
	content, err := m.Envelope.WithState(d.State).DeadLettered(d.DeadLetter(m.Queue, now), s.MaxContentBytes())
	if err != nil {
		return "", fmt.Errorf("dead-letter to %s: %w", poison, err)
	}
	return content.LeftOut, s.put(ctx, poison, content.Bytes, 0)
}

// put writes until storage acknowledges, refuses for good, or ctx ends. A write whose acknowledgement
// got lost is written again: twice is the price of never being lost. The delay counts from now on: what
// the write takes is not added, or a last attempt would come after the deadline.
func (s *Settler) put(ctx context.Context, name string, content []byte, delay time.Duration) error {
	started := time.Now()
	item := queue.Item{Text: s.encoding.Encode(content)}
	pause := firstPause
	for {
		item.Delay = max(delay-time.Since(started), 0)
		err := s.try(ctx, name, item)
		if err == nil || errors.Is(err, queue.ErrRefused) {
			return err
		}
		select {
		case <-ctx.Done():
			return err // the last real error says more than the end of our time
		case <-time.After(pause + rand.N(pause)): //nolint:gosec // spreads load, keeps no secret
		}
		pause = min(2*pause, maxPause)
	}
}

func (s *Settler) try(ctx context.Context, name string, item queue.Item) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	_, err := s.store.Put(ctx, name, item)
	if !errors.Is(err, queue.ErrNoQueue) {
		return err
	}
	if err := s.store.Create(ctx, name); err != nil {
		return err
	}
	_, err = s.store.Put(ctx, name, item)
	return err
}
