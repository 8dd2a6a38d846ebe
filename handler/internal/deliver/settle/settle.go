// Package settle writes the message that must exist before the host may delete the original: the successor, the
// callback, the dead letter, or the same message in hold mode. If the host has ended, settle releases the original. No
// other package of the message flow writes to queues.
package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
)

// Timeout is how long a settle write is tried in all: storage fails over within a minute. Together with the call's
// 120 s it is shorter than the host's functionTimeout, which start-up checks.
const Timeout = time.Minute

// tryTimeout limits each try, so that a write that hangs is tried again.
const tryTimeout = 10 * time.Second

// Store is the part of a queue account that settling needs.
type Store interface {
	storage.Putter
	Update(ctx context.Context, queue, id, popReceipt string, text string, delay time.Duration) (string, error)
}

// Settler settles messages. It is safe for concurrent use.
type Settler struct {
	store    Store
	encoding storage.Encoding
	mode     RescheduleMode
	// maxDequeueCount is the host's.
	maxDequeueCount int64
	// writes has a value for each try in progress. More tries than connections would only take memory: a message takes
	// four times its content while it is written, and hundreds may have to be settled at once.
	writes chan struct{}
}

// New returns a settler that encodes messages as the host will decode them and reschedules by a successor.
func New(store Store, encoding storage.Encoding) *Settler {
	return &Settler{
		store:    store,
		encoding: encoding,
		mode:     RescheduleEnqueue,
		writes:   make(chan struct{}, storage.MaxConnections),
	}
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

// UpdatableUntil returns the time before which a message that the host has leased must be due again, so that it can be
// updated in place; zero if it cannot.
func (s *Settler) UpdatableUntil(lease Lease) time.Time {
	return lease.UpdatableUntil(s.maxDequeueCount)
}

// Settled is a message that settling has written.
type Settled struct {
	// Reschedule is how the message was rescheduled in mode update or in place; otherwise empty.
	Reschedule RescheduleMode
	// ID and PopReceipt are the message's, as storage acknowledged it; empty if none was written.
	ID, PopReceipt string
	// Repeated says that earlier tries to write the message failed: one that got no answer may have written it as well.
	Repeated bool
}

// Settle writes the message and returns when storage has acknowledged it. The lease may be zero unless the settler's
// mode is update. Settle stops after [Timeout] and not when ctx is cancelled: otherwise the host would repeat a call
// that was made. After an error, no write is known to have succeeded, and the host must keep the message.
func (s *Settler) Settle(ctx context.Context, w decision.Write, lease Lease) (Settled, error) {
	if w.Problem != nil {
		return Settled{}, fmt.Errorf("%s to %q: %w", w.Action, w.Queue, w.Problem)
	}
	switch w.Action {
	case decision.Reschedule, decision.Callback, decision.DeadLetter, decision.Hold, decision.Release:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		return s.write(ctx, w, lease)
	case decision.Finish, decision.Drop, decision.Fault:
		return Settled{}, nil
	case decision.Call:
	}
	return Settled{}, fmt.Errorf("action %q does not end a message", w.Action)
}

// put writes a message that becomes visible when it is due, and returns the number of tries. If the
// acknowledgement of a write is lost, put writes the message again: it prefers a duplicate to a loss. The time
// that the write takes is not added to the delay; otherwise a last attempt would come after the deadline.
func (s *Settler) put(ctx context.Context, w decision.Write) (put storage.Message, tries int, err error) {
	due := time.Now().Add(w.Delay)
	err = storage.Persist(ctx, tryTimeout, func(ctx context.Context) error {
		return s.inTurn(ctx, func() (err error) {
			tries++
			item := storage.Item{Text: s.encoding.Encode(w.Content), Delay: max(time.Until(due), 0)}
			put, err = storage.PutCreating(ctx, s.store, w.Queue, item)
			return err
		})
	}, storage.ErrRefused)
	return put, tries, err
}

// acceptTimeout is how long the first message of a call is tried to be written, while its sender waits.
const acceptTimeout = 4 * time.Second

// errNoAnswer means that storage may have written a message twice.
var errNoAnswer = errors.New("two writes got no answer")

// Accept writes the first message of a call, visible at once, and returns when storage has acknowledged it. It tries
// for at most 4 s, and repeats only once a write whose answer was lost: a second message is better than a sender who
// gives up, and enough. After an error, the message may nevertheless be on the queue.
func (s *Settler) Accept(ctx context.Context, queue string, content []byte) (put storage.Message, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acceptTimeout)
	defer cancel()
	lost := 0
	err = storage.Persist(ctx, acceptTimeout/2, func(ctx context.Context) error {
		return s.inTurn(ctx, func() (err error) {
			put, err = storage.PutCreating(ctx, s.store, queue, storage.Item{Text: s.encoding.Encode(content)})
			if err != nil && !storage.ExcludesWrite(err) {
				lost++
			}
			if err != nil && lost > 1 {
				err = fmt.Errorf("%w: %w", errNoAnswer, err)
			}
			return err
		})
	}, storage.ErrRefused, errNoAnswer)
	return put, err
}

// inTurn makes a try when fewer than [storage.MaxConnections] are in progress. If ctx ends before, the try is not made.
func (s *Settler) inTurn(ctx context.Context, try func() error) error {
	select {
	case s.writes <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.writes }()
	return try()
}

// RescheduleMode is how a message is rescheduled.
type RescheduleMode string

// The modes.
const (
	// RescheduleEnqueue writes a successor; the host deletes the original.
	RescheduleEnqueue RescheduleMode = "enqueue"
	// RescheduleUpdate updates the message's visibility in place. Its receipt changes, so the host cannot delete it.
	// If that is not safe, a successor is written as in mode enqueue.
	RescheduleUpdate RescheduleMode = "update"
)

// Lease is the host's lease on a message when it was delivered. The zero value means that there is none. It may only
// come from the host itself: a forged lease can overwrite messages.
type Lease struct {
	ID, PopReceipt string
	DequeueCount   int64
	// InsertedAt is when the message was written; zero if it is not known.
	InsertedAt, ExpiresAt time.Time
}

// outage is how long a message that is due can wait for a host before it expires.
const outage = 24 * time.Hour

// UpdatableUntil returns the time before which the message must be due again, so that it can be updated in place; zero
// if it cannot. Otherwise only a successor is safe, because it starts with dequeue count 0 and never expires:
//   - After maxDequeueCount deliveries the host moves a message to the poison queue, regardless of their results. The
//     last two deliveries are reserved for failures, so the host never moves a message that was updated, even if it
//     did not get our answer.
//   - An update does not change when the message expires.
func (l Lease) UpdatableUntil(maxDequeueCount int64) time.Time {
	hasReceipt := l.ID != "" && l.PopReceipt != ""
	fewDeliveries := l.DequeueCount > 0 && l.DequeueCount < maxDequeueCount-1
	if hasReceipt && fewDeliveries {
		return l.ExpiresAt.Add(-outage)
	}
	return time.Time{}
}

// write writes the message that replaces the original. It returns a mode only for a reschedule in mode update, or of a
// message that stays as it is.
func (s *Settler) write(ctx context.Context, w decision.Write, lease Lease) (settled Settled, err error) {
	if w.Action == decision.Release {
		return Settled{}, s.release(ctx, w, lease)
	}
	if w.Action == decision.Hold && w.InPlace {
		return s.holdInPlace(ctx, w, lease)
	}
	if w.Action == decision.Reschedule && (s.mode == RescheduleUpdate || w.InPlace) {
		due := time.Now().Add(w.Delay)
		if due.Before(s.UpdatableUntil(lease)) {
			receipt, updated, err := s.update(ctx, w, lease, due)
			if updated || err != nil {
				return Settled{Reschedule: RescheduleUpdate, ID: lease.ID, PopReceipt: receipt}, err
			}
			w.Delay = time.Until(due)
		}
		settled.Reschedule = RescheduleEnqueue
	}
	put, tries, err := s.put(ctx, w)
	settled.ID, settled.PopReceipt, settled.Repeated = put.ID, put.PopReceipt, tries > 1
	return settled, err
}

// release makes the message visible after its delay, unchanged. Without a lease, or if its receipt is stale, it does
// nothing: the message becomes visible when the lease ends.
func (s *Settler) release(ctx context.Context, w decision.Write, lease Lease) error {
	if lease.ID == "" || lease.PopReceipt == "" {
		return nil
	}
	if _, _, err := s.update(ctx, w, lease, time.Now().Add(w.Delay)); err != nil {
		return fmt.Errorf("release the message: %w", err)
	}
	return nil
}

// holdInPlace makes the message visible after its delay, unchanged, and never writes another one: the invocation may be
// forged, and only the host knows the receipt of a message. If the message would then expire within a day, it fails, so
// that the host moves the message to the poison queue after some deliveries.
func (s *Settler) holdInPlace(ctx context.Context, w decision.Write, lease Lease) (Settled, error) {
	due := time.Now().Add(w.Delay)
	if lease.ID == "" || lease.PopReceipt == "" || !due.Before(lease.ExpiresAt.Add(-outage)) {
		return Settled{}, errors.New("the invocation has no id or receipt, or the message would expire within a day")
	}
	receipt, updated, err := s.update(ctx, w, lease, due)
	if err == nil && !updated {
		err = errors.New("the id and the receipt of the invocation are not those of the message")
	}
	return Settled{ID: lease.ID, PopReceipt: receipt}, err
}

// update reschedules the message in place and returns its new receipt. It returns false if storage certainly did not,
// and an error if that is not known.
//
// A receipt is valid for one update, so at most one try succeeds, however late it arrives. The meaning of a failed try
// depends on the tries before it:
//
//   - The first try fails because the receipt is stale: nothing was done. After five minutes the host renews its
//     lease. It then has a newer receipt, with which it will delete the message: a successor is necessary. (If the
//     lease has ended and another consumer has the message, there are two messages, as in mode enqueue.)
//   - The first try is refused: nothing was done either.
//   - A later try is stale or refused: an earlier one without an answer may have succeeded. A successor could then be
//     a duplicate. Reporting success could lose the message, if it was the host that renewed its lease. An error is
//     right in both cases: the host then makes the message visible again with the receipt that it has. If we were
//     first, storage refuses that, the host ignores it, and our schedule remains; otherwise the host's does
//     (docs/host.md, "Retries and poison messages").
//   - The queue does not exist: the message is gone with it, and only a successor restores it.
func (s *Settler) update(
	ctx context.Context, w decision.Write, lease Lease, due time.Time,
) (receipt string, updated bool, err error) {
	tries := 0
	err = storage.Persist(ctx, tryTimeout, func(ctx context.Context) error {
		return s.inTurn(ctx, func() (err error) {
			tries++
			text := s.encoding.Encode(w.Content)
			receipt, err = s.store.Update(ctx, w.Queue, lease.ID, lease.PopReceipt, text, max(time.Until(due), 0))
			return err
		})
	}, storage.ErrStale, storage.ErrRefused, storage.ErrNoQueue)
	rejected := errors.Is(err, storage.ErrStale) || errors.Is(err, storage.ErrRefused)
	switch {
	case err == nil:
		return receipt, true, nil
	case errors.Is(err, storage.ErrNoQueue), rejected && tries == 1:
		return "", false, nil
	case rejected:
		return "", false, fmt.Errorf("an earlier try without an answer may have rescheduled the message: %w", err)
	}
	return "", false, err
}
