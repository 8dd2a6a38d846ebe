package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/queue"
)

// RescheduleMode is how a message is rescheduled.
type RescheduleMode string

// The modes.
const (
	// RescheduleEnqueue writes a successor; the host deletes the original.
	RescheduleEnqueue RescheduleMode = "enqueue"
	// RescheduleUpdate re-schedules the message in place: its receipt changes with that, so the host cannot
	// delete it. Where that is not safe, a successor is written as in mode enqueue.
	RescheduleUpdate RescheduleMode = "update"
)

// Lease is the host's hold on a message, as it was when the message was handed over. The zero value is
// none. Only what the host itself says belongs in it: whoever can forge one can overwrite messages.
type Lease struct {
	ID, PopReceipt string
	DequeueCount   int64
	ExpiresAt      time.Time
}

// outage is for how long nobody may come for a message, once it is due, without its being lost.
const outage = 24 * time.Hour

// Updatable reports whether the message can be re-scheduled in place until it is due. Otherwise only a
// successor is safe, because it starts with dequeue count 0 and never expires:
//   - after maxDequeueCount deliveries the host moves a message to the poison queue, however they ended.
//     The last two are kept for deliveries that fail; so the host never does that to one that was updated,
//     even when we cannot tell it that it was.
//   - an update does not change when the message expires.
func (l Lease) Updatable(maxDequeueCount int64, due time.Time) bool {
	return l.ID != "" && l.PopReceipt != "" &&
		l.DequeueCount > 0 && l.DequeueCount < maxDequeueCount-1 &&
		due.Add(outage).Before(l.ExpiresAt)
}

// reschedule makes the message due again after its delay. It returns a mode only in mode update.
func (s *Settler) reschedule(ctx context.Context, w decision.Write, lease Lease) (RescheduleMode, error) {
	if !s.NeedsLease() {
		return "", s.put(ctx, w)
	}
	if due := time.Now().Add(w.Delay); lease.Updatable(s.maxDequeueCount, due) {
		updated, err := s.update(ctx, w, lease, due)
		if updated || err != nil {
			return RescheduleUpdate, err
		}
		w.Delay = time.Until(due)
	}
	return RescheduleEnqueue, s.put(ctx, w)
}

// update re-schedules the message in place. It reports false when storage says that it did not, and an
// error when we cannot know.
//
// A receipt is good for one update only, so at most one try is ever done, however late it arrives. What
// a try's answer means depends on those before it:
//
//   - The first try says that the receipt is stale: nothing was done. After five minutes the host renews
//     its lease and so has a newer receipt, with which it will delete the message: there must be a
//     successor. (If its lease ended, and somebody else has the message, there are two, as in mode enqueue.)
//   - The first try is refused: nothing was done either.
//   - A later try says that it is stale or refused: an earlier one, whose answer we did not get, may have
//     been done. A successor could then be a second message; to call it settled could lose it, if it was
//     the host that renewed its lease. An error is right in both cases: the host then makes the message
//     visible again, with the receipt that it has. If we were first, storage refuses that, the host does
//     not mind, and our schedule stands; if not, the host's does.
//   - There is no queue: the message went with it, and only a successor can bring it back.
func (s *Settler) update(ctx context.Context, w decision.Write, lease Lease, due time.Time) (updated bool, err error) {
	text := s.encoding.Encode(w.Content)
	tries := 0
	err = queue.Persist(ctx, tryTimeout, func(ctx context.Context) error {
		tries++
		_, err := s.store.Update(ctx, w.Queue, lease.ID, lease.PopReceipt, text, max(time.Until(due), 0))
		return err
	}, queue.ErrStale, queue.ErrRefused, queue.ErrNoQueue)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, queue.ErrNoQueue):
		return false, nil
	case !errors.Is(err, queue.ErrStale) && !errors.Is(err, queue.ErrRefused):
		return false, err
	case tries > 1:
		return false, fmt.Errorf("a try that got no answer may have put it back: %w", err)
	}
	return false, nil
}
