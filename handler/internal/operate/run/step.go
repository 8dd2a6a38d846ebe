package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
)

const (
	// ClaimTime is how long a claim lasts, and therefore how long a plan reserves its messages.
	ClaimTime = 5 * time.Minute
	// minClaim is what must be left of a claim before a message is written: time for the write and for the deletion,
	// with their retries. Only the claim of a message that expires is shorter.
	minClaim = 2 * time.Minute
)

var (
	// errLeft means that the step stays as it is, because the receipt of its message is out of date.
	errLeft = errors.New("the receipt of the message is out of date")
	// errInterrupted means that the run ended before it was the step's turn.
	errInterrupted = errors.New("interrupted")
)

// answer is the answer to an operation. Repeated says that an earlier try got none, so that it may have been
// carried out.
type answer[T any] struct {
	value    T
	err      error
	repeated bool
	// sent is when the last try was sent, by the wall clock: claims go on while this machine sleeps.
	sent time.Time
}

// ask carries out an operation to its end, even if ctx ends, with retries until the given time, if there is one, and no
// longer than the patience of the engine and of [storage.Retry].
func ask[T any](
	ctx context.Context, e *Engine, until time.Time, operation func(context.Context) (T, error),
) (a answer[T]) {
	ctx = context.WithoutCancel(ctx)
	if e.Patience > 0 {
		patient, cancel := context.WithTimeout(ctx, e.Patience)
		defer cancel()
		ctx = patient
	}
	if !until.IsZero() {
		limited, cancel := context.WithTimeout(ctx, time.Until(until))
		defer cancel()
		ctx = limited
	}
	tries := 0
	a.value, a.err = storage.Retry(ctx, func(ctx context.Context) (T, error) {
		tries++
		a.sent = storage.WallTime()
		return operation(ctx)
	})
	a.repeated = tries > 1
	return a
}

// refused reports whether storage has refused the operation for good. Any other error means that there is no answer.
func (a answer[T]) refused() bool {
	return errors.Is(a.err, storage.ErrStale) || errors.Is(a.err, storage.ErrRefused) ||
		errors.Is(a.err, storage.ErrNoQueue)
}

// claimLasts reports whether a claim lasts for the given time.
func claimLasts(p journal.Progress, d time.Duration) bool {
	return p.Until.After(storage.WallTime().Add(d))
}

// writeDeadline returns the time until which a message may be written: half of what is left of the claim is for the
// deletion.
func writeDeadline(p journal.Progress) time.Time {
	return storage.WallTime().Add(time.Until(p.Until) / 2)
}

// completeStep carries out the rest of a step.
func (r *run) completeStep(ctx context.Context, s journal.Step) (err error) {
	switch {
	case s.Set != nil:
		err = r.change(ctx, s)
	case s.Take == nil:
		err = r.write(ctx, s)
	default:
		err = r.take(ctx, s)
	}
	if err != nil {
		return err
	}
	r.hooks.Ended(s, r.journal.Progress(s.N))
	return nil
}

// change replaces the text of a message.
func (r *run) change(ctx context.Context, s journal.Step) error {
	p := r.journal.Progress(s.N)
	if p.State == journal.Written {
		return r.journal.Done(s.N, false)
	}
	if err := r.waitTurn(ctx); err != nil {
		return err
	}
	tried := p.State == journal.Begun
	if err := r.journal.Begun(s.N, false); err != nil {
		return err
	}
	a := ask(ctx, r.Engine, time.Time{}, func(ctx context.Context) (string, error) {
		delay := time.Duration(0)
		if s.IsEdit() {
			delay = max(time.Until(s.Set.Due), 0)
		}
		return r.Store.Update(ctx, s.Take.Queue, s.Take.ID, p.Receipt, s.Set.Text, delay)
	})
	unknown := tried || a.repeated
	switch {
	case a.err == nil:
		if err := r.journal.Written(s.N, s.Take.ID, a.value, storage.WallTime().UTC(), false); err != nil {
			return err
		}
		r.reportSent(s)
		return r.journal.Done(s.N, false)
	case errors.Is(a.err, storage.ErrDenied) && !unknown:
		return errors.Join(a.err, r.journal.Back(s.N))
	case !a.refused() || errors.Is(a.err, storage.ErrDenied):
		return a.err
	case unknown:
		return r.skip(s, notKnownChanged(s), true)
	}
	return r.skip(s, nothingChanged(a.err), false)
}

// notKnownChanged says what may have become of a message after a change without an answer.
func notKnownChanged(s journal.Step) string {
	const why = "not known whether this run has changed it: a try got no answer; "
	if s.IsEdit() {
		return why + "it is changed, or unchanged until its next attempt"
	}
	return why + "it is delivered, or visible again"
}

// nothingChanged says why storage has refused the first action on a message.
func nothingChanged(err error) string {
	switch {
	case errors.Is(err, storage.ErrNoQueue):
		return "its queue does not exist"
	case errors.Is(err, storage.ErrStale):
		return "delivered, received or changed by another command before; this run has changed nothing"
	}
	return err.Error()
}

// write writes a message that comes from no queue.
func (r *run) write(ctx context.Context, s journal.Step) error {
	if r.journal.Progress(s.N).State != journal.Written {
		if err := r.waitTurn(ctx); err != nil {
			return err
		}
		written, err := r.put(ctx, s, time.Time{})
		if err != nil || !written {
			return err
		}
	}
	return r.journal.Done(s.N, false)
}

// take takes a message away. If the step writes one, it does that first.
func (r *run) take(ctx context.Context, s journal.Step) error {
	state := r.journal.Progress(s.N).State
	if state == journal.Deleted {
		return r.putThen(ctx, s)
	}
	tried := state == journal.Written || state == journal.Begun && s.Put == nil
	if !tried {
		ready, err := r.prepareRemoval(ctx, s)
		if err != nil || !ready {
			return err
		}
	}
	return r.remove(ctx, s, tried)
}

// prepareRemoval claims a message, and writes the one that takes its place, if there is one. It reports false if the
// step is over instead.
func (r *run) prepareRemoval(ctx context.Context, s journal.Step) (ready bool, err error) {
	claimed, err := r.claimInTurn(ctx, s)
	if err != nil || !claimed {
		return false, err
	}
	if s.Put != nil {
		return r.put(ctx, s, writeDeadline(r.journal.Progress(s.N)))
	}
	return true, r.journal.Begun(s.N, false)
}

// claimInTurn claims a message, and waits for its turn.
func (r *run) claimInTurn(ctx context.Context, s journal.Step) (claimed bool, err error) {
	claimed, err = r.claim(ctx, s)
	if claimed && err == nil {
		err = r.waitTurn(ctx)
	}
	if !claimed || err != nil {
		return false, err
	}
	return r.claim(ctx, s) // the turn may have come late
}

// claim makes sure that the run holds the newest receipt of a message for long enough. If that is not possible, it ends
// the step. A message whose text is not known is not claimed again: storage refuses to delete it by an old receipt.
func (r *run) claim(ctx context.Context, s journal.Step) (claimed bool, err error) {
	p := r.journal.Progress(s.N)
	t := s.Take
	if claimLasts(p, minClaim) || t.NoText {
		return true, nil
	}
	begun := p.State == journal.Begun
	switch {
	case t.ByReceipt && !begun:
		err = r.journal.Enter(s.N, journal.Claiming)
	case !p.Until.IsZero(): // if a kill loses the answer, this receipt is not the newest one, and must not count
		err = r.journal.Received(s.N, p.Receipt, time.Time{})
	}
	if err != nil {
		return false, err
	}
	length := claimLength(t)
	a := ask(ctx, r.Engine, time.Time{}, func(ctx context.Context) (string, error) {
		return r.Store.Update(ctx, t.Queue, t.ID, p.Receipt, t.Text, length)
	})
	if a.err == nil {
		until := a.sent.Add(length)
		if t.ByReceipt && !begun {
			return true, r.journal.Claimed(s.N, a.value, until)
		}
		return true, r.journal.Received(s.N, a.value, until)
	}
	unknown := a.repeated || p.State == journal.Claiming
	switch {
	case !a.refused() || errors.Is(a.err, storage.ErrDenied):
		return false, a.err
	case !t.ByReceipt:
		return false, r.endLost(s)
	case begun:
		why := "not known whether it was written to " + s.Put.Queue + "; it is delivered, or visible again"
		return false, r.skip(s, why, true)
	case unknown:
		why := "not changed by this run; it is delivered, or becomes visible again" + whenVisible(t)
		return false, r.skip(s, why, true)
	case p.State == journal.Claimed:
		return false, r.skip(s, "received after this run's claim had ended", false)
	}
	return false, r.skip(s, nothingChanged(a.err), false)
}

// whenVisible says when a message becomes visible that a claim without an answer may have hidden.
func whenVisible(t *journal.Take) string {
	if t.Due.IsZero() {
		return " within " + ClaimTime.String()
	}
	return " by " + storage.WallTime().Add(claimLength(t)).UTC().Format(time.RFC3339)
}

// claimLength returns how long a claim of a message lasts. Storage refuses a claim beyond the message's expiry.
func claimLength(t *journal.Take) time.Duration {
	length := max(ClaimTime, min(time.Until(t.Due), storage.MaxDelay))
	if !t.Expires.IsZero() {
		length = min(length, time.Until(t.Expires)-time.Second)
	}
	return max(length.Truncate(time.Second), 0)
}

// put writes the message of a step until the given time, and records it. It reports false if the step is over instead.
func (r *run) put(ctx context.Context, s journal.Step, until time.Time) (written bool, err error) {
	again := r.journal.Progress(s.N).State == journal.Begun
	if err := r.journal.Begun(s.N, again); err != nil {
		return false, err
	}
	item := storage.Item{Text: s.Text(), Delay: max(time.Until(s.Put.Due), 0)}
	a := ask(ctx, r.Engine, until, func(ctx context.Context) (storage.Message, error) {
		return storage.PutCreating(ctx, r.Store, s.Put.Queue, item)
	})
	unknown := again || a.repeated
	switch {
	case a.err == nil:
		err = r.journal.Written(s.N, a.value.ID, a.value.PopReceipt, a.value.InsertedAt, a.repeated)
		r.reportSent(s)
		return err == nil, err
	case errors.Is(a.err, storage.ErrRefused) && !errors.Is(a.err, storage.ErrDenied):
		why := a.err.Error()
		if unknown {
			why = "not known whether it was written to " + s.Put.Queue + ": " + why
		}
		return false, r.skip(s, why, unknown)
	case a.refused() && !unknown:
		return false, errors.Join(a.err, r.journal.Back(s.N))
	}
	return false, a.err
}

// remove deletes the message of a step. Tried says that an earlier process may have deleted it.
func (r *run) remove(ctx context.Context, s journal.Step, tried bool) error {
	p := r.journal.Progress(s.N)
	t := s.Take
	a := ask(ctx, r.Engine, time.Time{}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.Store.Delete(ctx, t.Queue, t.ID, p.Receipt)
	})
	switch {
	case a.err == nil, errors.Is(a.err, storage.ErrNoQueue): // deleted with its queue
	case !errors.Is(a.err, storage.ErrStale):
		return a.err
	case (tried || a.repeated) && claimLasts(p, 0): // by that try: nobody else can have received it
	case !tried && !a.repeated && s.Put == nil:
		return r.skip(s, outOfDate, false)
	default:
		return r.endLost(s)
	}
	if s.Then == nil {
		return r.journal.Done(s.N, false)
	}
	if err := r.journal.Enter(s.N, journal.Deleted); err != nil {
		return err
	}
	return r.putThen(ctx, s)
}

// putThen writes the last message of a step. Writing it again does no harm.
func (r *run) putThen(ctx context.Context, s journal.Step) error {
	a := ask(ctx, r.Engine, time.Time{}, func(ctx context.Context) (storage.Message, error) {
		return storage.PutCreating(ctx, r.Store, s.Then.Queue, storage.Item{Text: s.Then.Text})
	})
	if a.err != nil {
		return a.err
	}
	return r.journal.Done(s.N, false)
}

// outOfDate is why a message is skipped although it may be there. A kill can lose the newest receipt, too.
const outOfDate = "its receipt is out of date: it is gone, or was claimed or received since; " +
	"select it again if it is still there"

// endLost ends a step whose receipt is out of date.
func (r *run) endLost(s journal.Step) error {
	p := r.journal.Progress(s.N)
	switch {
	case r.leavesLost:
		return errLeft
	case p.State == journal.Written:
		return r.journal.Done(s.N, true)
	case p.State == journal.Begun && s.Put != nil:
		return r.skip(s, "not known whether it was written to "+s.Put.Queue, true)
	case p.State == journal.Begun:
		return r.skip(s, "not known whether this run has deleted it, or another client has received it before", true)
	}
	return r.skip(s, outOfDate, false)
}

// skip ends a step that is not done.
func (r *run) skip(s journal.Step, why string, unknown bool) error {
	name := s.RequestID
	if s.Take != nil {
		name = strings.TrimSpace(fmt.Sprintf("%s (%s) on %s", s.RequestID, s.Take.ID, s.Take.Queue))
	}
	return r.journal.Skipped(s.N, name+": "+why, unknown)
}
