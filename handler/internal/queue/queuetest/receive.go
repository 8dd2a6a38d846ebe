package queuetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/queue"
)

const (
	shortest = time.Second
	longest  = 7 * 24 * time.Hour
)

func testReceive(t *testing.T, a *account) {
	name := a.mustCreate(t, "receive")
	if messages := a.received(t, name, hour); len(messages) != 0 {
		t.Fatalf("received %d messages from an empty queue", len(messages))
	}
	put := a.mustPut(t, name, queue.Item{Text: "text"})
	msg := a.mustReceive(t, name, hour)
	if msg.ID != put.ID || msg.Text != "text" || msg.DequeueCount != 1 || msg.PopReceipt == "" {
		t.Errorf("received %+v, want the message put, for the first time, with a receipt", msg)
	}
	if left := time.Until(msg.NextVisibleAt); left < hour-time.Minute || left > hour+time.Minute {
		t.Errorf("lease ends in %s, want %s", left, hour)
	}
	a.mustShowNothing(t, name)
}

func testReceiveLimit(t *testing.T, a *account) {
	const total = queue.MaxBatch + 3
	name := a.mustCreate(t, "many")
	for i := range total {
		a.mustPut(t, name, queue.Item{Text: fmt.Sprint(i)})
	}
	for _, limit := range []int{-1, 0, queue.MaxBatch + 1, 1 << 40} {
		if _, err := a.Receive(t.Context(), name, limit, hour); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("receive of %d: %v, want ErrRefused", limit, err)
		}
		if _, err := a.Peek(t.Context(), name, limit); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("peek of %d: %v, want ErrRefused", limit, err)
		}
	}
	seen := make(map[string]bool)
	for _, limit := range []int{1, 2, queue.MaxBatch} {
		if messages, err := a.Peek(t.Context(), name, limit); err != nil || len(messages) < 1 || len(messages) > limit {
			t.Errorf("peeked %d messages, %v; want 1 to %d", len(messages), err, limit)
		}
		messages, err := a.Receive(t.Context(), name, limit, hour)
		if err != nil || len(messages) < 1 || len(messages) > limit {
			t.Errorf("received %d messages, %v; want 1 to %d", len(messages), err, limit)
		}
		for _, m := range messages {
			seen[m.ID] = true
		}
	}
	a.eventually(t, "all messages", func() bool {
		for _, m := range a.received(t, name, hour) {
			seen[m.ID] = true
		}
		return len(seen) == total
	})
}

func testLeaseBounds(t *testing.T, a *account) {
	name := a.mustCreate(t, "lease")
	a.mustPut(t, name, queue.Item{Text: "x"})
	for _, lease := range []time.Duration{-time.Second, 0, longest + time.Second, 1<<63 - 1} {
		if _, err := a.Receive(t.Context(), name, 1, lease); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("lease of %s: %v, want ErrRefused", lease, err)
		}
	}
	msg := a.mustReceive(t, name, longest)
	if msg.DequeueCount != 1 {
		t.Errorf("dequeue count %d: a refused receive counted", msg.DequeueCount)
	}
	if left := time.Until(msg.NextVisibleAt); left < longest-time.Minute || left > longest+time.Minute {
		t.Errorf("lease ends in %s, want %s", left, longest)
	}
}

func testLeaseEnds(t *testing.T, a *account) {
	name := a.mustCreate(t, "again")
	a.mustPut(t, name, queue.Item{Text: "again"})
	first := a.mustReceive(t, name, shortest)
	second := a.mustReceive(t, name, hour)
	if second.ID != first.ID || second.Text != "again" || second.DequeueCount != 2 {
		t.Errorf("received %+v, want the same message for the second time", second)
	}
}

func testLeaseFraction(t *testing.T, a *account) {
	const lease = 1200 * time.Millisecond
	name := a.mustCreate(t, "fraction")
	a.mustPut(t, name, queue.Item{Text: "x"})
	start := time.Now()
	a.mustReceive(t, name, lease)
	a.mustReceive(t, name, hour)
	if took := time.Since(start); took < lease {
		t.Errorf("visible again after %s, before the end of its lease of %s", took, lease)
	}
}

func testReceiveConcurrently(t *testing.T, a *account) {
	const total, receivers = 40, 8
	name := a.mustCreate(t, "race")
	for range total {
		a.mustPut(t, name, queue.Item{Text: "x"})
	}
	var (
		mu   sync.Mutex
		seen = make(map[string]int)
		wg   sync.WaitGroup
	)
	for range receivers {
		wg.Go(func() {
			for {
				messages, err := a.Receive(t.Context(), name, 3, hour)
				if err != nil {
					t.Error(err)
				}
				if len(messages) == 0 {
					return
				}
				mu.Lock()
				for _, m := range messages {
					seen[m.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, times := range seen {
		if times != 1 {
			t.Errorf("message %s was received %d times", id, times)
		}
	}
	if len(seen) != total {
		t.Errorf("%d messages were received, want %d", len(seen), total)
	}
}

func testPeek(t *testing.T, a *account) {
	name := a.mustCreate(t, "peek")
	put := a.mustPut(t, name, queue.Item{Text: "seen"})
	a.mustPut(t, name, queue.Item{Text: "unseen", Delay: hour})
	for range 3 {
		peeked := a.peeked(t, name)
		if len(peeked) != 1 {
			t.Fatalf("peeked %d messages, want the visible one", len(peeked))
		}
		want := queue.Message{ID: put.ID, Text: "seen", InsertedAt: put.InsertedAt, ExpiresAt: put.ExpiresAt}
		if peeked[0] != want {
			t.Errorf("peeked %+v, want %+v", peeked[0], want)
		}
	}
	if msg := a.mustReceive(t, name, shortest); msg.DequeueCount != 1 {
		t.Errorf("received for the %d. time, want the first", msg.DequeueCount)
	}
	a.eventually(t, "the lease to end", func() bool { return len(a.peeked(t, name)) == 1 })
	if got := a.peeked(t, name)[0].DequeueCount; got != 1 {
		t.Errorf("peeked dequeue count %d, want 1", got)
	}
}
