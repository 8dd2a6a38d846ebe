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
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// reschedule settles a message by rescheduling it by 10 s.
func reschedule(ctx context.Context, t *testing.T, store settle.Store) error {
	t.Helper()
	d := decision.Decision{Action: decision.Reschedule, Delay: 10 * time.Second, State: state()}
	_, err := settle.New(store, storage.Base64).Settle(ctx, write(t, content, storage.Base64, d), settle.Lease{})
	wantNoSecret(t, err)
	return err
}

// deadLetter settles a message by writing it to the poison queue.
func deadLetter(ctx context.Context, t *testing.T, store settle.Store) error {
	t.Helper()
	d := decision.Decision{Action: decision.DeadLetter, Reason: decision.Expired, State: state()}
	_, err := settle.New(store, storage.Base64).Settle(ctx, write(t, content, storage.Base64, d), settle.Lease{})
	wantNoSecret(t, err)
	return err
}

func TestQueuesAreMadeOnDemand(t *testing.T) {
	tests := map[string]struct {
		settle func(context.Context, *testing.T, settle.Store) error
		queue  string
	}{
		"poison_queue": {deadLetter, poison},
		"main_queue":   {reschedule, main}, // somebody deleted it while the call was under way
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Queues: memory.New()}
				started := time.Now()
				if err := test.settle(t.Context(), t, store); err != nil {
					t.Fatal(err)
				}
				store.only(t, test.queue, storage.Base64)
				if took := time.Since(started); took != 0 {
					t.Errorf("it took %v, want no pause for a queue that only has to be made", took)
				}
			})
		})
	}
}

// A storage account that is away for a while costs time, not messages.
func TestStorageIsBackInTime(t *testing.T) {
	tests := map[string]struct {
		store           func(*faulty)
		settle          func(context.Context, *testing.T, settle.Store) error
		queue           string
		soonest, latest time.Duration
	}{
		"create_fails": {
			store:   func(s *faulty) { s.onCreate = failing(2, errOutage) },
			settle:  deadLetter,
			queue:   poison,
			soonest: 200 * time.Millisecond,
			latest:  2 * time.Second,
		},
		"create_hangs": {
			store:   func(s *faulty) { s.onCreate = hanging(1) },
			settle:  deadLetter,
			queue:   poison,
			soonest: 10 * time.Second,
			latest:  15 * time.Second,
		},
		"being_deleted": {
			store:   func(s *faulty) { s.onPut = failing(15, fmt.Errorf("put: %w", storage.ErrNoQueue)) },
			settle:  reschedule,
			queue:   main,
			soonest: time.Second,
			latest:  settle.Timeout,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				test.store(store)
				started := time.Now()
				if err := test.settle(t.Context(), t, store); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(started); took < test.soonest || took > test.latest {
					t.Errorf("it took %v, want %v to %v", took, test.soonest, test.latest)
				}
				store.only(t, test.queue, storage.Base64)
			})
		})
	}
}

// Every try writes the same, so that a copy that got through twice is a copy; only the delay gets
// shorter, because it counts from the first try.
func TestTriesAreAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.onPut = failing(5, errOutage)
		if err := reschedule(t.Context(), t, store); err != nil {
			t.Fatal(err)
		}
		for i, try := range store.tries {
			if try.queue != main || try.item.Text != store.tries[0].item.Text || try.item.TTL != 0 {
				t.Errorf("try %d differs from the first", i+1)
			}
			if i > 0 && try.item.Delay >= store.tries[i-1].item.Delay {
				t.Errorf("try %d: delay %v after %v", i+1, try.item.Delay, store.tries[i-1].item.Delay)
			}
		}
		if len(store.tries) != 6 {
			t.Errorf("%d tries, want 6", len(store.tries))
		}
	})
}

func TestStorageStaysAway(t *testing.T) {
	tests := map[string]struct {
		store  func(*faulty)
		settle func(context.Context, *testing.T, settle.Store) error
		want   error
	}{
		"create_fails": {func(s *faulty) { s.onCreate = failing(-1, errOutage) }, deadLetter, errOutage},
		"being_deleted": {
			func(s *faulty) { s.onPut = failing(-1, fmt.Errorf("put: %w", storage.ErrNoQueue)) },
			reschedule, storage.ErrNoQueue,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				test.store(store)
				started := time.Now()
				err := test.settle(t.Context(), t, store)
				if !errors.Is(err, test.want) {
					t.Errorf("got %v, want the last real error: %v", err, test.want)
				}
				if took := time.Since(started); took != settle.Timeout {
					t.Errorf("it gave up after %v, want %v", took, settle.Timeout)
				}
				if contents := store.all(t, storage.Base64); len(contents) != 0 {
					t.Errorf("something was written all the same: %q", contents)
				}
			})
		})
	}
}

// The pauses grow, so that a storage account in trouble is left alone, and stay short enough to notice
// when it is back.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		store.onPut = failing(-1, errOutage)
		_ = reschedule(t.Context(), t, store)
		if n := len(store.tries); n < 8 || n > 20 {
			t.Errorf("%d tries in %v", n, settle.Timeout)
		}
		var before time.Duration
		for i := 1; i < len(store.tries); i++ {
			pause := store.tries[i].at.Sub(store.tries[i-1].at)
			switch {
			case i == 1 && pause > time.Second:
				t.Errorf("the first pause is %v: a hiccup must not cost a second", pause)
			case pause < before && pause < 5*time.Second:
				t.Errorf("pause %d is %v, shorter than %v before it", i, pause, before)
			case pause > 10*time.Second:
				t.Errorf("pause %d is %v", i, pause)
			}
			before = pause
		}
	})
}

// The pauses of different messages differ, so that they do not come back together.
func TestPausesAreSpread(t *testing.T) {
	pauses := map[time.Duration]bool{}
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			store.onPut = failing(1, errOutage)
			if err := reschedule(t.Context(), t, store); err != nil {
				t.Fatal(err)
			}
			pauses[store.tries[1].at.Sub(store.tries[0].at)] = true
		})
	}
	if len(pauses) < 5 {
		t.Errorf("10 messages paused for only %d different times", len(pauses))
	}
}

func TestRefusedReturnsAtOnce(t *testing.T) {
	refused := fmt.Errorf("put on queue %s: %w", main, storage.ErrRefused)
	tests := map[string]struct {
		store  func(*faulty)
		settle func(context.Context, *testing.T, settle.Store) error
		tries  int
	}{
		"create":            {func(s *faulty) { s.onCreate = failing(-1, refused) }, deadLetter, 1},
		"put_after_created": {func(s *faulty) { s.onPut = failThen(storage.ErrNoQueue, refused) }, reschedule, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				test.store(store)
				started := time.Now()
				err := test.settle(t.Context(), t, store)
				if !errors.Is(err, storage.ErrRefused) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(started); took > time.Second || len(store.tries) != test.tries {
					t.Errorf("it took %v and %d tries, want %d", took, len(store.tries), test.tries)
				}
			})
		})
	}
}

// failThen fails once in one way, then in another.
func failThen(first, then error) func(context.Context, int, func() error) error {
	return func(_ context.Context, n int, _ func() error) error {
		if n == 1 {
			return first
		}
		return then
	}
}

// A write that storage took, but whose acknowledgement never came, is written again: twice is better
// than never.
func TestLostAcknowledgement(t *testing.T) {
	tests := map[string]func(context.Context, int, func() error) error{
		"error": func(_ context.Context, n int, real func() error) error {
			if err := real(); err != nil || n > 1 {
				return err
			}
			return errors.New("connection reset")
		},
		"hang": func(ctx context.Context, n int, real func() error) error {
			if err := real(); err != nil || n > 1 {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
		"no_queue_any_more": func(_ context.Context, n int, real func() error) error {
			if err := real(); err != nil || n > 1 {
				return err
			}
			return storage.ErrNoQueue
		},
	}
	for name, onPut := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				store.onPut = onPut
				if err := reschedule(t.Context(), t, store); err != nil {
					t.Fatal(err)
				}
				copies := store.all(t, storage.Base64)[main]
				if len(copies) != 2 || copies[0] != copies[1] {
					t.Errorf("the queue holds %d messages, want the successor and its copy", len(copies))
				}
			})
		})
	}
}

// The host's settle time is worth nothing if one try takes all of it.
func TestOneTryDoesNotTakeAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var limits []time.Duration
		store.onPut = func(ctx context.Context, _ int, _ func() error) error {
			deadline, limited := ctx.Deadline()
			if !limited {
				t.Error("a try has all the time in the world")
			}
			limits = append(limits, time.Until(deadline))
			return errOutage
		}
		_ = reschedule(t.Context(), t, store)
		for i, limit := range limits {
			if limit > settle.Timeout/4 {
				t.Errorf("try %d may take %v", i+1, limit)
			}
		}
	})
}

func TestErrorsTellNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A body so large that no successor of it fits; the handler never accepts such an envelope.
		large := strings.Replace(content, `"b":1.50`, `"b":"`+strings.Repeat("x", 64<<10)+`"`, 1)
		in := open(t, content, storage.Base64)
		e, err := envelope.Parse([]byte(large))
		if err != nil {
			t.Fatal(err)
		}
		in.Envelope = e
		for _, action := range []decision.Action{decision.Reschedule, decision.DeadLetter} {
			store := newStore(t)
			_, err := settle.New(store, storage.Base64).
				Settle(t.Context(), decision.Rules{}.Compose(in, decision.Decision{Action: action, State: state()},
					main, now), settle.Lease{})
			if err == nil || !strings.Contains(err.Error(), "async-caller") || len(store.tries) != 0 {
				t.Errorf("%s: got %v after %d tries, want an error that names the queue", action, err, len(store.tries))
			}
			wantNoSecret(t, err)
		}
	})
}
