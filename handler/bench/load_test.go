package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/queue"
	"asynccaller/handler/queue/azure"
)

// partner is a program's part: it answers invocations and remembers their ids.
type partner struct {
	mu  sync.Mutex
	ids map[string]bool
	// status is what it answers from the third invocation on.
	status int
}

func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids[r.Header.Get("X-Azure-Functions-InvocationId")] = true
	if len(p.ids) > 2 {
		w.WriteHeader(p.status)
	}
}

func newLoad(t *testing.T, p *partner, parallel int) load {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	whole, at := request(modeBinary, invocation("http://127.0.0.1:1/", 1<<10, modeBinary, time.Now()))
	return load{address: server.Listener.Addr().String(), request: whole, idAt: at, parallel: parallel}
}

func TestLoad(t *testing.T) {
	p := &partner{ids: map[string]bool{}, status: http.StatusOK}
	got, err := newLoad(t, p, 4).run(t.Context(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got.answered < 4 || got.answered != len(p.ids) {
		t.Errorf("%d answered, the partner saw %d different ids", got.answered, len(p.ids))
	}
	if got.rate <= 0 || got.p50 <= 0 || got.p99 < got.p50 {
		t.Errorf("%+v", got)
	}
}

func TestLoadFailsLoudly(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		length time.Duration
		want   string
	}{
		"answer":  {http.StatusInternalServerError, time.Minute, "answered 500, want 200"},
		"no_time": {http.StatusOK, 0, "-time"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &partner{ids: map[string]bool{}, status: test.status}
			_, err := newLoad(t, p, 4).run(t.Context(), test.length)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestLoadInterrupted(t *testing.T) {
	target := newTarget()
	t.Cleanup(target.close)
	target.status.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	whole, at := request(modeBinary, nil)
	l := load{address: target.server.Listener.Addr().String(), request: whole, idAt: at, parallel: 3}
	if err := l.once(ctx); err == nil {
		t.Error("calls that hang were answered")
	}
}

func TestTargetHangsUntilReleased(t *testing.T) {
	target := newTarget()
	t.Cleanup(target.close)
	target.status.Store(0)
	whole, at := request(modeBinary, nil)
	l := load{address: target.server.Listener.Addr().String(), request: whole, idAt: at, parallel: 3}
	done := make(chan error, 1)
	go func() { done <- l.once(t.Context()) }()
	for target.hanging.Load() < 3 {
		select {
		case err := <-done:
			t.Fatalf("answered: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	target.release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := target.calls.Load(); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

// TestStorage: our own client takes the stub for storage.
func TestStorage(t *testing.T) {
	stub := newStorage()
	t.Cleanup(stub.close)
	connection, err := azure.ParseConnection(func(string) string { return stub.connectionString() }, "AzureWebJobsStorage")
	if err != nil {
		t.Fatal(err)
	}
	store, err := azure.Open(connection)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := store.Create(t.Context(), "q1s"); err != nil {
		t.Error(err)
	}
	if m, err := store.Put(t.Context(), "q1s", queue.Item{Text: "eA=="}); err != nil || m.ID == "" || m.PopReceipt == "" {
		t.Errorf("%+v, %v", m, err)
	}
	if n, err := store.Count(t.Context(), "q1s"); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if n := stub.transactions.Load(); n != 3 || stub.strange.Load() != 0 {
		t.Errorf("%d transactions, %d of them strange", n, stub.strange.Load())
	}
	if _, err := store.Names(t.Context(), ""); err == nil || stub.strange.Load() != 1 {
		t.Errorf("what the stub does not know went well: %v", err)
	}
	if most := stub.connections.peak(); most < 1 {
		t.Errorf("%d connections", most)
	}
}

func TestConnectionsPeak(t *testing.T) {
	var c connections
	for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateNew, http.StateIdle, http.StateClosed} {
		c.watch(nil, state)
	}
	if most := c.peak(); most != 2 {
		t.Errorf("at most %d, want 2", most)
	}
	if most := c.peak(); most != 1 {
		t.Errorf("at most %d since, want the one that is open", most)
	}
}
