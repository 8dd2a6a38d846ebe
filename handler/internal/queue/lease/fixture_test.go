package lease_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
	"asynccaller/handler/internal/queue/memory"
)

const (
	poisonQueue = "async-caller-poison"
	// long is the lease of messages selected from a short queue.
	long = 2 * time.Minute
	// soon is when all released messages are visible.
	soon = 5 * time.Second
)

func newQueue(t *testing.T, n int) *memory.Store {
	t.Helper()
	store := memory.New()
	if err := store.Create(t.Context(), poisonQueue); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := store.Put(t.Context(), poisonQueue, queue.Item{Text: fmt.Sprintf("text %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// recorder is called with each new receipt.
type recorder func(number int, popReceipt string)

func (recorder) Leased(time.Duration) error { return nil }

func (r recorder) Renewed(number int, popReceipt string) error {
	if r != nil {
		r(number, popReceipt)
	}
	return nil
}

func newHolder(t *testing.T, store queue.Store, renewed recorder) *lease.Holder {
	t.Helper()
	h := lease.New(store, renewed)
	t.Cleanup(func() { h.Close(context.Background()) })
	return h
}

func take(t *testing.T, h *lease.Holder, total int, s lease.Selection) {
	t.Helper()
	if err := h.Take(t.Context(), poisonQueue, total, s); err != nil {
		t.Errorf("take: %v", err)
	}
}

// advance moves the clock of a synctest bubble.
func advance(d time.Duration) { <-time.After(d) }

// leased counts the invisible messages.
func leased(store *memory.Store) (n int) {
	for _, m := range store.All(poisonQueue) {
		if m.NextVisibleAt.After(time.Now()) {
			n++
		}
	}
	return n
}

// all selects every message, and counts how often each is shown.
func all(shown map[string]int) lease.Selection {
	return lease.Selection{Select: func(m queue.Message) (int, bool) {
		shown[m.ID]++
		return len(shown) - 1, true
	}}
}

// store wraps a store. Its operations can take time, or fail before or after they took effect.
type store struct {
	*memory.Store
	mu            sync.Mutex
	calls         map[string]int
	takes         func(operation string, call int) time.Duration
	before, after func(operation string, call int) error
}

func on[T any](ctx context.Context, s *store, operation string, do func() (T, error)) (result T, err error) {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[operation]++
	call := s.calls[operation]
	s.mu.Unlock()
	var nothing T
	if s.takes != nil {
		select {
		case <-ctx.Done():
			return nothing, ctx.Err()
		case <-time.After(s.takes(operation, call)):
		}
	}
	if s.before != nil {
		if err := s.before(operation, call); err != nil {
			return nothing, err
		}
	}
	result, err = do()
	if s.after != nil {
		if lost := s.after(operation, call); lost != nil {
			return nothing, lost
		}
	}
	return result, err
}

func (s *store) Peek(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	return on(ctx, s, "peek", func() ([]queue.Message, error) { return s.Store.Peek(ctx, name, limit) })
}

func (s *store) Receive(ctx context.Context, name string, limit int, lease time.Duration) ([]queue.Message, error) {
	return on(ctx, s, "receive", func() ([]queue.Message, error) { return s.Store.Receive(ctx, name, limit, lease) })
}

func (s *store) Update(ctx context.Context, name, id, popReceipt, text string, delay time.Duration) (string, error) {
	return on(ctx, s, "update", func() (string, error) { return s.Store.Update(ctx, name, id, popReceipt, text, delay) })
}

func (s *store) Delete(ctx context.Context, name, id, popReceipt string) error {
	_, err := on(ctx, s, "delete", func() (any, error) { return nil, s.Store.Delete(ctx, name, id, popReceipt) })
	return err
}
