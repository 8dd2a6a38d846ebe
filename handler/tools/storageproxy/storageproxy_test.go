package storageproxy_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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

// TestReceipts checks that an update is repeated until it has another receipt, as Azure's always has: otherwise the old
// one can still delete the message.
func TestReceipts(t *testing.T) {
	updates := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		updates++
		receipt := r.URL.Query().Get("popreceipt")
		if updates > 1 {
			receipt = "another"
		}
		w.Header().Set("X-Ms-Popreceipt", receipt)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(upstream.Close)
	proxy, err := storageproxy.Open(t.Context(), upstream.URL+"/account", &orders{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		"http://"+proxy.Addr+"/account/q-1/messages/m1?popreceipt=first&visibilitytimeout=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if got := response.Header.Get("X-Ms-Popreceipt"); got != "another" || updates != 2 {
		t.Errorf("receipt %q after %d updates", got, updates)
	}
}
