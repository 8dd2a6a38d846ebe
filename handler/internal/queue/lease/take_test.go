package lease_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
	"asynccaller/handler/internal/queue/memory"
)

// TestTake: every message is shown once, what is chosen is kept, and the rest is visible afterwards.
func TestTake(t *testing.T) {
	for _, n := range []int{0, 1, 32, 33, 500} {
		for _, most := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/most=%v", n, most), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newQueue(t, n)
					h := newHold(t, store, nil)
					shown := map[string]int{}
					choice := all(shown)
					choice.Most = most
					choose := choice.Choose
					choice.Choose = func(m queue.Message) (int, bool) {
						number, _ := choose(m)
						return number, number%2 == 1
					}
					seen, err := h.Take(t.Context(), poisonQueue, choice)
					if err != nil || seen != n || len(shown) != n {
						t.Fatalf("seen %d, shown %d of %d, %v", seen, len(shown), n, err)
					}
					h.GiveBackOthers(t.Context())
					for id, times := range shown {
						if times != 1 {
							t.Errorf("%s was shown %d times", id, times)
						}
					}
					<-time.After(soon)
					if away(store) != n/2 {
						t.Errorf("%d are away, want the %d that were chosen", away(store), n/2)
					}
					for _, m := range store.All(poisonQueue) {
						held := h.Find(poisonQueue, m.ID)
						if (held != nil) != m.NextVisibleAt.After(time.Now()) {
							t.Errorf("%s is held %v, visible at %v", m.ID, held != nil, m.NextVisibleAt)
						}
						if held == nil {
							continue
						}
						if text, err := h.Text(held); err != nil || text != m.Text || held.PopReceipt() != m.PopReceipt || held.Number%2 == 0 {
							t.Errorf("held %q, %v, number %d; there is %q", text, err, held.Number, m.Text)
						}
					}
					h.Close(t.Context())
					<-time.After(soon)
					if away(store) != 0 {
						t.Errorf("%d are away after the end", away(store))
					}
				})
			})
		}
	}
}

// TestTakeSlowly: messages whose leases end while the rest is looked at come again, but are shown once.
func TestTakeSlowly(t *testing.T) {
	for name, keep := range map[string]bool{"chosen": true, "others": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := &store{Store: newQueue(t, 1000), takes: func(operation string, call int) time.Duration {
					if operation == "receive" && call > 4 { // nothing tells beforehand
						return 9 * time.Second
					}
					return time.Millisecond
				}}
				h := newHold(t, slow, nil)
				shown := map[string]int{}
				seen, err := h.Take(t.Context(), poisonQueue, lease.Choice{Choose: func(m queue.Message) (int, bool) {
					shown[m.ID]++
					return 0, keep
				}})
				if err != nil || seen != 1000 || len(shown) != 1000 {
					t.Errorf("seen %d, shown %d, %v", seen, len(shown), err)
				}
				for id, times := range shown {
					if times != 1 {
						t.Errorf("%s was shown %d times", id, times)
					}
				}
				h.GiveBackOthers(t.Context())
				again := false
				for _, m := range slow.All(poisonQueue) {
					again = again || m.DequeueCount > 1
					if held := h.Find(poisonQueue, m.ID); held != nil && held.PopReceipt() != m.PopReceipt {
						t.Errorf("%s is held by an old receipt", m.ID)
					}
				}
				if !again {
					t.Error("no lease has ended: the test shows nothing")
				}
				<-time.After(9*time.Second + soon) // the last answer was as slow
				want := 0
				if keep {
					want = 1000
				}
				if away(slow.Store) != want {
					t.Errorf("%d are away, want %d", away(slow.Store), want)
				}
			})
		})
	}
}

// TestTakeBesideRenew: leases are looked after while messages are still being chosen. What is held is what was
// chosen by then, as a whole: the race detector sees a message that others see half made.
func TestTakeBesideRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueue(t, 40)
		var renewed sync.Map
		h := newHold(t, store, func(m *lease.Message, _ string) { renewed.Store(m.Number, true) })
		var renewing sync.WaitGroup
		number := 0
		seen, err := h.Take(t.Context(), poisonQueue, lease.Choice{Choose: func(m queue.Message) (int, bool) {
			if h.Find(poisonQueue, m.ID) != nil {
				t.Errorf("%s is held before it is chosen", m.ID)
			}
			renewing.Go(func() { h.Secure(t.Context()) })
			<-time.After(time.Millisecond) // so that it runs now
			number++
			return number, true
		}})
		renewing.Wait()
		if err != nil || seen != 40 || len(h.All()) != 40 {
			t.Errorf("seen %d, held %d of 40, %v", seen, len(h.All()), err)
		}
		<-time.After(long - long/4)
		h.Secure(t.Context())
		for n := 1; n <= 40; n++ {
			if _, ok := renewed.Load(n); !ok {
				t.Errorf("number %d was not renewed", n)
			}
		}
	})
}

func TestTakeEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueue(t, 500)
		h := newHold(t, store, nil)
		chosen := 0
		_, err := h.Take(t.Context(), poisonQueue, lease.Choice{
			Choose: func(queue.Message) (int, bool) {
				if chosen == 40 {
					return 0, false
				}
				chosen++
				return chosen, true
			},
			Enough: func() bool { return chosen == 40 },
		})
		h.GiveBackOthers(t.Context())
		<-time.After(soon)
		if err != nil || away(store) != 40 {
			t.Errorf("%d are away, %v", away(store), err)
		}
		untouched := 0
		for _, m := range store.All(poisonQueue) {
			if m.DequeueCount == 0 {
				untouched++
			}
		}
		if untouched != 500-2*queue.MaxBatch {
			t.Errorf("%d were not touched", untouched)
		}
	})
}

// TestNoQueue: a queue that does not exist holds nothing.
func TestNoQueue(t *testing.T) {
	h := newHold(t, memory.New(), nil)
	if seen, err := h.Take(t.Context(), poisonQueue, all(map[string]int{})); seen != 0 || err != nil {
		t.Errorf("take: %d, %v", seen, err)
	}
	if seen, err := h.Look(t.Context(), poisonQueue, func(queue.Message) {}); seen != 0 || err != nil {
		t.Errorf("look: %d, %v", seen, err)
	}
}

// TestLook: a short queue is looked at without a trace, a long one is as it was afterwards.
func TestLook(t *testing.T) {
	for n, deliveries := range map[int]int64{0: 0, 1: 0, 31: 0, 33: 1, 500: 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueue(t, n)
				h := newHold(t, store, nil)
				shown := map[string]int{}
				seen, err := h.Look(t.Context(), poisonQueue, func(m queue.Message) { shown[m.ID]++ })
				if err != nil || seen != n || len(shown) != n {
					t.Errorf("seen %d, shown %d, %v", seen, len(shown), err)
				}
				h.Close(t.Context())
				<-time.After(soon)
				for i, m := range store.All(poisonQueue) {
					if m.DequeueCount != deliveries || m.NextVisibleAt.After(time.Now()) {
						t.Fatalf("message %d: %+v", i, m)
					}
				}
			})
		})
	}
}

// TestTwoHolds: what one has, the other never gets.
func TestTwoHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueue(t, 500)
		var holds [2]map[string]int
		var taking sync.WaitGroup
		for i := range holds {
			holds[i] = map[string]int{}
			h := newHold(t, store, nil)
			taking.Go(func() {
				if _, err := h.Take(t.Context(), poisonQueue, all(holds[i])); err != nil {
					t.Error(err)
				}
			})
		}
		taking.Wait()
		for id := range holds[0] {
			if holds[1][id] > 0 {
				t.Errorf("both have %s", id)
			}
		}
		if n := len(holds[0]) + len(holds[1]); n != 500 {
			t.Errorf("they have %d together", n)
		}
	})
}
