package memory_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/storagetest"
)

func TestConformance(t *testing.T) {
	storagetest.RunInBubble(t, func(*testing.T) storage.Queues { return memory.New() })
}

const name = "async-caller"

func newQueue(t *testing.T) *memory.Queues {
	t.Helper()
	s := memory.New()
	if err := s.Create(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPut(t *testing.T, s *memory.Queues, item storage.Item) storage.Message {
	t.Helper()
	msg, err := s.Put(t.Context(), name, item)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func mustReceive(t *testing.T, s *memory.Queues, lease time.Duration) []storage.Message {
	t.Helper()
	messages, err := s.Receive(t.Context(), name, storage.MaxBatch, lease)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func texts(messages []storage.Message) []string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Text)
	}
	return all
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueue(t)
		mustPut(t, s, storage.Item{Text: "second", Delay: 2 * time.Second})
		mustPut(t, s, storage.Item{Text: "first", Delay: time.Second})
		mustPut(t, s, storage.Item{Text: "third", Delay: 2 * time.Second})
		want := []string{"first", "second", "third"}
		if got := texts(s.All(name)); !slices.Equal(got, want) {
			t.Errorf("All = %q, want %q", got, want)
		}
		storage.Sleep(t.Context(), 2*time.Second)
		if got := texts(mustReceive(t, s, time.Hour)); !slices.Equal(got, want) {
			t.Errorf("received %q, want %q", got, want)
		}
	})
}

func TestBubbleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueue(t)
		mustPut(t, s, storage.Item{Text: "x", Delay: storage.MaxDelay})
		storage.Sleep(t.Context(), storage.MaxDelay-1)
		if got := mustReceive(t, s, time.Second); len(got) != 0 {
			t.Fatalf("received %q a nanosecond early", texts(got))
		}
		storage.Sleep(t.Context(), 1)
		if got := mustReceive(t, s, 7*24*time.Hour); len(got) != 1 {
			t.Fatalf("received %d messages in time, want 1", len(got))
		}
		storage.Sleep(t.Context(), 7*24*time.Hour)
		if got := mustReceive(t, s, time.Second); len(got) != 1 || got[0].DequeueCount != 2 {
			t.Fatalf("received %+v after the lease, want the message for the second time", got)
		}
	})
}

func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueue(t)
		if got := s.All("missing"); got != nil {
			t.Errorf("All of a missing queue = %+v, want nil", got)
		}
		start := time.Now().UTC()
		put := mustPut(t, s, storage.Item{Text: "x", Delay: time.Hour, TTL: 2 * time.Hour})
		want := storage.Message{
			ID: put.ID, PopReceipt: put.PopReceipt, Text: "x",
			InsertedAt: start, ExpiresAt: start.Add(2 * time.Hour), NextVisibleAt: start.Add(time.Hour),
		}
		all := s.All(name)
		if len(all) != 1 || all[0] != want {
			t.Fatalf("All = %+v, want %+v", all, want)
		}
		all[0].Text = "changed" // a copy
		if s.All(name)[0] != want {
			t.Error("the caller's change shows in the store")
		}
		if err := s.Delete(t.Context(), name, put.ID, put.PopReceipt); err != nil {
			t.Errorf("delete with the receipt of All: %v", err)
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueue(t)
		mustPut(t, s, storage.Item{Text: "x", TTL: time.Minute})
		msg := mustReceive(t, s, time.Second)[0]
		storage.Sleep(t.Context(), 30*time.Second)
		// Azurite does not have this rule of the service.
		_, err := s.Update(t.Context(), name, msg.ID, msg.PopReceipt, "y", time.Minute)
		if !errors.Is(err, storage.ErrRefused) {
			t.Errorf("update beyond the expiry: %v, want ErrRefused", err)
		}
		storage.Sleep(t.Context(), 30*time.Second)
		if err := s.Delete(t.Context(), name, msg.ID, msg.PopReceipt); !errors.Is(err, storage.ErrStale) {
			t.Errorf("delete of an expired message: %v, want ErrStale", err)
		}
		if got := s.All(name); len(got) != 0 {
			t.Errorf("All = %+v after the expiry, want none", got)
		}
	})
}
