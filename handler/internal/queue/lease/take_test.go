package lease_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

// TestTake checks that every message is shown once, that selected ones are held, and others visible afterwards.
func TestTake(t *testing.T) {
	for _, n := range []int{0, 1, 32, 33, 500} {
		for _, most := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/most=%v", n, most), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newQueue(t, n)
					h := newHolder(t, store, nil)
					shown := map[string]int{}
					choice := all(shown)
					choice.Most = most
					choose := choice.Select
					choice.Select = func(m queue.Message) (int, bool) {
						number, _ := choose(m)
						return number, number%2 == 1
					}
					if take(t, h, n, choice); len(shown) != n {
						t.Fatalf("%d of %d are shown", len(shown), n)
					}
					for id, times := range shown {
						if times != 1 {
							t.Errorf("%s was shown %d times", id, times)
						}
					}
					advance(soon)
					if leased(store) != n/2 {
						t.Errorf("%d are leased, want the %d selected ones", leased(store), n/2)
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
							t.Errorf("held %q, %v, number %d; the queue has %q", text, err, held.Number, m.Text)
						}
					}
					h.Close(t.Context())
					advance(soon)
					if leased(store) != 0 {
						t.Errorf("%d are leased after the end", leased(store))
					}
				})
			})
		}
	}
}

// TestTakeSlowly checks that messages are shown only once, even if their leases end before the queue was read.
func TestTakeSlowly(t *testing.T) {
	for name, keep := range map[string]bool{"chosen": true, "others": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := &store{Store: newQueue(t, 1000), takes: func(operation string, call int) time.Duration {
					if operation == "receive" && call > 4 { // after the estimate
						return 9 * time.Second
					}
					return time.Millisecond
				}}
				h := newHolder(t, slow, nil)
				shown := map[string]int{}
				take(t, h, 1000, lease.Selection{Select: func(m queue.Message) (int, bool) {
					shown[m.ID]++
					return 0, keep
				}})
				if len(shown) != 1000 {
					t.Errorf("%d are shown", len(shown))
				}
				for id, times := range shown {
					if times != 1 {
						t.Errorf("%s was shown %d times", id, times)
					}
				}
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
				advance(9*time.Second + soon) // the last answer was slow as well
				want := 0
				if keep {
					want = 1000
				}
				if leased(slow.Store) != want {
					t.Errorf("%d are leased, want %d", leased(slow.Store), want)
				}
			})
		})
	}
}

// TestTakeBesideRenew renews leases while messages are still being selected. The race detector would report a
// message that is shared before it is complete.
func TestTakeBesideRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueue(t, 40)
		var renewed sync.Map
		h := newHolder(t, store, func(number int, _ string) { renewed.Store(number, true) })
		var renewing sync.WaitGroup
		number := 0
		take(t, h, 40, lease.Selection{Select: func(m queue.Message) (int, bool) {
			if h.Find(poisonQueue, m.ID) != nil {
				t.Errorf("%s is held before it is chosen", m.ID)
			}
			renewing.Go(func() { h.RenewDue(t.Context()) })
			synctest.Wait() // until it has run
			number++
			return number, true
		}})
		renewing.Wait()
		if number != 40 || len(h.All()) != 40 {
			t.Errorf("shown %d, held %d of 40", number, len(h.All()))
		}
		advance(long - long/4)
		h.RenewDue(t.Context())
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
		h := newHolder(t, store, nil)
		chosen := 0
		take(t, h, 500, lease.Selection{
			Select: func(queue.Message) (int, bool) {
				if chosen == 40 {
					return 0, false
				}
				chosen++
				return chosen, true
			},
			Enough: func() bool { return chosen == 40 },
		})
		advance(soon)
		if leased(store) != 40 {
			t.Errorf("%d are leased", leased(store))
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

// TestScan: a short queue is read without side effects, a long one is unchanged but for the dequeue counts.
func TestScan(t *testing.T) {
	for n, deliveries := range map[int]int64{0: 0, 1: 0, 31: 0, 33: 1, 500: 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueue(t, n)
				shown := map[string]int{}
				err := lease.Scan(t.Context(), store, poisonQueue, n, func(m queue.Message) { shown[m.ID]++ })
				if err != nil || len(shown) != n {
					t.Errorf("%d are shown, %v", len(shown), err)
				}
				advance(soon)
				for i, m := range store.All(poisonQueue) {
					if m.DequeueCount != deliveries || m.NextVisibleAt.After(time.Now()) {
						t.Fatalf("message %d: %+v", i, m)
					}
				}
			})
		})
	}
}

// TestTwoHolders: two holders never get the same message.
func TestTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueue(t, 500)
		var holds [2]map[string]int
		var taking sync.WaitGroup
		for i := range holds {
			holds[i] = map[string]int{}
			h := newHolder(t, store, nil)
			taking.Go(func() { take(t, h, 500, all(holds[i])) })
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
