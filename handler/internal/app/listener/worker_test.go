package listener

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/storage"
)

// A lease that is not renewed keeps its receipt, with which a message is deleted at the end of a long call.
func TestListenerWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newListenerTest(t, takes(9*time.Minute))
		b.RenewsLease = false
		b.fault = func(operation string) error {
			if operation == "update" {
				t.Error("renewed")
			}
			return nil
		}
		b.run(20 * time.Minute)
		if left := b.left(); len(left) != 0 {
			t.Errorf("queue holds %+v", left)
		}
	})
}

// A message that is kept costs no request.
func TestListenerKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newListenerTest(t, always(Kept))
		b.fault = func(operation string) error {
			if operation == "update" || operation == "delete" {
				t.Error(operation)
			}
			return nil
		}
		want := Stats{Received: 1, Succeeded: 1, MaxDequeueCount: 1}
		if got := b.run(time.Minute); got != want || len(b.left()) != 1 {
			t.Errorf("stats %+v, queue %+v", got, b.left())
		}
	})
}

// A queue is polled within 2 s for 7 minutes after a message, and then within 30 s.
func TestListenerIdlePolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newListenerTest(t, always(Succeeded))
		b.IdlePolling = 30 * time.Second
		var polls atomic.Int64
		b.Polled = func(error) { polls.Add(1) }
		b.create()
		b.start()
		pass(time.Hour)
		idle := polls.Load()
		b.put(hello)
		pass(30 * time.Second)
		if got := b.Counts.Read(); got.Succeeded != 1 {
			t.Errorf("%+v after 30 s", got)
		}
		busy := polls.Load()
		pass(4 * time.Minute)
		b.stop()
		if idle < 310 || idle > 330 { // 210 and some quick ones, then 106
			t.Errorf("%d polls in an hour", idle)
		}
		if got := polls.Load() - busy; got < 4*29 {
			t.Errorf("%d polls in 4 minutes after a message", got)
		}
	})
}

// A receive that hangs ends after 10 s, and refused access does not end a listener without Refused.
func TestListenerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed []error
		b := newListenerTest(t, always(Succeeded))
		b.Refused = nil
		b.Polled = func(err error) {
			if err != nil {
				failed = append(failed, err)
			}
		}
		b.Store = &hangingStore{Queues: b.Store}
		refusals := 3
		b.fault = func(operation string) error {
			if operation == "receive" && refusals > 0 {
				refusals--
				return storage.ErrRefused
			}
			return nil
		}
		if got := b.run(15 * time.Second); got.Succeeded != 1 {
			t.Errorf("stats %+v", got)
		}
		if len(failed) != 4 || !errors.Is(failed[0], context.DeadlineExceeded) ||
			!errors.Is(failed[3], storage.ErrRefused) {
			t.Errorf("failed polls: %v", failed)
		}
	})
}

// hangingStore never answers the first receive.
type hangingStore struct {
	storage.Queues
	received atomic.Bool
}

func (s *hangingStore) Receive(
	ctx context.Context, name string, limit int, lease time.Duration,
) ([]storage.Message, error) {
	if !s.received.Swap(true) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Queues.Receive(ctx, name, limit, lease)
}

// A message that never expires on the poison queue, and is told of.
func TestListenerTellsOfPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []storage.Message
		b := newListenerTest(t, always(Failed))
		b.PoisonTTL = 0
		b.Poisoned = func(_ string, msg storage.Message) { told = append(told, msg) }
		b.run(5 * time.Minute)
		all := b.store.All("work-poison")
		if len(all) != 1 || all[0].Expires() || len(told) != 1 || told[0].ID != all[0].ID || told[0].Text != hello {
			t.Errorf("poison queue %+v, told %+v", all, told)
		}
	})
}

// Two listeners share places. At first few are there, until a message has ended or a second has passed.
func TestPlaces(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(ctx context.Context, inFlight int)
		want [2]int // messages in flight before and after a second
	}{
		"slow": {func(ctx context.Context, _ int) { storage.Sleep(ctx, time.Hour) }, [2]int{3, 10}},
		"one_is_quick": {func(ctx context.Context, n int) {
			if n > 1 {
				storage.Sleep(ctx, time.Hour)
			}
		}, [2]int{10, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				places := NewPlaces(10, 3)
				var begun, inFlight atomic.Int64
				work := func(ctx context.Context, _ storage.Message) Result {
					inFlight.Add(1)
					defer inFlight.Add(-1)
					test.do(ctx, int(begun.Add(1)))
					return Kept
				}
				invocations, cut := context.WithCancel(t.Context())
				defer cut()
				var all []*listenerTest
				for range 2 {
					b := newListenerTest(t, work)
					b.Places, b.Queues.NewBatchThreshold = places, 20
					b.create()
					b.put(slices.Repeat([]string{hello}, 30)...)
					ctx, leave := context.WithCancel(t.Context())
					b.leave = leave
					b.running.Go(func() { b.Run(ctx, invocations) })
					all = append(all, b)
				}
				for _, want := range test.want {
					pass(900 * time.Millisecond)
					if got := int(inFlight.Load()); got != want {
						t.Errorf("%d in flight after %v, want %d", got, time.Since(all[0].begin), want)
					}
				}
				cut()
				for _, b := range all {
					b.stop()
				}
			})
		})
	}
}
