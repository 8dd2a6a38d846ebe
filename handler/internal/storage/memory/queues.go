// Package memory implements [storage.Queues] and [storage.Table] in this process, for tests and for development. It
// behaves like the services, as package storagetest checks. It uses time.Now, so no real time passes in a
// testing/synctest bubble.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
)

// maxTTL is the limit of the service's 32-bit count of seconds.
const maxTTL = math.MaxInt32 * time.Second

// Queues is an account; it has no queues at first. It is safe for concurrent use. Unlike the service it returns
// messages in the order in which they became visible, and those of one moment in the order in which they were
// put; and Count is exact.
type Queues struct {
	mu     sync.Mutex
	queues map[string][]*message
	serial int
	// expires is when the first message of any queue may expire. Before, no queue is searched for such messages.
	expires time.Time
}

var _ storage.Queues = (*Queues)(nil)

// message is a message on a queue, with its newest pop receipt.
type message struct {
	storage.Message
	// serial grows with every message that is put.
	serial int
}

// New returns an empty account.
func New() *Queues { return &Queues{queues: make(map[string][]*message)} }

// All returns every message of the queue, invisible ones included, in the order in which they are due:
// NextVisibleAt is when the message becomes or became visible, PopReceipt is its newest receipt. It returns nil
// if there is no such queue.
func (s *Queues) All(name string) (all []storage.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, m := range inOrder(s.queues[name]) {
		all = append(all, m.Message)
	}
	return all
}

// locked locks the store. The function that it returns unlocks the store and adds the operation to the error.
func (s *Queues) locked(operation string, err *error) (unlock func()) {
	s.mu.Lock()
	return func() {
		s.mu.Unlock()
		if *err != nil {
			*err = fmt.Errorf("%s: %w", operation, *err)
		}
	}
}

// Create implements [storage.Queues].
func (s *Queues) Create(ctx context.Context, name string) (err error) {
	defer s.locked("create queue "+name, &err)()
	if err := check(ctx, name); err != nil {
		return err
	}
	if _, ok := s.queues[name]; !ok {
		s.queues[name] = nil
	}
	return nil
}

// Put implements [storage.Queues].
func (s *Queues) Put(ctx context.Context, name string, item storage.Item) (_ storage.Message, err error) {
	defer s.locked("put on queue "+name, &err)()
	if err := storage.CheckText(item.Text); err != nil {
		return storage.Message{}, err
	}
	if err := s.enter(ctx, name); err != nil {
		return storage.Message{}, err
	}
	delay, ttl := delayOf(item.Delay), roundUp(min(item.TTL, maxTTL))
	if item.TTL != 0 && (ttl <= 0 || delay >= ttl) {
		return storage.Message{}, fmt.Errorf("delay of %s does not end before the time-to-live of %s: %w",
			delay, ttl, storage.ErrRefused)
	}
	now := time.Now().UTC()
	expires := storage.NeverExpires
	if ttl > 0 {
		expires = now.Add(ttl)
		s.expires = earlier(s.expires, expires)
	}
	s.serial++
	m := storage.Message{
		ID:            fmt.Sprintf("%08x-0000-4000-8000-%012x", s.serial%(1<<32), s.serial), // its first part is unique
		PopReceipt:    s.receipt(),
		InsertedAt:    now,
		ExpiresAt:     expires,
		NextVisibleAt: now.Add(delay),
	}
	stored := &message{serial: s.serial, Message: m}
	stored.Text = item.Text
	s.queues[name] = append(s.queues[name], stored)
	return m, nil
}

// Update implements [storage.Queues].
func (s *Queues) Update(
	ctx context.Context, name, id, popReceipt, text string, delay time.Duration,
) (_ string, err error) {
	defer s.locked("update message on queue "+name, &err)()
	if err := storage.CheckText(text); err != nil {
		return "", err
	}
	at, err := s.find(ctx, name, id, popReceipt)
	if err != nil {
		return "", err
	}
	m, visible := s.queues[name][at], time.Now().UTC().Add(delayOf(delay))
	if visible.After(m.ExpiresAt) { // a rule of the service that Azurite does not have
		return "", fmt.Errorf("message expires before it is visible: %w", storage.ErrRefused)
	}
	m.Text, m.NextVisibleAt, m.PopReceipt = text, visible, s.receipt()
	return m.PopReceipt, nil
}

// Delete implements [storage.Queues].
func (s *Queues) Delete(ctx context.Context, name, id, popReceipt string) (err error) {
	defer s.locked("delete message from queue "+name, &err)()
	at, err := s.find(ctx, name, id, popReceipt)
	if err != nil {
		return err
	}
	s.queues[name] = slices.Delete(s.queues[name], at, at+1)
	return nil
}

// Receive implements [storage.Queues].
func (s *Queues) Receive(
	ctx context.Context, name string, limit int, lease time.Duration,
) (received []storage.Message, err error) {
	defer s.locked("receive from queue "+name, &err)()
	visible, err := s.visible(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	lease = roundUp(lease)
	if lease < storage.MinLease || lease > storage.MaxLease {
		return nil, fmt.Errorf("lease of %s is not within %s and %s: %w",
			lease, storage.MinLease, storage.MaxLease, storage.ErrRefused)
	}
	for _, m := range visible {
		m.DequeueCount++
		m.PopReceipt = s.receipt()
		m.NextVisibleAt = time.Now().UTC().Add(lease)
		received = append(received, m.Message)
	}
	return received, nil
}

// Peek implements [storage.Queues].
func (s *Queues) Peek(ctx context.Context, name string, limit int) (peeked []storage.Message, err error) {
	defer s.locked("peek at queue "+name, &err)()
	visible, err := s.visible(ctx, name, limit)
	for _, m := range visible {
		copied := m.Message
		copied.PopReceipt, copied.NextVisibleAt = "", time.Time{}
		peeked = append(peeked, copied)
	}
	return peeked, err
}

// Count implements [storage.Queues].
func (s *Queues) Count(ctx context.Context, name string) (_ int, err error) {
	defer s.locked("count queue "+name, &err)()
	err = s.enter(ctx, name)
	return len(s.queues[name]), err
}

// Names implements [storage.Queues].
func (s *Queues) Names(ctx context.Context, prefix string) (_ []string, err error) {
	defer s.locked("list queues", &err)()
	names := slices.Sorted(maps.Keys(s.queues))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), ctx.Err()
}

// enter checks the preconditions of every operation on a queue, and drops expired messages.
func (s *Queues) enter(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	if _, ok := s.queues[name]; !ok {
		return storage.ErrNoQueue
	}
	s.expire()
	return nil
}

func (s *Queues) expire() {
	now := time.Now()
	if now.Before(s.expires) {
		return
	}
	s.expires = storage.NeverExpires
	for name, messages := range s.queues {
		s.queues[name] = slices.DeleteFunc(messages, func(m *message) bool { return !now.Before(m.ExpiresAt) })
		for _, m := range s.queues[name] {
			s.expires = earlier(s.expires, m.ExpiresAt)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// find returns the place of the message if the receipt is its newest one.
func (s *Queues) find(ctx context.Context, name, id, popReceipt string) (int, error) {
	if err := s.enter(ctx, name); err != nil {
		return 0, err
	}
	at := slices.IndexFunc(s.queues[name], func(m *message) bool { return m.ID == id && m.PopReceipt == popReceipt })
	if at < 0 {
		return 0, storage.ErrStale
	}
	return at, nil
}

// visible returns up to limit visible messages, in the order in which they became visible.
func (s *Queues) visible(ctx context.Context, name string, limit int) (visible []*message, err error) {
	if err := s.enter(ctx, name); err != nil {
		return nil, err
	}
	if limit < 1 || limit > storage.MaxBatch {
		return nil, fmt.Errorf("limit of %d is not within 1 and %d: %w", limit, storage.MaxBatch, storage.ErrRefused)
	}
	now := time.Now()
	for _, m := range s.queues[name] {
		if !m.NextVisibleAt.After(now) {
			visible = append(visible, m)
		}
	}
	visible = inOrder(visible)
	return visible[:min(limit, len(visible))], nil
}

// inOrder returns messages in the order in which they are due.
func inOrder(messages []*message) []*message {
	return slices.SortedFunc(slices.Values(messages), func(a, b *message) int {
		return cmp.Or(a.NextVisibleAt.Compare(b.NextVisibleAt), cmp.Compare(a.serial, b.serial))
	})
}

// receipt returns a new pop receipt.
func (s *Queues) receipt() string {
	s.serial++
	return fmt.Sprintf("receipt-%d", s.serial)
}

func check(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !storage.ValidName(name) {
		return fmt.Errorf("invalid queue name: %w", storage.ErrRefused)
	}
	return nil
}

// delayOf returns a delay within the bounds of the service.
func delayOf(d time.Duration) time.Duration { return max(roundUp(min(d, storage.MaxDelay)), 0) }

// roundUp rounds up to whole seconds, the unit of the service.
func roundUp(d time.Duration) time.Duration {
	whole := d.Truncate(time.Second)
	if whole < d {
		whole += time.Second
	}
	return whole
}
