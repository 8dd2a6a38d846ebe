// Package lease takes messages from queues for as long as somebody works on them. A message that is taken
// is invisible to everybody else, so two operators never take the same one. What is chosen is kept, its
// lease renewed, until it is deleted or given back; what is only looked at becomes visible again as soon as
// the whole queue was seen. If the process is killed all of it comes back by itself: after two minutes, or for
// a queue of more than 3,000 messages after 40 ms for each.
//
// Storage shows the first 32 messages to who only peeks, so there is no other way to see all of a queue. It
// counts as a delivery of each message: on a poison queue nobody minds.
package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/queue"
)

const (
	// shortest is the lease of what is chosen from a short queue, forEach what it is for each message of a
	// long one: so long that all leases can be renewed in half of it. Longest bounds it.
	shortest = 2 * time.Minute
	forEach  = 40 * time.Millisecond
	longest  = 24 * time.Hour
	// renewEvery is how often leases are looked after.
	renewEvery = 15 * time.Second
	// soon is what may be left of a lease that is left to end by itself.
	soon = time.Second
	// parallel is how many operations run at once, beside those of who uses the messages.
	parallel = 4
)

// How long one operation is tried: storage fails over within a minute. A try is given much time, because what
// comes of one that is given up is not known.
const (
	patience   = 3 * time.Minute
	tryTimeout = time.Minute
)

// Patiently repeats an operation on storage until it answers for good, for at most three minutes: with
// success or with one of package queue's errors. A try that got no answer may have been carried out.
func Patiently(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return queue.Persist(ctx, tryTimeout, try, queue.ErrNoQueue, queue.ErrRefused, queue.ErrStale)
}

// ErrLost means that somebody else has the message, or that it is gone.
var ErrLost = errors.New("the message was taken by somebody else")

// Store is the part of a queue account that is needed.
type Store interface {
	Count(ctx context.Context, queue string) (int, error)
	Peek(ctx context.Context, queue string, limit int) ([]queue.Message, error)
	Receive(ctx context.Context, queue string, limit int, lease time.Duration) ([]queue.Message, error)
	Update(ctx context.Context, queue, id, popReceipt string, text string, delay time.Duration) (string, error)
	Delete(ctx context.Context, queue, id, popReceipt string) error
}

// Hold is what one piece of work has taken. It is safe for concurrent use.
type Hold struct {
	store Store
	// renewed is told each new pop receipt of a message that was chosen; nil to tell nobody.
	renewed func(m *Message, popReceipt string)
	texts   *spool

	mu   sync.Mutex
	held map[key]*Message
	// most is the length of the longest queue seen so far.
	most int
}

type key struct{ queue, id string }

// Message is a message that was taken.
type Message struct {
	Queue, ID string
	// Number is whatever the caller knows it by.
	Number int
	where  span

	mu         sync.Mutex
	popReceipt string
	ends       time.Time // of the lease, at the earliest
	ended      time.Time // and at the latest; zero where it was renewed
	expires    time.Time // of the message; zero where it is not known
	chosen     bool
	adopted    bool
	over       bool // deleted, given back or lost
}

// New returns a hold of nothing yet. Renewed is told each new pop receipt of a chosen message; it may be
// nil. Close the hold in the end.
func New(store Store, renewed func(m *Message, popReceipt string)) (*Hold, error) {
	texts, err := newSpool()
	if err != nil {
		return nil, err
	}
	if renewed == nil {
		renewed = func(*Message, string) {}
	}
	return &Hold{store: store, renewed: renewed, texts: texts, held: make(map[key]*Message)}, nil
}

// PopReceipt is the newest receipt.
func (m *Message) PopReceipt() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.popReceipt
}

func (m *Message) leaseEnds() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ends
}

// Text is the message's text as it stands on the queue.
func (h *Hold) Text(m *Message) (string, error) { return h.texts.text(m.where) }

// Adopt holds a message that an earlier run took or wrote, by the receipt that it noted. Whether the
// receipt still counts shows when the lease is first ensured, or the message deleted; before, its lease is
// not renewed. An empty text means that it is not known: such a message can only be deleted.
func (h *Hold) Adopt(number int, queueName, id, popReceipt, text string) (*Message, error) {
	where, err := h.texts.append(text)
	if err != nil {
		return nil, err
	}
	m := &Message{Queue: queueName, ID: id, Number: number, popReceipt: popReceipt, where: where, chosen: true, adopted: true}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[key{queueName, id}] = m
	h.most = max(h.most, len(h.held))
	return m, nil
}

// Ensure makes sure that the message is ours for a while, and renews its lease if need be. Its error is
// [ErrLost] when it is not.
func (h *Hold) Ensure(ctx context.Context, m *Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return h.ensure(ctx, m, h.Lease()/4)
}

// Lease is that of what is chosen. It is renewed when half of it is over; nothing is done in the last
// quarter of it, so that a slow answer does not come after its end.
func (h *Hold) Lease() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(max(shortest, time.Duration(h.most)*forEach), longest)
}

func (h *Hold) ensure(ctx context.Context, m *Message, left time.Duration) error {
	if m.over {
		return ErrLost
	}
	if time.Until(m.ends) > left {
		return nil
	}
	text, err := h.Text(m)
	if err != nil {
		return err
	}
	if m.adopted && text == "" {
		return fmt.Errorf("message %s on %s: its lease cannot be renewed, because its text is not known", m.ID, m.Queue)
	}
	lease := h.Lease()
	if !m.expires.IsZero() { // storage refuses one that is longer than the message lives
		lease = max(min(lease, time.Until(m.expires).Truncate(time.Second)-time.Second), 0)
	}
	ends := time.Now().Add(lease)
	receipt, err := h.update(ctx, m, text, lease)
	if errors.Is(err, queue.ErrRefused) && m.expires.IsZero() {
		h.forget(m) // perhaps it expires soon: whoever looks for it will see
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if err != nil {
		return err
	}
	m.popReceipt, m.ends, m.ended = receipt, ends, time.Time{}
	h.renewed(m, receipt)
	return nil
}

// update changes the lease. A try without an answer may have changed the receipt; then the message is out
// of reach until the lease ends.
func (h *Hold) update(ctx context.Context, m *Message, text string, lease time.Duration) (string, error) {
	var receipt string
	err := Patiently(ctx, func(ctx context.Context) (err error) {
		receipt, err = h.store.Update(ctx, m.Queue, m.ID, m.popReceipt, text, lease)
		return err
	})
	if errors.Is(err, queue.ErrStale) || errors.Is(err, queue.ErrNoQueue) {
		h.forget(m)
		return "", fmt.Errorf("%w: %w", ErrLost, err)
	}
	return receipt, err
}

// Delete deletes a message that was taken. Its error is [ErrLost] when it is not ours any more; then it is
// still there, or somebody else has deleted it.
func (h *Hold) Delete(ctx context.Context, m *Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return ErrLost
	}
	tries := 0
	err := Patiently(ctx, func(ctx context.Context) error {
		tries++
		return h.store.Delete(ctx, m.Queue, m.ID, m.popReceipt)
	})
	switch {
	case errors.Is(err, queue.ErrNoQueue):
		err = nil // it went with its queue
	case errors.Is(err, queue.ErrStale) && tries > 1:
		err = nil // a try that got no answer has deleted it
	case errors.Is(err, queue.ErrStale):
		err = fmt.Errorf("%w: %w", ErrLost, err)
	case err != nil:
		return err
	}
	h.forget(m)
	return err
}

// forget drops a message that is deleted, given back or lost. The caller holds its lock.
func (h *Hold) forget(m *Message) {
	m.over = true
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, key{m.Queue, m.ID})
}

// GiveBack makes messages visible again, and returns when they are. What cannot be given back comes back by
// itself when its lease ends.
func (h *Hold) GiveBack(ctx context.Context, messages ...*Message) {
	// The longest lease first: the others may end before it is their turn.
	slices.SortFunc(messages, func(a, b *Message) int { return b.leaseEnds().Compare(a.leaseEnds()) })
	var mu sync.Mutex
	var last time.Time
	each(ctx, messages, func(m *Message) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.over {
			return
		}
		if left := time.Until(m.ends); m.ends.IsZero() || left > soon {
			h.show(ctx, m)
		} else {
			mu.Lock()
			defer mu.Unlock()
			if m.ended.After(last) {
				last = m.ended
			}
		}
		h.forget(m)
	})
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(last)):
	}
}

// GiveBackOthers gives back all that was taken and not chosen.
func (h *Hold) GiveBackOthers(ctx context.Context) {
	h.GiveBack(ctx, slices.DeleteFunc(h.All(), (*Message).isChosen)...)
}

func (m *Message) isChosen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.chosen
}

// show makes one message visible. The caller holds its lock.
func (h *Hold) show(ctx context.Context, m *Message) {
	text, err := h.Text(m)
	if err != nil || m.adopted && text == "" {
		return
	}
	if receipt, err := h.update(ctx, m, text, 0); err == nil && m.chosen {
		h.renewed(m, receipt)
	}
}

// Close gives everything back that is still held, even when ctx has ended, for at most three minutes. What was
// adopted and never ensured is left as it is.
func (h *Hold) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	taken := slices.DeleteFunc(h.All(), func(m *Message) bool { return m.leaseEnds().IsZero() })
	h.GiveBack(ctx, taken...)
	h.texts.close()
}

// All returns what is held.
func (h *Hold) All() []*Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Message, 0, len(h.held))
	for _, m := range h.held {
		all = append(all, m)
	}
	return all
}

// Renew looks after the leases of what is chosen until ctx ends.
func (h *Hold) Renew(ctx context.Context) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		h.Secure(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Secure renews the leases of what is chosen that would end soon. What turns out lost shows when it is
// used.
func (h *Hold) Secure(ctx context.Context) {
	each(ctx, h.All(), func(m *Message) {
		if !m.mu.TryLock() {
			return // somebody is at it
		}
		defer m.mu.Unlock()
		if m.chosen && !m.over && !m.ends.IsZero() {
			_ = h.ensure(ctx, m, h.Lease()/2)
		}
	})
}

// each does something with every message, several at once, until ctx ends.
func each(ctx context.Context, messages []*Message, do func(*Message)) {
	var workers sync.WaitGroup
	next := make(chan *Message)
	for range min(parallel, len(messages)) {
		workers.Go(func() {
			for m := range next {
				do(m)
			}
		})
	}
	for _, m := range messages {
		if ctx.Err() != nil {
			break
		}
		next <- m
	}
	close(next)
	workers.Wait()
}
