// Package memory is [queue.Store] in this process, for tests. It behaves like the service (package
// queuetest holds it to that) and takes its time from time.Now, so that in a testing/synctest bubble a
// lease of seven days costs nothing.
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

	"asynccaller/handler/internal/queue"
)

const (
	minLease = time.Second
	maxLease = 7 * 24 * time.Hour
	// maxTTL is what the service's 32-bit count of seconds holds.
	maxTTL = math.MaxInt32 * time.Second
)

// Store is an account without queues until some are created. It is safe for concurrent use. Two promises go
// beyond the service's: messages come in the order in which they became visible, those of one moment in the
// order in which they were put; and Count is exact.
type Store struct {
	mu     sync.Mutex
	queues map[string][]*message
	serial int
}

var _ queue.Store = (*Store)(nil)

// message is a message on a queue, with its newest pop receipt.
type message struct {
	queue.Message
	// serial grows with every message that is put.
	serial int
}

// New returns an empty account.
func New() *Store { return &Store{queues: make(map[string][]*message)} }

// All returns every message of the queue, invisible ones included, as it stands: NextVisibleAt tells when
// it becomes or became visible, and with PopReceipt, its newest one, it can be updated and deleted. They are
// in the order in which they are due. It returns nil when there is no such queue.
func (s *Store) All(name string) []queue.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(name)
	var all []queue.Message
	for _, m := range slices.SortedFunc(slices.Values(s.queues[name]), byDue) {
		all = append(all, m.Message)
	}
	return all
}

// Create implements [queue.Store].
func (s *Store) Create(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	doing := "create queue " + name
	if err := check(ctx, name); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if _, ok := s.queues[name]; !ok {
		s.queues[name] = nil
	}
	return nil
}

// Put implements [queue.Store].
func (s *Store) Put(ctx context.Context, name string, item queue.Item) (queue.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.put(ctx, name, item)
	if err != nil {
		return queue.Message{}, fmt.Errorf("put on queue %s: %w", name, err)
	}
	told := m.Message
	told.Text = ""
	return told, nil
}

func (s *Store) put(ctx context.Context, name string, item queue.Item) (*message, error) {
	if err := queue.CheckText(item.Text); err != nil {
		return nil, err
	}
	if err := s.enter(ctx, name); err != nil {
		return nil, err
	}
	delay, ttl := delayOf(item.Delay), roundUp(min(item.TTL, maxTTL))
	if item.TTL != 0 && (ttl <= 0 || delay >= ttl) {
		return nil, fmt.Errorf("delay of %s does not end before the time-to-live of %s: %w", delay, ttl, queue.ErrRefused)
	}
	now := time.Now().UTC()
	expires := neverExpires()
	if ttl > 0 {
		expires = now.Add(ttl)
	}
	s.serial++
	m := &message{serial: s.serial, Message: queue.Message{
		ID:            fmt.Sprintf("00000000-0000-4000-8000-%012x", s.serial),
		PopReceipt:    s.receipt(),
		Text:          item.Text,
		InsertedAt:    now,
		ExpiresAt:     expires,
		NextVisibleAt: now.Add(delay),
	}}
	s.queues[name] = append(s.queues[name], m)
	return m, nil
}

// Update implements [queue.Store].
func (s *Store) Update(ctx context.Context, name, id, popReceipt, text string, delay time.Duration) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	receipt, err := s.update(ctx, name, id, popReceipt, text, delayOf(delay))
	if err != nil {
		return "", fmt.Errorf("update message on queue %s: %w", name, err)
	}
	return receipt, nil
}

func (s *Store) update(ctx context.Context, name, id, popReceipt, text string, delay time.Duration) (string, error) {
	if err := queue.CheckText(text); err != nil {
		return "", err
	}
	m, _, err := s.find(ctx, name, id, popReceipt)
	if err != nil {
		return "", err
	}
	visible := time.Now().UTC().Add(delay)
	if visible.After(m.ExpiresAt) { // the service's rule; Azurite has none
		return "", fmt.Errorf("message expires before it is visible: %w", queue.ErrRefused)
	}
	m.Text, m.NextVisibleAt, m.PopReceipt = text, visible, s.receipt()
	return m.PopReceipt, nil
}

// Delete implements [queue.Store].
func (s *Store) Delete(ctx context.Context, name, id, popReceipt string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, at, err := s.find(ctx, name, id, popReceipt)
	if err != nil {
		return fmt.Errorf("delete message from queue %s: %w", name, err)
	}
	s.queues[name] = slices.Delete(s.queues[name], at, at+1)
	return nil
}

// Receive implements [queue.Store].
func (s *Store) Receive(ctx context.Context, name string, limit int, lease time.Duration) ([]queue.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	visible, err := s.visible(ctx, name, limit)
	lease = roundUp(lease)
	if err == nil && (lease < minLease || lease > maxLease) {
		err = fmt.Errorf("lease of %s is not within %s and %s: %w", lease, minLease, maxLease, queue.ErrRefused)
	}
	if err != nil {
		return nil, fmt.Errorf("receive from queue %s: %w", name, err)
	}
	received := make([]queue.Message, 0, len(visible))
	for _, m := range visible {
		m.DequeueCount++
		m.PopReceipt = s.receipt()
		m.NextVisibleAt = time.Now().UTC().Add(lease)
		received = append(received, m.Message)
	}
	return received, nil
}

// Peek implements [queue.Store].
func (s *Store) Peek(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	visible, err := s.visible(ctx, name, limit)
	if err != nil {
		return nil, fmt.Errorf("peek at queue %s: %w", name, err)
	}
	peeked := make([]queue.Message, 0, len(visible))
	for _, m := range visible {
		copied := m.Message
		copied.PopReceipt, copied.NextVisibleAt = "", time.Time{}
		peeked = append(peeked, copied)
	}
	return peeked, nil
}

// Count implements [queue.Store].
func (s *Store) Count(ctx context.Context, name string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(ctx, name); err != nil {
		return 0, fmt.Errorf("count queue %s: %w", name, err)
	}
	return len(s.queues[name]), nil
}

// Names implements [queue.Store].
func (s *Store) Names(ctx context.Context, prefix string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

// enter checks what every operation on a queue needs, and drops what has expired.
func (s *Store) enter(ctx context.Context, name string) error {
	if err := check(ctx, name); err != nil {
		return err
	}
	if _, ok := s.queues[name]; !ok {
		return queue.ErrNoQueue
	}
	s.expire(name)
	return nil
}

func (s *Store) expire(name string) {
	now := time.Now()
	if messages, ok := s.queues[name]; ok {
		s.queues[name] = slices.DeleteFunc(messages, func(m *message) bool { return !now.Before(m.ExpiresAt) })
	}
}

// find returns the message and its place if the receipt is its newest one.
func (s *Store) find(ctx context.Context, name, id, popReceipt string) (*message, int, error) {
	if err := s.enter(ctx, name); err != nil {
		return nil, 0, err
	}
	at := slices.IndexFunc(s.queues[name], func(m *message) bool { return m.ID == id && m.PopReceipt == popReceipt })
	if at < 0 {
		return nil, 0, queue.ErrStale
	}
	return s.queues[name][at], at, nil
}

// visible returns up to limit visible messages, in the order in which they became so.
func (s *Store) visible(ctx context.Context, name string, limit int) ([]*message, error) {
	if err := s.enter(ctx, name); err != nil {
		return nil, err
	}
	if limit < 1 || limit > queue.MaxBatch {
		return nil, fmt.Errorf("limit of %d is not within 1 and %d: %w", limit, queue.MaxBatch, queue.ErrRefused)
	}
	now := time.Now()
	var visible []*message
	for _, m := range slices.SortedFunc(slices.Values(s.queues[name]), byDue) {
		if m.NextVisibleAt.After(now) || len(visible) == limit {
			break
		}
		visible = append(visible, m)
	}
	return visible, nil
}

func byDue(a, b *message) int {
	return cmp.Or(a.NextVisibleAt.Compare(b.NextVisibleAt), cmp.Compare(a.serial, b.serial))
}

// receipt returns a new pop receipt.
func (s *Store) receipt() string {
	s.serial++
	return fmt.Sprintf("receipt-%d", s.serial)
}

func check(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !queue.ValidName(name) {
		return fmt.Errorf("not the name of a queue: %w", queue.ErrRefused)
	}
	return nil
}

func delayOf(d time.Duration) time.Duration { return max(roundUp(min(d, queue.MaxDelay)), 0) }

// roundUp rounds up to whole seconds, in which the service counts.
func roundUp(d time.Duration) time.Duration {
	whole := d.Truncate(time.Second)
	if whole < d {
		whole += time.Second
	}
	return whole
}

// neverExpires is the expiry that the service shows for a time-to-live of -1.
func neverExpires() time.Time { return time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC) }
