package settle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// The outcomes of settling, with every fault of storage, are in the table of package delivery: TestSettlement.

const queue = "async-caller"

// TestUpdatable: a message is updated in place only if the host's lease on it is known, few deliveries are used, and it
// does not expire within a day after it is due.
func TestUpdatable(t *testing.T) {
	due := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	never := time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		id, receipt string
		count, most int64
		expires     time.Time
		want        bool
	}{
		"first_delivery":      {"id", "r", 1, 5, never, true},
		"third_of_five":       {"id", "r", 3, 5, never, true},
		"fourth_of_five":      {"id", "r", 4, 5, never, false},
		"beyond":              {"id", "r", 6, 5, never, false},
		"one_of_one":          {"id", "r", 1, 1, never, false},
		"one_of_two":          {"id", "r", 1, 2, never, false},
		"one_of_three":        {"id", "r", 1, 3, never, true},
		"limit_unknown":       {"id", "r", 1, 0, never, false},
		"count_unknown":       {"id", "r", 0, 5, never, false},
		"expires_in_a_day":    {"id", "r", 1, 5, due.Add(day), false},
		"expires_a_bit_later": {"id", "r", 1, 5, due.Add(day + time.Second), true},
		"expiry_unknown":      {"id", "r", 1, 5, time.Time{}, false},
		"no_id":               {"", "r", 1, 5, never, false},
		"no_receipt":          {"id", "", 1, 5, never, false},
	} {
		t.Run(name, func(t *testing.T) {
			lease := settle.Lease{
				ID: test.id, PopReceipt: test.receipt, DequeueCount: test.count, ExpiresAt: test.expires,
			}
			if got := due.Before(lease.UpdatableUntil(test.most)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// try is one call of Put.
type try struct {
	at, until time.Time
	item      storage.Item
}

// away is an account that fails each put after a time. It remembers the tries, and how many were in progress at once.
type away struct {
	*memory.Queues
	took           time.Duration
	mu             sync.Mutex
	tries          []try
	inProgress, at int
}

func (s *away) Put(ctx context.Context, _ string, item storage.Item) (storage.Message, error) {
	until, _ := ctx.Deadline()
	s.mu.Lock()
	s.tries = append(s.tries, try{time.Now(), until, item})
	s.inProgress++
	s.at = max(s.at, s.inProgress)
	s.mu.Unlock()
	<-time.After(s.took)
	s.mu.Lock()
	s.inProgress--
	s.mu.Unlock()
	return storage.Message{}, errors.New("503 ServerBusy")
}

func reschedule(ctx context.Context, store settle.Store) error {
	w := decision.Write{
		Action: decision.Reschedule, Queue: queue, Content: []byte("content"), Delay: 10 * time.Second,
	}
	_, err := settle.New(store, storage.Base64).Settle(ctx, w, settle.Lease{})
	return err
}

// TestTries: the tries of a write are alike, so that one that got through twice is a copy; only the delay gets shorter,
// because it counts from the first try. The pauses grow, so that storage in trouble is left alone, stay short enough to
// notice when it is back, and differ from message to message. No try takes all of the time.
func TestTries(t *testing.T) {
	firstPauses := map[time.Duration]bool{}
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			store := &away{Queues: memory.New()}
			began := time.Now()
			err := reschedule(t.Context(), store)
			if err == nil || time.Since(began) != settle.Timeout {
				t.Errorf("error %v after %v", err, time.Since(began))
			}
			tries := store.tries
			if len(tries) < 8 || len(tries) > 25 {
				t.Fatalf("%d tries in %v", len(tries), settle.Timeout)
			}
			firstPauses[tries[1].at.Sub(tries[0].at)] = true
			before := time.Duration(0)
			for i, try := range tries {
				if limit := try.until.Sub(try.at); try.until.IsZero() || limit > settle.Timeout/4 {
					t.Errorf("try %d may take %v", i+1, limit)
				}
				if i == 0 {
					continue
				}
				if try.item.Text != tries[0].item.Text || try.item.TTL != 0 || try.item.Delay > tries[i-1].item.Delay ||
					try.item.Delay < 0 {
					t.Errorf("try %d has %v, the one before %v", i+1, try.item, tries[i-1].item)
				}
				pause := try.at.Sub(tries[i-1].at)
				if pause < min(before, 5*time.Second) || pause > 10*time.Second || i == 1 && pause > time.Second {
					t.Errorf("pause %d is %v, after %v", i, pause, before)
				}
				before = pause
			}
		})
	}
	if len(firstPauses) < 5 {
		t.Errorf("10 messages paused for only %d different times", len(firstPauses))
	}
}

// TestTriesAtOnce: of the messages that are settled at once, as many are written as storage has connections; the others
// wait, and give up when their time is over.
func TestTriesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &away{Queues: memory.New(), took: 5 * time.Second}
		settler := settle.New(store, storage.Base64)
		w := decision.Write{Action: decision.Reschedule, Queue: queue, Content: []byte("content")}
		var done sync.WaitGroup
		for range 3 * storage.MaxConnections {
			done.Go(func() {
				_, err := settler.Settle(t.Context(), w, settle.Lease{})
				if err == nil {
					t.Error("settled")
				}
			})
		}
		began := time.Now()
		done.Wait()
		if store.at != storage.MaxConnections {
			t.Errorf("%d tries at once, want %d", store.at, storage.MaxConnections)
		}
		if took := time.Since(began); took > settle.Timeout+store.took {
			t.Errorf("it took %v", took)
		}
	})
}

// TestNoEnd: an action that ends no message, and a write that cannot be composed, are errors: otherwise the host would
// delete a message that nothing became of.
func TestNoEnd(t *testing.T) {
	for name, w := range map[string]decision.Write{
		"call":     {Action: decision.Call},
		"empty":    {},
		"nonsense": {Action: "nonsense"},
		"problem":  {Action: decision.DeadLetter, Queue: queue, Problem: errors.New("no room")},
	} {
		t.Run(name, func(t *testing.T) {
			store := &away{Queues: memory.New()}
			_, err := settle.New(store, storage.Base64).Settle(t.Context(), w, settle.Lease{})
			if err == nil || len(store.tries) != 0 {
				t.Errorf("got %v after %d tries", err, len(store.tries))
			}
			if w.Problem != nil && (!strings.Contains(err.Error(), queue) || !errors.Is(err, w.Problem)) {
				t.Errorf("%v does not name the queue and the problem", err)
			}
		})
	}
}
