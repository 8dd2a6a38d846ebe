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
	whole, at := request(modeBinary, invocation("http://127.0.0.1:1/", 1<<10, modeBinary, time.Now()), sizes{})
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

// TestLoadAll: so many in all, no more and no less.
func TestLoadAll(t *testing.T) {
	p := &partner{ids: map[string]bool{}, status: http.StatusOK}
	if took, err := newLoad(t, p, 3).all(t.Context(), 14); err != nil || took <= 0 {
		t.Fatal(took, err)
	}
	if len(p.ids) != 14 {
		t.Errorf("%d invocations, want 14", len(p.ids))
	}
	p.status = http.StatusInternalServerError
	if _, err := newLoad(t, p, 3).all(t.Context(), 5); err == nil {
		t.Error("an answer of 500 went well")
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
	target.behave(manner{hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	whole, at := request(modeBinary, nil, sizes{})
	l := load{address: target.server.Listener.Addr().String(), request: whole, idAt: at, parallel: 3}
	if err := l.once(ctx); err == nil {
		t.Error("calls that hang were answered")
	}
}
