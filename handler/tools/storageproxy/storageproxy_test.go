package storageproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite/azuritetest"
	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/testbed"
)

// orders are what a watcher orders for each put.
type orders struct{ before, after storageproxy.Order }

func (o *orders) Before(r storageproxy.Request) storageproxy.Order {
	if r.Operation != storageproxy.Put {
		return storageproxy.Order{}
	}
	return o.before
}

func (o *orders) After(r storageproxy.Request, _ storageproxy.Answer) storageproxy.Order {
	if r.Operation != storageproxy.Put {
		return storageproxy.Order{}
	}
	return o.after
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

// TestOrders checks that storage does not carry out a request that is reset before, and does if its answer is lost.
// Without these faults the tests of them would pass.
func TestOrders(t *testing.T) {
	server := azuritetest.Run(t)
	direct := mustOpen(t, server.ConnectionString)
	if err := direct.Create(t.Context(), "q-1"); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		before, after storageproxy.Order
		refused       bool
		written       int
	}{
		"passed_on":   {written: 1},
		"held":        {before: storageproxy.Order{Hold: time.Millisecond}, written: 1},
		"lost":        {before: storageproxy.Order{Reset: true}, refused: true},
		"refused":     {before: storageproxy.Order{Status: 503}, refused: true},
		"answer_lost": {after: storageproxy.Order{Reset: true}, refused: true, written: 1},
		"held_until_the_client_leaves": {
			before: storageproxy.Order{Hold: time.Hour, Reset: true}, refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxy, err := storageproxy.Open(t.Context(), server.Endpoint, &orders{test.before, test.after})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Close)
			through := mustOpen(t, proxy.Through(server.ConnectionString))
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if test.before.Hold == time.Hour {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
			}
			defer cancel()
			_, err = through.Put(ctx, "q-1", storage.Item{Text: "one"})
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
