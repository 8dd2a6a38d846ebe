package queuetest

import (
	"errors"
	"testing"
	"time"

	"asynccaller/handler/internal/queue"
)

// mustBeStale checks that the receipt is good for nothing, and leaves the message alone.
func (a *account) mustBeStale(t *testing.T, name, id, receipt string) {
	t.Helper()
	if err := a.Delete(t.Context(), name, id, receipt); !errors.Is(err, queue.ErrStale) {
		t.Errorf("delete of message %q with receipt %q: %v, want ErrStale", id, receipt, err)
	}
	if _, err := a.Update(t.Context(), name, id, receipt, "stale", 0); !errors.Is(err, queue.ErrStale) {
		t.Errorf("update of message %q with receipt %q: %v, want ErrStale", id, receipt, err)
	}
}

func testDelete(t *testing.T, a *account) {
	name := a.mustCreate(t, "delete")
	a.mustPut(t, name, queue.Item{Text: "x"})
	msg := a.mustReceive(t, name, hour)
	if err := a.Delete(t.Context(), name, msg.ID, msg.PopReceipt); err != nil {
		t.Fatal(err)
	}
	a.mustCount(t, name, 0)
	a.mustBeStale(t, name, msg.ID, msg.PopReceipt)
}

func testDeleteAfterLease(t *testing.T, a *account) {
	name := a.mustCreate(t, "late")
	a.mustPut(t, name, queue.Item{Text: "x"})
	msg := a.mustReceive(t, name, shortest)
	a.eventually(t, "the lease to end", func() bool { return len(a.peeked(t, name)) == 1 })
	// Nobody else has received it: the receipt is still its newest one.
	if err := a.Delete(t.Context(), name, msg.ID, msg.PopReceipt); err != nil {
		t.Fatal(err)
	}
	a.mustCount(t, name, 0)
}

func testStaleAfterSecondReceive(t *testing.T, a *account) {
	name := a.mustCreate(t, "second")
	a.mustPut(t, name, queue.Item{Text: "x"})
	first := a.mustReceive(t, name, shortest)
	second := a.mustReceive(t, name, hour)
	a.mustBeStale(t, name, first.ID, first.PopReceipt)
	if err := a.Delete(t.Context(), name, second.ID, second.PopReceipt); err != nil {
		t.Fatal(err)
	}
}

func testStaleAfterUpdate(t *testing.T, a *account) {
	name := a.mustCreate(t, "updated")
	a.mustPut(t, name, queue.Item{Text: "x"})
	msg := a.mustReceive(t, name, hour)
	receipt := a.mustUpdate(t, name, msg, "y", hour)
	a.mustBeStale(t, name, msg.ID, msg.PopReceipt)
	if err := a.Delete(t.Context(), name, msg.ID, receipt); err != nil {
		t.Fatal(err)
	}
}

func testStaleUnknown(t *testing.T, a *account) {
	name := a.mustCreate(t, "unknown")
	a.mustPut(t, name, queue.Item{Text: "stays"})
	msg := a.mustReceive(t, name, hour)
	a.mustBeStale(t, name, "6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57", msg.PopReceipt)
	// With one of these, the URL of Delete Message would be that of Clear Messages or of the queue.
	for _, id := range []string{"", ".", "..", "/", "?", "#", msg.ID + "?x", msg.ID + "/../" + msg.ID} {
		a.mustBeStale(t, name, id, msg.PopReceipt)
	}
	a.mustBeStale(t, name, msg.ID, "")
	a.mustCount(t, name, 1)
	if err := a.Delete(t.Context(), name, msg.ID, msg.PopReceipt); err != nil {
		t.Errorf("delete after all that: %v", err)
	}
}

func testUpdate(t *testing.T, a *account) {
	name := a.mustCreate(t, "update")
	a.mustPut(t, name, queue.Item{Text: "before"})
	msg := a.mustReceive(t, name, hour)
	msg.PopReceipt = a.mustUpdate(t, name, msg, "hidden", hour)
	a.mustShowNothing(t, name)
	if receipt := a.mustUpdate(t, name, msg, "after", shortest); receipt == "" {
		t.Error("no new pop receipt")
	}
	got := a.mustReceive(t, name, hour)
	if got.ID != msg.ID || got.Text != "after" || got.DequeueCount != 2 {
		t.Errorf("received %+v, want the same message with the new text, for the second time", got)
	}
	if !got.InsertedAt.Equal(msg.InsertedAt) || !got.ExpiresAt.Equal(msg.ExpiresAt) {
		t.Errorf("inserted at %s, expires at %s; want no change: %+v", got.InsertedAt, got.ExpiresAt, msg)
	}
}

func testUpdateAtOnce(t *testing.T, a *account) {
	name := a.mustCreate(t, "at-once")
	a.mustPut(t, name, queue.Item{Text: "x"})
	msg := a.mustReceive(t, name, hour)
	for _, delay := range []time.Duration{0, -hour} {
		a.mustUpdate(t, name, msg, "y", delay)
		if msg = a.mustReceive(t, name, hour); msg.Text != "y" {
			t.Errorf("received %q after an update with delay %s", msg.Text, delay)
		}
	}
	for _, delay := range []time.Duration{queue.MaxDelay, queue.MaxDelay + hour} { // cut, not refused
		msg.PopReceipt = a.mustUpdate(t, name, msg, "z", delay)
	}
	a.mustShowNothing(t, name)
}

func testUpdateFraction(t *testing.T, a *account) {
	const delay = 1200 * time.Millisecond
	name := a.mustCreate(t, "update-fraction")
	a.mustPut(t, name, queue.Item{Text: "x"})
	msg := a.mustReceive(t, name, hour)
	start := time.Now()
	a.mustUpdate(t, name, msg, "y", delay)
	a.mustReceive(t, name, hour)
	if took := time.Since(start); took < delay {
		t.Errorf("visible after %s, before its delay of %s", took, delay)
	}
}

func testUpdateKeepsTTL(t *testing.T, a *account) {
	name := a.mustCreate(t, "update-ttl")
	put := a.mustPut(t, name, queue.Item{Text: "x", TTL: hour})
	msg := a.mustReceive(t, name, hour)
	a.mustUpdate(t, name, msg, "y", 0)
	if got := a.mustReceive(t, name, hour); !got.ExpiresAt.Equal(put.ExpiresAt) {
		t.Errorf("expires at %s after an update, want no change: %s", got.ExpiresAt, put.ExpiresAt)
	}
}
