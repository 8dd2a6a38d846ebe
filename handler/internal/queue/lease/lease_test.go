package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
	"asynccaller/handler/internal/queue/memory"
)

// TestRenew checks that selected messages stay leased for hours, and that each new receipt is reported.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueue(t, 100)
		reported := map[int]string{}
		var mu sync.Mutex
		h := newHolder(t, store, func(number int, popReceipt string) {
			mu.Lock()
			defer mu.Unlock()
			reported[number] = popReceipt
		})
		take(t, h, 100, all(map[string]int{}))
		stop := h.Renew(context.Background())
		for range 36 {
			advance(5 * time.Minute)
			if leased(store) != 100 {
				t.Fatalf("%d are leased after %v", leased(store), time.Now())
			}
		}
		stop()
		for _, m := range store.All(poisonQueue) {
			if got := reported[h.Find(poisonQueue, m.ID).Number]; got != m.PopReceipt {
				t.Errorf("%s: reported %q, it is %q", m.ID, got, m.PopReceipt)
			}
			if m.DequeueCount != 1 {
				t.Errorf("%s was received %d times", m.ID, m.DequeueCount)
			}
			if err := h.Delete(context.Background(), h.Find(poisonQueue, m.ID)); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRenewBesideDelete checks that a slow deletion does not prevent renewals of other messages.
func TestRenewBesideDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &store{Store: newQueue(t, 3), before: func(operation string, _ int) error {
			if operation == "delete" {
				return errors.New("no connection")
			}
			return nil
		}}
		h := newHolder(t, down, nil)
		take(t, h, 3, all(map[string]int{}))
		advance(long - time.Minute)
		ids := down.All(poisonQueue)
		failed := make(chan error)
		go func() { failed <- h.Delete(context.Background(), h.Find(poisonQueue, ids[0].ID)) }()
		synctest.Wait()
		h.RenewDue(t.Context())
		for _, m := range down.All(poisonQueue) {
			if left := time.Until(m.NextVisibleAt); m.ID != ids[0].ID && left < long-time.Second {
				t.Errorf("%s is leased for %v more", m.ID, left)
			}
		}
		if err := <-failed; err == nil {
			t.Error("the deletion has not failed")
		}
	})
}

// TestAdopt checks that an adopted message is ours, unless its receipt is stale.
func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueue(t, 3)
		taken, err := store.Receive(ctx, poisonQueue, 3, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reported := ""
		h := newHolder(t, store, func(_ int, popReceipt string) { reported = popReceipt })
		adopt := func(i int, popReceipt, text string) *lease.Message {
			m, err := h.Adopt(i, poisonQueue, taken[i].ID, popReceipt, text)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		m := adopt(0, taken[0].PopReceipt, taken[0].Text)
		if err := h.Ensure(ctx, m); err != nil || reported != m.PopReceipt() || reported == taken[0].PopReceipt {
			t.Errorf("a valid receipt: %v, reported %q", err, reported)
		}
		if left := time.Until(store.All(poisonQueue)[2].NextVisibleAt); left != long {
			t.Errorf("the lease is %v", left)
		}
		m = adopt(1, "stale", taken[1].Text)
		if err := h.Ensure(ctx, m); !errors.Is(err, lease.ErrLost) || h.Find(poisonQueue, m.ID) != nil {
			t.Errorf("a stale receipt: %v, still held: %v", err, h.Find(poisonQueue, m.ID) != nil)
		}
		if err := h.Delete(ctx, m); !errors.Is(err, lease.ErrLost) {
			t.Errorf("delete of a lost message: %v", err)
		}
		m = adopt(1, "stale", taken[1].Text)
		if err := h.Delete(ctx, m); !errors.Is(err, lease.ErrLost) {
			t.Errorf("delete by a stale receipt: %v", err)
		}
		m = adopt(2, taken[2].PopReceipt, "") // its text is unknown
		h.RenewDue(ctx)
		if err := h.Delete(ctx, m); err != nil {
			t.Errorf("delete without a text: %v", err)
		}
		for _, left := range store.All(poisonQueue) {
			if left.ID == taken[2].ID || !strings.HasPrefix(left.Text, "text ") {
				t.Errorf("left: %+v", left)
			}
		}
	})
}

func TestGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueue(t, 100)
		h := newHolder(t, store, nil)
		take(t, h, 100, all(map[string]int{}))
		m := h.Find(poisonQueue, store.All(poisonQueue)[0].ID)
		h.Release(t.Context(), m)
		if leased(store) != 99 {
			t.Errorf("%d are leased", leased(store))
		}
		if err := h.Ensure(t.Context(), m); !errors.Is(err, lease.ErrLost) {
			t.Errorf("a released message is still ours: %v", err)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		h.Close(ended)
		if leased(store) != 0 {
			t.Errorf("%d are leased after the end", leased(store))
		}
		for _, m := range store.All(poisonQueue) {
			if !strings.HasPrefix(m.Text, "text ") {
				t.Errorf("released as %q", m.Text)
			}
		}
	})
}

// TestPersistent checks that every operation is retried if it fails temporarily, before or after its effect.
func TestPersistent(t *testing.T) {
	for _, operation := range []string{"peek", "receive", "update", "delete"} {
		for _, afterwards := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/afterwards=%v", operation, afterwards), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx := t.Context()
					failing := func(o string, call int) error {
						if o == operation && call <= 2 {
							return errors.New("no connection")
						}
						return nil
					}
					s := &store{Store: newQueue(t, 100)}
					if afterwards {
						s.after = failing
					} else {
						s.before = failing
					}
					h := newHolder(t, s, nil)
					want := 100
					if operation == "receive" && afterwards {
						want -= 2 * queue.MaxBatch // received twice without an answer, so they are invisible
					}
					shown := map[string]int{}
					choice := all(shown)
					choice.Most = true
					if take(t, h, 100, choice); len(shown) != want {
						t.Fatalf("take: %d shown", len(shown))
					}
					if err := lease.Scan(ctx, s, poisonQueue, 100, func(queue.Message) {}); err != nil {
						t.Errorf("scan: %v", err)
					}
					m := h.Find(poisonQueue, s.All(poisonQueue)[99].ID)
					advance(long - 10*time.Second)
					switch err := h.Ensure(ctx, m); {
					case operation == "update" && afterwards:
						if !errors.Is(err, lease.ErrLost) || leased(s.Store) == 0 {
							t.Errorf("a lost receipt: %v", err)
						}
						return
					case err != nil:
						t.Errorf("ensure: %v", err)
					}
					if err := h.Delete(ctx, m); err != nil || len(s.All(poisonQueue)) != 99 {
						t.Errorf("delete: %v, %d are left", err, len(s.All(poisonQueue)))
					}
				})
			})
		}
	}
}

// TestRefused checks that a refused operation is not retried.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusing := &store{Store: newQueue(t, 40), before: func(string, int) error { return queue.ErrRefused }}
		h := newHolder(t, refusing, nil)
		began := time.Now()
		if err := h.Take(t.Context(), poisonQueue, 40, all(map[string]int{})); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("take: %v", err)
		}
		if err := lease.Scan(t.Context(), refusing, poisonQueue, 40, func(queue.Message) {}); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("scan: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// TestTakeInterrupted checks that Close releases what was selected before the context ended.
func TestTakeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueue(t, 500)
		h := newHolder(t, store, nil)
		ctx, cancel := context.WithCancel(context.Background())
		n := 0
		err := h.Take(ctx, poisonQueue, 500, lease.Selection{Select: func(queue.Message) (int, bool) {
			if n++; n == 100 {
				cancel()
			}
			return n, n%2 == 0
		}})
		if err == nil || leased(store) < 50 {
			t.Errorf("%d are leased, %v", leased(store), err)
		}
		h.Close(ctx)
		advance(soon)
		if leased(store) != 0 {
			t.Errorf("%d are leased after the end", leased(store))
		}
	})
}

// TestSpool checks that texts are kept in a file without a name, which disappears with the process.
func TestSpool(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	store := memory.New()
	if err := store.Create(t.Context(), poisonQueue); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := store.Put(t.Context(), poisonQueue, queue.Item{Text: strings.Repeat("å", queue.MaxTextBytes/2-i)}); err != nil {
			t.Fatal(err)
		}
	}
	h := newHolder(t, store, nil)
	take(t, h, 20, all(map[string]int{}))
	if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
		t.Errorf("%v, %v in the folder", files, err)
	}
	for _, m := range store.All(poisonQueue) {
		if text, err := h.Text(h.Find(poisonQueue, m.ID)); err != nil || text != m.Text {
			t.Errorf("%d bytes of %d, %v", len(text), len(m.Text), err)
		}
	}
	t.Setenv("TMPDIR", folder+"/not there")
	if _, err := newHolder(t, store, nil).Adopt(0, poisonQueue, "id", "receipt", "text"); err == nil || !strings.Contains(err.Error(), "temporary file") {
		t.Errorf("no folder for the texts: %v", err)
	}
}
