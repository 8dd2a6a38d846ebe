// Package queuetest says in tests what [queue.Store] promises. Every implementation runs the same suite, so
// that what passes against the fake in memory is true of the service as well.
package queuetest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/queue"
)

const (
	// hour is a delay or lease that does not end during a test.
	hour = time.Hour
	// patience is how long a test waits for what must happen; it is only used up by a failure.
	patience = 30 * time.Second
	// pollInterval is how often it looks.
	pollInterval = 50 * time.Millisecond
)

// Run checks the stores that open returns; open is called once for every test, and cleans up after itself
// with t.Cleanup. The stores may share an account: each test uses queues of its own, which it leaves
// behind. Tests run in parallel and take some seconds, for they wait for leases of the shortest kind.
func Run(t *testing.T, open func(t *testing.T) queue.Store) {
	t.Helper()
	for name, test := range tests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newAccount(open(t)))
		})
	}
}

// RunInBubble is Run for a store that lives in this process and takes its time from package time: each test
// runs in a testing/synctest bubble, open included, and no real time passes.
func RunInBubble(t *testing.T, open func(t *testing.T) queue.Store) {
	t.Helper()
	for name, test := range tests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newAccount(open(t))) })
		})
	}
}

func tests() map[string]func(*testing.T, *account) {
	return map[string]func(*testing.T, *account){
		"create_twice":                 testCreateTwice,
		"names_by_prefix":              testNames,
		"queue_missing":                testQueueMissing,
		"queue_badly_named":            testQueueBadlyNamed,
		"context_ended":                testContextEnded,
		"put_tells_all_but_the_text":   testPutResult,
		"put_delayed":                  testPutDelayed,
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
		"receive_fraction_of_a_second": testLeaseFraction,
		"receive_concurrently":         testReceiveConcurrently,
		"delete":                       testDelete,
		"delete_after_lease":           testDeleteAfterLease,
		"stale_after_second_receive":   testStaleAfterSecondReceive,
		"stale_after_update":           testStaleAfterUpdate,
		"stale_unknown_message":        testStaleUnknown,
		"update":                       testUpdate,
		"update_visible_at_once":       testUpdateAtOnce,
		"update_fraction_of_a_second":  testUpdateFraction,
		"update_keeps_time_to_live":    testUpdateKeepsTTL,
		"peek_changes_nothing":         testPeek,
		"count_includes_invisible":     testCount,
	}
}

// account is a store and a prefix that no other test's queues have.
type account struct {
	queue.Store
	prefix string
}

func newAccount(store queue.Store) *account {
	return &account{Store: store, prefix: "t" + strings.ToLower(rand.Text()) + "-"}
}

// mustCreate makes a queue and returns its name.
func (a *account) mustCreate(t *testing.T, suffix string) string {
	t.Helper()
	name := a.prefix + suffix
	if err := a.Create(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

func (a *account) mustPut(t *testing.T, name string, item queue.Item) queue.Message {
	t.Helper()
	msg, err := a.Put(t.Context(), name, item)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func (a *account) mustUpdate(t *testing.T, name string, msg queue.Message, text string, delay time.Duration) string {
	t.Helper()
	receipt, err := a.Update(t.Context(), name, msg.ID, msg.PopReceipt, text, delay)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// mustReceive takes the one message that the queue is expected to show, and waits for it if need be.
func (a *account) mustReceive(t *testing.T, name string, lease time.Duration) queue.Message {
	t.Helper()
	var received []queue.Message
	a.eventually(t, "a message", func() bool {
		received = a.received(t, name, lease)
		return len(received) > 0
	})
	if len(received) != 1 {
		t.Fatalf("received %d messages, want 1", len(received))
	}
	return received[0]
}

func (a *account) received(t *testing.T, name string, lease time.Duration) []queue.Message {
	t.Helper()
	messages, err := a.Receive(t.Context(), name, queue.MaxBatch, lease)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func (a *account) peeked(t *testing.T, name string) []queue.Message {
	t.Helper()
	messages, err := a.Peek(t.Context(), name, queue.MaxBatch)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func (a *account) mustCount(t *testing.T, name string, want int) {
	t.Helper()
	if got, err := a.Count(t.Context(), name); err != nil || got != want {
		t.Fatalf("Count = %d, %v; want %d", got, err, want)
	}
}

func (a *account) mustShowNothing(t *testing.T, name string) {
	t.Helper()
	if messages := a.peeked(t, name); len(messages) != 0 {
		t.Fatalf("Peek shows %d messages, want none", len(messages))
	}
	if messages := a.received(t, name, hour); len(messages) != 0 {
		t.Fatalf("Receive takes %d messages, want none", len(messages))
	}
}

// eventually waits until the condition holds.
func (a *account) eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// operation is one method of a store, called with arguments that are fine but for the queue.
type operation func(ctx context.Context, name string) error

// onQueue are the operations that need a queue to exist.
func (a *account) onQueue() map[string]operation {
	const id, receipt = "6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57", "AgAAAAMAAAAAAAAA"
	return map[string]operation{
		"put": func(ctx context.Context, name string) error {
			_, err := a.Put(ctx, name, queue.Item{Text: "x"})
			return err
		},
		"update": func(ctx context.Context, name string) error {
			_, err := a.Update(ctx, name, id, receipt, "x", 0)
			return err
		},
		"delete": func(ctx context.Context, name string) error {
			return a.Delete(ctx, name, id, receipt)
		},
		"receive": func(ctx context.Context, name string) error {
			_, err := a.Receive(ctx, name, 1, hour)
			return err
		},
		"peek": func(ctx context.Context, name string) error {
			_, err := a.Peek(ctx, name, 1)
			return err
		},
		"count": func(ctx context.Context, name string) error {
			_, err := a.Count(ctx, name)
			return err
		},
	}
}
