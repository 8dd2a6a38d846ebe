package storagetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"asynccaller/handler/internal/storage"
)

// mustLease checks when a lease ends, give or take a minute.
func (a *account) mustLease(msg storage.Message, lease time.Duration) {
	a.t.Helper()
	if left := time.Until(msg.NextVisibleAt); (left - lease).Abs() > time.Minute {
		a.t.Errorf("lease ends in %s, want %s", left, lease)
	}
}

func testReceive(a *account) {
	name := a.create("receive")
	a.mustShowNothing(name)
	put := a.put(name, storage.Item{Text: "text"})
	msg := a.receive(name, hour)
	if msg.ID != put.ID || msg.Text != "text" || msg.DequeueCount != 1 || msg.PopReceipt == "" {
		a.t.Errorf("received %+v, want the message put, for the first time, with a receipt", msg)
	}
	a.mustLease(msg, hour)
	a.mustShowNothing(name)
}

func testReceiveLimit(a *account) {
	const total = storage.MaxBatch + 3
	name := a.create("many")
	for i := range total {
		a.put(name, storage.Item{Text: fmt.Sprint(i)})
	}
	for _, limit := range []int{-1, 0, storage.MaxBatch + 1, 1 << 40} {
		a.mustBe(storage.ErrRefused, errorOf(a.Receive(a.t.Context(), name, limit, hour)),
			fmt.Sprintf("receive of %d", limit))
		a.mustBe(storage.ErrRefused, errorOf(a.Peek(a.t.Context(), name, limit)), fmt.Sprintf("peek of %d", limit))
	}
	seen := make(map[string]bool)
	for _, limit := range []int{1, 2, storage.MaxBatch} {
		peeked, err := a.Peek(a.t.Context(), name, limit)
		a.must(err)
		received, err := a.Receive(a.t.Context(), name, limit, hour)
		a.must(err)
		for _, n := range []int{len(peeked), len(received)} {
			if n < 1 || n > limit {
				a.t.Errorf("got %d messages, want 1 to %d", n, limit)
			}
		}
		for _, m := range received {
			seen[m.ID] = true
		}
	}
	a.eventually("all messages", func() bool {
		for _, m := range a.receiveAll(name, hour) {
			seen[m.ID] = true
		}
		return len(seen) == total
	})
}

func testLeaseBounds(a *account) {
	name := a.create("lease")
	a.put(name, storage.Item{Text: "x"})
	for _, lease := range []time.Duration{-time.Second, 0, storage.MaxLease + time.Second, 1<<63 - 1} {
		a.mustBe(storage.ErrRefused, errorOf(a.Receive(a.t.Context(), name, 1, lease)),
			fmt.Sprintf("lease of %s", lease))
	}
	msg := a.receive(name, storage.MaxLease)
	if msg.DequeueCount != 1 {
		a.t.Errorf("dequeue count %d: a refused receive counted", msg.DequeueCount)
	}
	a.mustLease(msg, storage.MaxLease)
}

func testLeaseEnds(a *account) {
	name, first := a.putOne("again", storage.MinLease)
	second := a.receive(name, hour)
	if second.ID != first.ID || second.Text != first.Text || second.DequeueCount != 2 {
		a.t.Errorf("received %+v, want the same message for the second time", second)
	}
}

func testReceiveConcurrently(a *account) {
	const total, receivers = 40, 8
	name := a.create("race")
	for range total {
		a.put(name, storage.Item{Text: "x"})
	}
	var wg sync.WaitGroup
	var received atomic.Int64
	var seen sync.Map
	for range receivers {
		wg.Go(func() {
			for {
				messages, err := a.Receive(a.t.Context(), name, 3, hour)
				if err != nil {
					a.t.Error(err)
				}
				if len(messages) == 0 {
					return
				}
				for _, m := range messages {
					received.Add(1)
					if _, again := seen.LoadOrStore(m.ID, true); again {
						a.t.Errorf("message %s was received twice", m.ID)
					}
				}
			}
		})
	}
	wg.Wait()
	if received.Load() != total {
		a.t.Errorf("%d messages were received, want %d", received.Load(), total)
	}
}

func testPeek(a *account) {
	name := a.create("peek")
	put := a.put(name, storage.Item{Text: "seen"})
	a.put(name, storage.Item{Text: "unseen", Delay: hour})
	want := storage.Message{ID: put.ID, Text: "seen", InsertedAt: put.InsertedAt, ExpiresAt: put.ExpiresAt}
	for range 3 {
		if peeked := a.peek(name); len(peeked) != 1 || peeked[0] != want {
			a.t.Fatalf("peeked %+v, want %+v alone", peeked, want)
		}
	}
	if msg := a.receive(name, storage.MinLease); msg.DequeueCount != 1 {
		a.t.Errorf("dequeue count %d after the first receive", msg.DequeueCount)
	}
	a.eventually("the lease to end", func() bool {
		peeked := a.peek(name)
		return len(peeked) == 1 && peeked[0].DequeueCount == 1
	})
}
