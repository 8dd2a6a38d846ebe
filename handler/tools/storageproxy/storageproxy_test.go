package storageproxy_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/azurite/azuritetest"
	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/testbed"
)

// watcher records the requests for messages that it sees, and always gives the same orders.
type watcher struct {
	mu            sync.Mutex
	seen          []string
	before, after storageproxy.Order
}

var operations = map[storageproxy.Operation]string{
	storageproxy.Put: "put", storageproxy.Get: "get", storageproxy.Update: "update", storageproxy.Delete: "delete",
}

func (w *watcher) Before(r storageproxy.Request) storageproxy.Order {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Operation == storageproxy.Other {
		return storageproxy.Order{}
	}
	what := "before " + operations[r.Operation] + " " + r.Text
	if r.Delay > 0 {
		what += " for " + r.Delay.String()
	}
	w.seen = append(w.seen, what)
	return w.before
}

func (w *watcher) After(r storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Operation == storageproxy.Other {
		return storageproxy.Order{}
	}
	what := "after " + operations[r.Operation]
	for _, m := range a.Messages {
		what += " " + m.Text
		if m.ID == "" || m.PopReceipt == "" {
			what += " without an id or a receipt"
		}
		if m.DequeueCount > 0 {
			what += fmt.Sprintf(" dequeued %d", m.DequeueCount)
		}
	}
	if !a.Done() {
		what += " not done"
	}
	w.seen = append(w.seen, what)
	return w.after
}

func (w *watcher) notes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

func (w *watcher) order(before, after storageproxy.Order) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after, w.seen = before, after, nil
}

func mustProxy(t *testing.T) (server *azurite.Server, through, direct *azure.Queues, w *watcher) {
	t.Helper()
	server = azuritetest.Start(t, azurite.Options{})
	w = &watcher{}
	proxy, err := storageproxy.Open(t.Context(), server.Endpoint, w)
	if err != nil {
		t.Fatal(err)
	}
	through = mustOpen(t, proxy.Through(server.ConnectionString))
	direct = mustOpen(t, server.ConnectionString)
	t.Cleanup(proxy.Close)
	if err := through.Create(t.Context(), "q-1"); err != nil {
		t.Fatal(err)
	}
	return server, through, direct, w
}

func mustOpen(t *testing.T, connectionString string) *azure.Queues {
	t.Helper()
	store, err := testbed.OpenStore(connectionString)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// TestProxy checks that signed requests pass and that the watcher sees each of them before and after.
func TestProxy(t *testing.T) {
	_, store, _, w := mustProxy(t)
	if _, err := store.Put(t.Context(), "q-1", storage.Item{Text: "one"}); err != nil {
		t.Fatal(err)
	}
	messages, err := store.Receive(t.Context(), "q-1", 1, time.Minute)
	if err != nil || len(messages) != 1 {
		t.Fatalf("received %v, %v", messages, err)
	}
	receipt, err := store.Update(t.Context(), "q-1", messages[0].ID, messages[0].PopReceipt, "two", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Peek(t.Context(), "q-1", 1); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), "q-1", messages[0].ID, receipt); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"before put one", "after put ", "before get  for 1m0s", "after get one dequeued 1",
		"before update two for 1h0m0s", "after update", "before delete ", "after delete",
	}
	if seen := w.notes(); !reflect.DeepEqual(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}

// TestOrders checks that storage does not carry out a request that is reset before, and does if its answer is lost.
func TestOrders(t *testing.T) {
	_, through, direct, w := mustProxy(t)
	for _, test := range []struct {
		name          string
		before, after storageproxy.Order
		refused       bool
		written       int
	}{
		{name: "passed_on", written: 1},
		{name: "held", before: storageproxy.Order{Hold: time.Millisecond}, written: 1},
		{name: "lost", before: storageproxy.Order{Reset: true}, refused: true},
		{name: "refused", before: storageproxy.Order{Status: 503}, refused: true},
		{name: "answer_lost", after: storageproxy.Order{Reset: true}, refused: true, written: 1},
		{name: "held_until_the_client_leaves", before: storageproxy.Order{Hold: time.Hour, Reset: true}, refused: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.order(test.before, test.after)
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if test.before.Hold == time.Hour {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
			}
			defer cancel()
			_, err := through.Put(ctx, "q-1", storage.Item{Text: "one"})
			if (err != nil) != test.refused || errors.Is(err, storage.ErrRefused) {
				t.Errorf("error %v", err)
			}
			messages, err := direct.Receive(t.Context(), "q-1", storage.MaxBatch, time.Hour)
			if err != nil || len(messages) != test.written {
				t.Errorf("%d messages were written, %v; want %d", len(messages), err, test.written)
			}
		})
	}
}

func TestStorageStopped(t *testing.T) {
	server, store, _, w := mustProxy(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), "q-1", storage.Item{Text: "one"}); err == nil {
		t.Error("a stopped server has answered")
	}
	if want := []string{"before put one", "after put not done"}; !reflect.DeepEqual(w.notes(), want) {
		t.Errorf("seen %q, want %q", w.notes(), want)
	}
}
