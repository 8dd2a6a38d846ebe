// Package settle writes the message that must exist before the host may delete the original: the successor, the
// callback or the dead letter. No other package of the message flow writes to queues.
package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/queue"
)

// Timeout is how long a settle write is tried in all: storage fails over within a minute. Together with the call's
// 120 s it is shorter than the host's functionTimeout, which start-up checks.
const Timeout = time.Minute

// tryTimeout limits each try, so that a write that hangs is tried again.
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

// New returns a settler that encodes messages as the host will decode them and reschedules by a successor.
func New(store Store, encoding queue.Encoding) *Settler {
	return &Settler{store: store, encoding: encoding, mode: RescheduleEnqueue}
}

// WithReschedule returns a settler that reschedules messages in the given mode, for a host with the given
// maxDequeueCount.
func (s *Settler) WithReschedule(mode RescheduleMode, maxDequeueCount int64) *Settler {
	changed := *s
	changed.mode, changed.maxDequeueCount = mode, maxDequeueCount
	return &changed
}

// MaxContentBytes returns the size of the largest content that the settler can write.
func (s *Settler) MaxContentBytes() int { return s.encoding.MaxContentBytes() }

// NeedsLease reports whether the settler uses the lease of a message.
func (s *Settler) NeedsLease() bool { return s.mode == RescheduleUpdate }

// Settle writes the message and returns when storage has acknowledged it. The lease may be zero unless
// [Settler.NeedsLease] reports true. The mode says how the message was rescheduled; it is empty unless the settler's
// mode is update. Settle stops after [Timeout] and not when ctx is cancelled: otherwise the host would repeat a call
// that was made. After an error, no write is known to have succeeded, and the host must keep the message.
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

// put writes a message that becomes visible when it is due. If the acknowledgement of a write is lost, put writes the
// message again: it prefers a duplicate to a loss. The time that the write takes is not added to the delay; otherwise
// a last attempt would come after the deadline.
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
