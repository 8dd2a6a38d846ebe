package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// maxDequeueCount is that of our host.json.
const maxDequeueCount = 5

// year9999 is when a message expires that never does.
var year9999 = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

func TestUpdatable(t *testing.T) {
	due := now.Add(10 * time.Second)
	never := func(count int64) settle.Lease {
		return settle.Lease{ID: "id", PopReceipt: "receipt", DequeueCount: count, ExpiresAt: year9999}
	}
	expiring := func(after time.Duration) settle.Lease {
		lease := never(1)
		lease.ExpiresAt = due.Add(after)
		return lease
	}
	tests := map[string]struct {
		lease settle.Lease
		limit int64
		want  bool
	}{
		"first_delivery":       {never(1), maxDequeueCount, true},
		"third_of_five":        {never(3), maxDequeueCount, true},
		"fourth_of_five":       {never(4), maxDequeueCount, false},
		"fifth_of_five":        {never(5), maxDequeueCount, false},
		"beyond":               {never(6), maxDequeueCount, false},
		"one_of_one":           {never(1), 1, false},
		"one_of_two":           {never(1), 2, false},
		"one_of_three":         {never(1), 3, true},
		"two_of_three":         {never(2), 3, false},
		"limit_unknown":        {never(1), 0, false},
		"expires_before":       {expiring(-time.Second), maxDequeueCount, false},
		"expires_in_an_outage": {expiring(24 * time.Hour), maxDequeueCount, false},
		"expires_later":        {expiring(24*time.Hour + time.Second), maxDequeueCount, true},
		"expiry_unknown": {
			settle.Lease{ID: "id", PopReceipt: "receipt", DequeueCount: 1},
			maxDequeueCount,
			false,
		},
		"count_unknown": {never(0), maxDequeueCount, false},
		"no_id": {
			settle.Lease{PopReceipt: "receipt", DequeueCount: 1, ExpiresAt: year9999},
			maxDequeueCount, false,
		},
		"no_receipt": {settle.Lease{ID: "id", DequeueCount: 1, ExpiresAt: year9999}, maxDequeueCount, false},
		"none":       {settle.Lease{}, maxDequeueCount, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := due.Before(test.lease.UpdatableUntil(test.limit)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// hosted is a message that the host has received from the main queue, and the host's part in its end.
type hosted struct {
	*faulty
	settle.Lease
	// receipt is the host's newest one.
	receipt string
	text    string
}

// hostLease is for how long the host takes a message.
const hostLease = 10 * time.Minute

func receive(t *testing.T, store *faulty) *hosted {
	t.Helper()
	if _, err := store.Put(t.Context(), main, storage.Item{Text: storage.Base64.Encode([]byte(content))}); err != nil {
		t.Fatal(err)
	}
	store.tries = nil
	received, err := store.Receive(t.Context(), main, 1, hostLease)
	if err != nil || len(received) != 1 {
		t.Fatalf("received %v: %v", received, err)
	}
	m := received[0]
	h := &hosted{faulty: store, receipt: m.PopReceipt, text: m.Text}
	h.Lease = settle.Lease{ID: m.ID, PopReceipt: m.PopReceipt, DequeueCount: m.DequeueCount, ExpiresAt: m.ExpiresAt}
	return h
}

// settle settles the message and then completes it as the host does.
func (h *hosted) settle(t *testing.T, d decision.Decision) (settle.RescheduleMode, error) {
	t.Helper()
	settled, err := settle.New(h, storage.Base64).WithReschedule(settle.RescheduleUpdate, maxDequeueCount).
		Settle(t.Context(), write(t, content, storage.Base64, d), h.Lease)
	wantNoSecret(t, err)
	h.complete(t, err)
	return settled.Reschedule, err
}

// complete is what the host does on its answer: delete or, when that is an error, make visible again in
// 30 s. That its receipt is stale it takes to mean that there is nothing left to do.
func (h *hosted) complete(t *testing.T, failed error) {
	t.Helper()
	var err error
	if failed == nil {
		err = h.Delete(t.Context(), main, h.ID, h.receipt)
	} else {
		_, err = h.Queues.Update(t.Context(), main, h.ID, h.receipt, h.text, 30*time.Second)
	}
	if err != nil && !errors.Is(err, storage.ErrStale) {
		t.Fatal(err)
	}
}

// renew is what the host does when a message takes longer than half its lease.
func (h *hosted) renew(ctx context.Context, t *testing.T) {
	t.Helper()
	var err error
	h.receipt, err = h.Queues.Update(ctx, main, h.ID, h.receipt, h.text, hostLease)
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever order the events come in, there is one message in the end: the successor where we know of it,
// or else the original, which is called again.
func TestRescheduleInPlace(t *testing.T) {
	const successor, original = `"attempts":2`, content
	const ours, hosts = 10 * time.Second, 30 * time.Second // when it becomes visible again
	refused := fmt.Errorf("update: %w", storage.ErrRefused)
	tests := map[string]struct {
		before   func(*testing.T, *hosted)
		onUpdate func(ctx context.Context, n int, real func() error) error
		mode     settle.RescheduleMode // what it was settled with, "" when it was not
		err      error
		content  string
		delay    time.Duration // 0: it is due already; -1: ours, but for the tries before
	}{
		"acknowledged": {
			mode: settle.RescheduleUpdate, content: successor, delay: ours,
		},
		"not_done_at_first": {
			onUpdate: failing(5, errOutage),
			mode:     settle.RescheduleUpdate, content: successor, delay: -1,
		},
		"hangs_at_first": {
			onUpdate: hanging(2),
			mode:     settle.RescheduleUpdate, content: successor, delay: 0, // it was due meanwhile
		},
		"acknowledgement_lost": {
			onUpdate: func(_ context.Context, n int, real func() error) error {
				if err := real(); err != nil || n > 1 {
					return err
				}
				return errOutage
			},
			err: storage.ErrStale, content: successor, delay: ours,
		},
		"acknowledgement_lost_by_a_hang": {
			onUpdate: func(ctx context.Context, n int, real func() error) error {
				if err := real(); err != nil || n > 1 {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			},
			err: storage.ErrStale, content: successor, delay: ours,
		},
		"acknowledgement_lost_then_outage": {
			onUpdate: func(_ context.Context, n int, real func() error) error {
				if n == 1 {
					_ = real()
				}
				return errOutage
			},
			err: errOutage, content: successor, delay: ours,
		},
		"acknowledgement_lost_then_refused": {
			onUpdate: func(_ context.Context, n int, real func() error) error {
				if n == 1 {
					_ = real()
					return errOutage
				}
				return refused
			},
			err: storage.ErrRefused, content: successor, delay: ours,
		},
		"outage": {
			onUpdate: failing(-1, errOutage),
			err:      errOutage, content: original, delay: hosts,
		},
		"arrives_after_the_next_try": {
			before: func(t *testing.T, h *hosted) {
				var first func() error
				h.onUpdate = func(_ context.Context, n int, real func() error) error {
					if n == 1 {
						first = real
						return errOutage
					}
					err := real()
					if late := first(); !errors.Is(late, storage.ErrStale) {
						t.Errorf("the late one: %v", late)
					}
					return err
				}
			},
			mode: settle.RescheduleUpdate, content: successor, delay: -1,
		},
		"host_renewed_before": {
			before: func(t *testing.T, h *hosted) { h.renew(t.Context(), t) },
			mode:   settle.RescheduleEnqueue, content: successor, delay: ours,
		},
		"host_renewed_between_tries": {
			before: func(t *testing.T, h *hosted) {
				h.onUpdate = func(ctx context.Context, n int, real func() error) error {
					if n == 1 {
						h.renew(ctx, t)
						return errOutage
					}
					return real()
				}
			},
			err: storage.ErrStale, content: original, delay: hosts,
		},
		"refused": {
			onUpdate: failing(-1, refused),
			mode:     settle.RescheduleEnqueue, content: successor, delay: ours,
		},
		"refused_after_an_outage": {
			onUpdate: failThen(errOutage, refused),
			err:      storage.ErrRefused, content: original, delay: hosts,
		},
		"malformed_receipt": {
			before: func(_ *testing.T, h *hosted) { h.PopReceipt = "not a receipt" },
			mode:   settle.RescheduleEnqueue, content: successor, delay: ours,
		},
		"delivered_too_often": {
			before: func(_ *testing.T, h *hosted) { h.DequeueCount = maxDequeueCount - 1 },
			mode:   settle.RescheduleEnqueue, content: successor, delay: ours,
		},
		"expires_soon": {
			before: func(_ *testing.T, h *hosted) { h.ExpiresAt = time.Now().Add(24 * time.Hour) },
			mode:   settle.RescheduleEnqueue, content: successor, delay: ours,
		},
		"no_lease": {
			before: func(_ *testing.T, h *hosted) { h.PopReceipt = "" },
			mode:   settle.RescheduleEnqueue, content: successor, delay: ours,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := receive(t, newStore(t))
				h.onUpdate = test.onUpdate
				if test.before != nil {
					test.before(t, h)
				}
				started := time.Now()

				mode, err := h.settle(t, decision.Decision{
					Action: decision.Reschedule, Delay: 10 * time.Second,
					State: state(),
				})

				if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
					t.Errorf("error %v, want %v", err, test.err)
				}
				if err == nil && mode != test.mode {
					t.Errorf("reschedule by %q, want %q", mode, test.mode)
				}
				wantPuts := map[settle.RescheduleMode]int{settle.RescheduleEnqueue: 1}[test.mode]
				if len(h.tries) != wantPuts {
					t.Errorf("%d messages were written, want %d", len(h.tries), wantPuts)
				}
				got, m := h.only(t, main, storage.Base64)
				if !strings.Contains(got, test.content) {
					t.Errorf("it is %s", got)
				}
				switch delay := m.NextVisibleAt.Sub(started); {
				case test.delay == hosts:
					if wait := time.Until(m.NextVisibleAt); wait != hosts {
						t.Errorf("visible in %v, want when the host says", wait)
					}
				case test.delay > 0 && delay != test.delay:
					t.Errorf("visible after %v, want %v", delay, test.delay)
				case test.delay == 0 && time.Until(m.NextVisibleAt) > 0, test.delay < 0 &&
					(delay < ours || delay > ours+time.Second):
					t.Errorf("visible after %v", delay)
				}
			})
		})
	}
}

// A message that was rescheduled for now may have come and gone before we learn of it: it must not be
// brought back.
func TestRescheduleInPlaceIsDoneByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := receive(t, newStore(t))
		h.onUpdate = func(ctx context.Context, n int, real func() error) error {
			if n > 1 {
				return real()
			}
			if err := real(); err != nil {
				t.Error(err)
			}
			received, err := h.Receive(ctx, main, 1, hostLease)
			if err != nil || len(received) != 1 {
				t.Fatalf("received %v: %v", received, err)
			}
			if err := h.Delete(ctx, main, received[0].ID, received[0].PopReceipt); err != nil {
				t.Error(err)
			}
			return errOutage
		}
		if _, err := h.settle(t, decision.Decision{Action: decision.Reschedule, State: state()}); !errors.Is(err,
			storage.ErrStale) {
			t.Errorf("got %v", err)
		}
		if all := h.all(t, storage.Base64); len(all) != 0 {
			t.Errorf("the queue holds %q", all)
		}
	})
}

// When the host has lost its lease, somebody else has the message. Like the host's renewal that makes the
// receipt stale, and we cannot tell: so a successor is written, as in mode enqueue.
func TestAnotherConsumerTookIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := receive(t, newStore(t))
		<-time.After(hostLease)
		other, err := h.Receive(t.Context(), main, 1, hostLease)
		if err != nil || len(other) != 1 {
			t.Fatalf("received %v: %v", other, err)
		}
		mode, err := h.settle(t, decision.Decision{Action: decision.Reschedule, Delay: time.Hour, State: state()})
		if err != nil || mode != settle.RescheduleEnqueue {
			t.Errorf("reschedule by %q, error %v", mode, err)
		}
		if err := h.Delete(t.Context(), main, other[0].ID, other[0].PopReceipt); err != nil {
			t.Errorf("the other one's message was touched: %v", err)
		}
		if got, _ := h.only(t, main, storage.Base64); !strings.Contains(got, `"attempts":2`) {
			t.Errorf("the queue holds %s", got)
		}
	})
}

// With its queue the message is gone; only a successor brings it back.
func TestRescheduleInPlaceWithoutAQueue(t *testing.T) {
	for name, fault := range map[string]func(context.Context, int, func() error) error{
		"at_once":         nil,
		"after_an_outage": failing(2, errOutage),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := receive(t, newStore(t))
				h.Queues, h.onUpdate = memory.New(), fault
				settled, err := settle.New(h, storage.Base64).WithReschedule(settle.RescheduleUpdate, maxDequeueCount).
					Settle(t.Context(), write(t, content, storage.Base64,
						decision.Decision{Action: decision.Reschedule, Delay: time.Minute, State: state()}), h.Lease)
				if err != nil || settled.Reschedule != settle.RescheduleEnqueue {
					t.Errorf("reschedule by %q, error %v", settled.Reschedule, err)
				}
				_, m := h.only(t, main, storage.Base64)
				if wait := time.Until(m.NextVisibleAt); wait > time.Minute {
					t.Errorf("visible in %v: the tries before are added", wait)
				}
			})
		})
	}
}

// Only a reschedule in mode update touches the message that came.
func TestWhatNeverUpdates(t *testing.T) {
	tests := map[string]struct {
		mode   settle.RescheduleMode
		action decision.Action
		queue  string
	}{
		"reschedule_new": {settle.RescheduleEnqueue, decision.Reschedule, main},
		"callback":       {settle.RescheduleUpdate, decision.Callback, main},
		"dead_letter":    {settle.RescheduleUpdate, decision.DeadLetter, poison},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := receive(t, newStore(t))
			settled, err := settle.New(h, storage.Base64).WithReschedule(test.mode, maxDequeueCount).
				Settle(t.Context(),
					write(t, content, storage.Base64, decision.Decision{Action: test.action, State: state()}), h.Lease)
			if err != nil || settled.Reschedule != "" {
				t.Errorf("mode %q, error %v", settled.Reschedule, err)
			}
			h.complete(t, nil)
			h.only(t, test.queue, storage.Base64)
			if h.updates != 0 {
				t.Errorf("%d updates", h.updates)
			}
		})
	}
}
