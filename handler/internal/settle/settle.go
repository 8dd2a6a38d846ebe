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

// Settle writes what a decision asks for and returns when storage has acknowledged it. The lease may be zero
// unless [Settler.NeedsLease]. The mode says how the message was rescheduled; it is empty unless the settler's
// mode is update. Settle does not stop when ctx is cancelled, but after [Timeout]: otherwise the host would
// repeat a call that was made. After an error nothing is known to have been written, and the host must keep
// the message.
func (s *Settler) Settle(ctx context.Context, w decision.Write, lease Lease) (RescheduleMode, error) {
	if w.Problem != nil {
		return "", fmt.Errorf("%s to %q: %w", w.Action, w.Queue, w.Problem)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	switch w.Action {
	case decision.Reschedule:
		return s.reschedule(ctx, w, lease)
	case decision.Callback, decision.DeadLetter:
		return "", s.put(ctx, w)
	case decision.Finish, decision.Drop, decision.Fault:
		return "", nil
	case decision.Call:
	}
	return "", fmt.Errorf("action %q does not end a message", w.Action)
}

// put writes a message that is visible when it is due. A write whose acknowledgement got lost is written
// again: twice is the price of never being lost. What the write takes is not added to the delay, or a last
// attempt would come after the deadline.
func (s *Settler) put(ctx context.Context, w decision.Write) error {
	item := queue.Item{Text: s.encoding.Encode(w.Content)}
	due := time.Now().Add(w.Delay)
	return queue.Persist(ctx, tryTimeout, func(ctx context.Context) error {
		item.Delay = max(time.Until(due), 0)
		_, err := s.store.Put(ctx, w.Queue, item)
		if !errors.Is(err, queue.ErrNoQueue) {
			return err
		}
		if err := s.store.Create(ctx, w.Queue); err != nil {
			return err
		}
		_, err = s.store.Put(ctx, w.Queue, item)
		return err
	}, queue.ErrRefused)
}
