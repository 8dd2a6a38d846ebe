package storagetest

import (
	"time"

	"asynccaller/handler/internal/storage"
)

func testStaleAfterDelete(a *account) {
	name, msg := a.putOne("delete", hour)
	a.remove(name, msg.ID, msg.PopReceipt)
	a.mustCount(name, 0)
	a.mustBeStale(name, msg.ID, msg.PopReceipt)
}

func testDeleteAfterLease(a *account) {
	name, msg := a.putOne("late", storage.MinLease)
	a.eventually("the lease to end", func() bool { return len(a.peek(name)) == 1 })
	a.remove(name, msg.ID, msg.PopReceipt) // without another receive the receipt is still the newest one
	a.mustCount(name, 0)
}

func testStaleAfterSecondReceive(a *account) {
	name, first := a.putOne("second", storage.MinLease)
	second := a.receive(name, hour)
	a.mustBeStale(name, first.ID, first.PopReceipt)
	a.remove(name, second.ID, second.PopReceipt)
}

func testStaleAfterUpdate(a *account) {
	name, msg := a.putOne("updated", hour)
	receipt := a.update(name, msg, "y", hour)
	a.mustBeStale(name, msg.ID, msg.PopReceipt)
	a.remove(name, msg.ID, receipt)
}

func testStaleUnknown(a *account) {
	name, msg := a.putOne("unknown", hour)
	// With some of these ids, the URL of Delete Message would be that of Clear Messages or of the queue.
	for _, id := range []string{unknownID, "", ".", "..", "/", "?", "#", msg.ID + "?x", msg.ID + "/../" + msg.ID} {
		a.mustBeStale(name, id, msg.PopReceipt)
	}
	a.mustBeStale(name, msg.ID, "")
	a.mustCount(name, 1)
	a.remove(name, msg.ID, msg.PopReceipt)
}

func testUpdate(a *account) {
	name, msg := a.putOne("update", hour)
	msg.PopReceipt = a.update(name, msg, "hidden", hour)
	a.mustShowNothing(name)
	if receipt := a.update(name, msg, "after", storage.MinLease); receipt == "" {
		a.t.Error("no new pop receipt")
	}
	got := a.receive(name, hour)
	if got.ID != msg.ID || got.Text != "after" || got.DequeueCount != 2 {
		a.t.Errorf("received %+v, want the same message with the new text, for the second time", got)
	}
	if !got.InsertedAt.Equal(msg.InsertedAt) || !got.ExpiresAt.Equal(msg.ExpiresAt) {
		a.t.Errorf("inserted at %s, expires at %s; want no change: %+v", got.InsertedAt, got.ExpiresAt, msg)
	}
}

func testUpdateAtOnce(a *account) {
	name, msg := a.putOne("at-once", hour)
	for _, delay := range []time.Duration{0, -hour} {
		a.update(name, msg, "y", delay)
		msg = a.receive(name, hour)
		if msg.Text != "y" {
			a.t.Errorf("received %q after an update with delay %s", msg.Text, delay)
		}
	}
	for _, delay := range []time.Duration{storage.MaxDelay, storage.MaxDelay + hour} { // cut, not refused
		msg.PopReceipt = a.update(name, msg, "z", delay)
	}
	a.mustShowNothing(name)
}
