// Package lease receives messages and keeps them invisible to other clients while an operator works on them, so that two
// operators never work on the same message. Selected messages stay leased, with renewals, until they are deleted or
// released. The others become visible again as soon as the whole queue was read. If the process is killed, all leases
// end by themselves: after two minutes or, for a queue of more than 3,000 messages, after 40 ms per message.
//
// Peeking returns only the first 32 messages, so receiving them is the only way to read a whole queue. It
// increases the dequeue count of each message, which is harmless on a poison queue.
package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"asynccaller/handler/internal/queue"
)

const (
	// minLease is the lease on a short queue. A long one needs leasePerMessage for each message or, if storage is slow,
	// the time of a storage operation divided by parallel: a lease then lasts about as long as a run.
	minLease        = 2 * time.Minute
	leasePerMessage = 40 * time.Millisecond
	maxLease        = 4 * time.Hour
	renewInterval   = 15 * time.Second
	// maxLatency limits the time of an operation that counts: a longer one is an outage.
	maxLatency = time.Second
	// soon is the remainder of a lease that is left to end by itself.
	soon = time.Second
	// parallel is the number of concurrent storage operations of a [Holder].
	parallel = 4
)

// Limits of the retries of one operation: storage fails over within a minute. A try gets much time, because the effect
// of an abandoned one is unknown. If the caller has less time, it is enough for three tries.
const (
	retryTimeout = 3 * time.Minute
	tryTimeout   = time.Minute
)

// Retry repeats a storage operation for at most three minutes, until it succeeds or returns one of package
// queue's errors. A try without an answer may have been carried out.
func Retry[T any](ctx context.Context, try func(context.Context) (T, error)) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	err = queue.Persist(ctx, min(tryTimeout, time.Until(deadline)/3), func(ctx context.Context) (err error) {
		result, err = try(ctx)
		return err
	}, queue.ErrNoQueue, queue.ErrRefused, queue.ErrStale)
	return result, err
}

// ErrLost means that another client received the message, or that it was deleted.
var ErrLost = errors.New("the message was taken by somebody else")

// Recorder records what a later process needs to take over the leases of one that was killed. Its errors are ignored:
// a recorder that fails must not confirm later records either.
type Recorder interface {
	// Leased is called before each lease.
	Leased(lease time.Duration) error
	// Renewed is called with each new pop receipt of a selected message, named by its [Message.Number].
	Renewed(number int, popReceipt string) error
}

// Holder holds leases on messages. It is safe for concurrent use.
type Holder struct {
	store    queue.Store
	recorder Recorder
	texts    spool

	mu   sync.Mutex
	held map[key]*Message
	// largest is the length of the longest queue so far.
	largest int
	// latency is the recent time of a storage operation.
	latency time.Duration
}

type key struct{ queue, id string }

// Message is a leased message.
type Message struct {
	Queue, ID string
	// Number is chosen by the caller.
	Number int
	// selected messages are renewed.
	selected bool

	mu         sync.Mutex
	text       span
	popReceipt string
	// ends is when the lease ends: at the earliest for a selected message, at the latest for another one. It is
	// zero for an adopted message.
	ends    time.Time
	expires time.Time // zero if unknown
	adopted bool      // and not received since
	over    bool      // deleted, released or lost
}

// New returns an empty Holder. The recorder may be nil. The caller must close the Holder.
func New(store queue.Store, recorder Recorder) *Holder {
	return &Holder{store: store, recorder: recorder, held: make(map[key]*Message)}
}

// Adopt adds a message that an earlier run received or wrote, by the receipt that it recorded. Ensure and Delete
// find out whether the receipt is still valid; until then the lease is not renewed. An empty text means that the
// text is unknown: the message can only be deleted.
func (h *Holder) Adopt(number int, queueName, id, popReceipt, text string) (*Message, error) {
	where, err := h.texts.append(text)
	if err != nil {
		return nil, err
	}
	m := &Message{Queue: queueName, ID: id, Number: number, popReceipt: popReceipt, text: where, selected: true, adopted: true}
	h.add(m)
	return m, nil
}

func (h *Holder) add(m *Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[key{m.Queue, m.ID}] = m
	h.largest = max(h.largest, len(h.held))
}

// Find returns a held message, or nil.
func (h *Holder) Find(queueName, id string) *Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[key{queueName, id}]
}

// All returns the held messages.
func (h *Holder) All() []*Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.held))
}

// Lease returns the lease of selected messages, in whole minutes.
func (h *Holder) Lease() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	lease := min(max(minLease, time.Duration(h.largest)*h.perMessage()), maxLease)
	lease = (lease + time.Minute - 1).Truncate(time.Minute)
	if h.recorder != nil {
		_ = h.recorder.Leased(lease)
	}
	return lease
}

// perMessage returns the share of one message in a lease. The caller holds h.mu.
func (h *Holder) perMessage() time.Duration { return max(leasePerMessage, h.latency/parallel) }

// due returns what is left of a lease when it must be renewed: half of minLease, and the time to renew all leases.
func (h *Holder) due() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return minLease/2 + time.Duration(len(h.held))*h.perMessage()/2
}

// took notes the time of a storage operation.
func (h *Holder) took(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d = min(d, maxLatency)
	if h.latency == 0 {
		h.latency = d
	}
	h.latency += (d - h.latency) / 8
}

// timed is Retry for an operation whose time counts.
func timed[T any](ctx context.Context, h *Holder, try func(context.Context) (T, error)) (T, error) {
	return Retry(ctx, func(ctx context.Context) (T, error) {
		began := time.Now()
		result, err := try(ctx)
		if err == nil {
			h.took(time.Since(began))
		}
		return result, err
	})
}

// Ensure renews the message's lease if it ends within half a minute, so that a slow answer does not arrive after its
// end. It returns [ErrLost] if the message is not ours any more.
func (h *Holder) Ensure(ctx context.Context, m *Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return h.ensure(ctx, m, minLease/4)
}

// ensure renews a lease that has at most the given time left. The caller holds m.mu.
func (h *Holder) ensure(ctx context.Context, m *Message, left time.Duration) error {
	if m.over {
		return ErrLost
	}
	if time.Until(m.ends) > left {
		return nil
	}
	lease := h.Lease()
	if !m.expires.IsZero() { // storage refuses a lease beyond the message's expiry
		lease = max(min(lease, time.Until(m.expires).Truncate(time.Second)-time.Second), 0)
	}
	ends := time.Now().Add(lease)
	err := h.update(ctx, m, lease)
	if errors.Is(err, queue.ErrRefused) && m.expires.IsZero() {
		h.forget(m) // the message may expire soon, which shows when it is received
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if err == nil {
		m.ends = ends
	}
	return err
}

// update changes the lease; 0 makes the message visible. A try without an answer may have changed the receipt. Then
// the message is out of reach until the lease ends. The caller holds m.mu.
func (h *Holder) update(ctx context.Context, m *Message, lease time.Duration) error {
	text, err := h.texts.text(m.text)
	if err != nil {
		return err
	}
	if m.adopted && text == "" {
		return fmt.Errorf("message %s on %s: cannot change its lease, because its text is unknown", m.ID, m.Queue)
	}
	receipt, err := timed(ctx, h, func(ctx context.Context) (string, error) {
		return h.store.Update(ctx, m.Queue, m.ID, m.popReceipt, text, lease)
	})
	if errors.Is(err, queue.ErrStale) || errors.Is(err, queue.ErrNoQueue) {
		h.forget(m)
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if err == nil {
		h.setReceipt(m, receipt)
	}
	return err
}

// setReceipt stores a new receipt and reports that of a selected message. The caller holds m.mu.
func (h *Holder) setReceipt(m *Message, receipt string) {
	m.popReceipt = receipt
	if m.selected && h.recorder != nil {
		_ = h.recorder.Renewed(m.Number, receipt)
	}
}

// Delete deletes a message. It returns [ErrLost] if the message is not ours any more: another client may have deleted
// it, or it is still there.
func (h *Holder) Delete(ctx context.Context, m *Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return ErrLost
	}
	tries := 0
	_, err := Retry(ctx, func(ctx context.Context) (struct{}, error) {
		tries++
		return struct{}{}, h.store.Delete(ctx, m.Queue, m.ID, m.popReceipt)
	})
	switch {
	case errors.Is(err, queue.ErrNoQueue), errors.Is(err, queue.ErrStale) && tries > 1:
		err = nil // deleted with its queue, or by a try without an answer
	case errors.Is(err, queue.ErrStale):
		err = fmt.Errorf("%w: %w", ErrLost, err)
	case err != nil:
		return err
	}
	h.forget(m)
	return err
}

// forget removes a message that is deleted, released or lost. The caller holds m.mu.
func (h *Holder) forget(m *Message) {
	m.over = true
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, key{m.Queue, m.ID})
}

// Release makes messages visible again, and returns when they are. A message that cannot be released becomes
// visible when its lease ends.
func (h *Holder) Release(ctx context.Context, messages ...*Message) {
	// Begin with the longest lease, because the others may end before it is their turn, or during the wait for a longer one.
	slices.SortFunc(messages, func(a, b *Message) int { return b.leaseEnds().Compare(a.leaseEnds()) })
	each(ctx, messages, func(m *Message) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.over {
			return
		}
		if m.ends.IsZero() || time.Until(m.ends) > soon {
			_ = h.update(ctx, m, 0)
		} else {
			queue.Sleep(ctx, time.Until(m.ends))
		}
		h.forget(m)
	})
}

func (m *Message) leaseEnds() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ends
}

// Close releases all messages, for at most three minutes, even if ctx has ended. It leaves adopted messages alone
// that were never ensured.
func (h *Holder) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryTimeout)
	defer cancel()
	h.Release(ctx, slices.DeleteFunc(h.All(), func(m *Message) bool { return m.leaseEnds().IsZero() })...)
	h.texts.close()
}

// Renew keeps renewing the leases of selected messages in the background until ctx ends or stop is called. Stop waits
// for the end of a renewal. Renewals take half of the time at most, so that they leave storage to the work: if that is
// not enough, Ensure renews the leases that have ended.
func (h *Holder) Renew(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			h.renewDue(ctx, began.Add(renewInterval))
			queue.Sleep(ctx, max(renewInterval, time.Since(began)))
		}
	})
	return func() {
		cancel()
		renewing.Wait()
	}
}

// RenewDue renews the leases of selected messages that end soon. It reports no errors: a lost message shows in
// its next operation.
func (h *Holder) RenewDue(ctx context.Context) { h.renewDue(ctx, time.Now().Add(maxLease)) }

// renewDue starts no renewal after the given time. It begins with the messages of the highest numbers: work begins with
// the lowest, which may need no renewal then.
func (h *Holder) renewDue(ctx context.Context, until time.Time) {
	messages := h.All()
	slices.SortFunc(messages, func(a, b *Message) int { return b.Number - a.Number })
	due := min(h.due(), h.Lease()/2)
	each(ctx, messages, func(m *Message) {
		if !m.mu.TryLock() {
			return // another operation is running
		}
		defer m.mu.Unlock()
		if m.selected && !m.over && !m.ends.IsZero() && time.Now().Before(until) {
			_ = h.ensure(ctx, m, due)
		}
	})
}

// each calls do for every message, concurrently, until ctx ends.
func each(ctx context.Context, messages []*Message, do func(*Message)) {
	var workers errgroup.Group
	workers.SetLimit(parallel)
	for _, m := range messages {
		workers.Go(func() error {
			if ctx.Err() == nil {
				do(m)
			}
			return nil
		})
	}
	_ = workers.Wait() // no worker returns an error
}
