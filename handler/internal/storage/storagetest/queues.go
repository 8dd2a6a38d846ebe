// Package storagetest is the contract of [storage.Queues] as tests. Every implementation runs the same suite, so the
// in-memory store of tests behaves like the service.
package storagetest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/storage"
)

const (
	// hour is a delay or lease that does not end during a test.
	hour = time.Hour
	// fraction is a delay or lease that an implementation must round up: a service that counts whole seconds
	// and cuts off the fraction would show the message too early.
	fraction = 1200 * time.Millisecond
	// patience is how long a test waits for an event, and pollInterval how often it looks.
	patience     = 30 * time.Second
	pollInterval = 50 * time.Millisecond
	// unknownID and unknownReceipt belong to no message.
	unknownID, unknownReceipt = "6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57", "AgAAAAMAAAAAAAAA"
)

// Run checks the stores that open returns; open is called once for each test. The stores may share an account:
// each test uses queues of its own, which it leaves behind. Tests take some seconds, because they wait for leases to
// end, so all of them run at the same time, however many processors there are.
func Run(t *testing.T, open func(t *testing.T) storage.Queues) {
	t.Helper()
	var running sync.WaitGroup
	for name, test := range tests {
		running.Go(func() { t.Run(name, func(t *testing.T) { test(newAccount(t, open(t))) }) })
	}
	running.Wait()
}

// RunInBubble is Run for a store in this process that uses package time. Each test runs in a testing/synctest
// bubble, so no real time passes.
func RunInBubble(t *testing.T, open func(t *testing.T) storage.Queues) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(newAccount(t, open(t))) })
		})
	}
}

var tests = map[string]func(*account){
	"create_twice":                 testCreateTwice,
	"names_by_prefix":              testNames,
	"queue_missing":                testQueueMissing,
	"queue_badly_named":            testQueueBadlyNamed,
	"context_ended":                testContextEnded,
	"count_includes_invisible":     testCount,
	"put_returns_all_but_the_text": testPutResult,
	"put_delay_in_bounds":          testPutDelayBounds,
	"put_with_time_to_live":        testPutTTL,
	"put_delay_within_ttl":         testPutDelayWithinTTL,
	"text_kept":                    testTextKept,
	"text_up_to_64_KiB":            testTextLimit,
	"text_beyond_XML":              testTextBeyondXML,
	"text_not_in_errors":           testTextNotInErrors,
	"receive":                      testReceive,
	"receive_limit":                testReceiveLimit,
	"receive_lease_bounds":         testLeaseBounds,
	"receive_again_after_lease":    testLeaseEnds,
	"receive_concurrently":         testReceiveConcurrently,
	"fraction_of_a_delay":          testFractionOfPut,
	"fraction_of_an_update":        testFractionOfUpdate,
	"fraction_of_a_lease":          testFractionOfLease,
	"delete_after_lease":           testDeleteAfterLease,
	"stale_after_delete":           testStaleAfterDelete,
	"stale_after_second_receive":   testStaleAfterSecondReceive,
	"stale_after_update":           testStaleAfterUpdate,
	"stale_unknown_message":        testStaleUnknown,
	"update":                       testUpdate,
	"update_visible_at_once":       testUpdateAtOnce,
	"peek_changes_nothing":         testPeek,
}

// account is a store and a prefix of queue names that no other test uses. Its methods fail the test.
type account struct {
	storage.Queues
	t      *testing.T
	prefix string
}

func newAccount(t *testing.T, store storage.Queues) *account {
	t.Helper()
	return &account{Queues: store, t: t, prefix: "t" + strings.ToLower(rand.Text()) + "-"}
}

func (a *account) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// mustBe checks the kind of an error.
func (a *account) mustBe(want, err error, operation string) {
	a.t.Helper()
	if !errors.Is(err, want) {
		a.t.Errorf("%s: %v, want %v", operation, err, want)
	}
}

// create makes a queue and returns its name.
func (a *account) create(suffix string) string {
	a.t.Helper()
	name := a.prefix + suffix
	a.must(a.Create(a.t.Context(), name))
	return name
}

func (a *account) put(name string, item storage.Item) storage.Message {
	a.t.Helper()
	msg, err := a.Put(a.t.Context(), name, item)
	a.must(err)
	return msg
}

// putOne makes a queue with one message and receives that.
func (a *account) putOne(suffix string, lease time.Duration) (name string, msg storage.Message) {
	a.t.Helper()
	name = a.create(suffix)
	a.put(name, storage.Item{Text: "text"})
	return name, a.receive(name, lease)
}

func (a *account) update(name string, msg storage.Message, text string, delay time.Duration) (receipt string) {
	a.t.Helper()
	receipt, err := a.Update(a.t.Context(), name, msg.ID, msg.PopReceipt, text, delay)
	a.must(err)
	return receipt
}

func (a *account) remove(name, id, receipt string) {
	a.t.Helper()
	a.must(a.Delete(a.t.Context(), name, id, receipt))
}

// receive returns the one message that the queue is expected to show, and waits for it if needed.
func (a *account) receive(name string, lease time.Duration) storage.Message {
	a.t.Helper()
	var received []storage.Message
	a.eventually("a message", func() bool {
		received = a.receiveAll(name, lease)
		return len(received) > 0
	})
	if len(received) != 1 {
		a.t.Fatalf("received %d messages, want 1", len(received))
	}
	return received[0]
}

func (a *account) receiveAll(name string, lease time.Duration) []storage.Message {
	a.t.Helper()
	messages, err := a.Receive(a.t.Context(), name, storage.MaxBatch, lease)
	a.must(err)
	return messages
}

func (a *account) peek(name string) []storage.Message {
	a.t.Helper()
	messages, err := a.Peek(a.t.Context(), name, storage.MaxBatch)
	a.must(err)
	return messages
}

func (a *account) mustCount(name string, want int) {
	a.t.Helper()
	if got, err := a.Count(a.t.Context(), name); err != nil || got != want {
		a.t.Fatalf("Count = %d, %v; want %d", got, err, want)
	}
}

func (a *account) mustShowNothing(name string) {
	a.t.Helper()
	if peeked, received := a.peek(name), a.receiveAll(name, hour); len(peeked)+len(received) != 0 {
		a.t.Fatalf("peeked %d and received %d messages, want none", len(peeked), len(received))
	}
}

// mustBeStale checks that neither Update nor Delete accepts the receipt.
func (a *account) mustBeStale(name, id, receipt string) {
	a.t.Helper()
	a.mustBe(storage.ErrStale, a.Delete(a.t.Context(), name, id, receipt), "delete of "+id+" with receipt "+receipt)
	a.mustBe(storage.ErrStale, errorOf(a.Update(a.t.Context(), name, id, receipt, "stale", 0)),
		"update of "+id+" with receipt "+receipt)
}

// eventually waits until the condition holds.
func (a *account) eventually(what string, condition func() bool) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			a.t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// operation is one method of a store, called with valid arguments except for the queue.
type operation func(ctx context.Context, name string) error

// operations returns the operations on a queue that must exist.
func (a *account) operations() map[string]operation {
	return map[string]operation{
		"put": func(ctx context.Context, name string) error {
			return errorOf(a.Put(ctx, name, storage.Item{Text: "x"}))
		},
		"update": func(ctx context.Context, name string) error {
			return errorOf(a.Update(ctx, name, unknownID, unknownReceipt, "x", 0))
		},
		"delete": func(ctx context.Context, name string) error {
			return a.Delete(ctx, name, unknownID, unknownReceipt)
		},
		"receive": func(ctx context.Context, name string) error { return errorOf(a.Receive(ctx, name, 1, hour)) },
		"peek":    func(ctx context.Context, name string) error { return errorOf(a.Peek(ctx, name, 1)) },
		"count":   func(ctx context.Context, name string) error { return errorOf(a.Count(ctx, name)) },
	}
}

// errorOf returns the error of a method's results.
func errorOf(_ any, err error) error { return err }
