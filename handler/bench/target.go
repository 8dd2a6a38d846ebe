package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
)

// target is what is called. It answers at once with a status, or keeps calls hanging.
type target struct {
	server *httptest.Server
	// status is what it answers; 0 keeps calls hanging until release.
	status atomic.Int64
	// calls is how many came, hanging how many wait for their answer.
	calls, hanging atomic.Int64

	mu   sync.Mutex
	open chan struct{}
}

func newTarget() *target {
	t := &target{open: make(chan struct{})}
	t.status.Store(http.StatusOK)
	t.server = httptest.NewServer(t)
	return t
}

func (t *target) url() string { return t.server.URL + "/orders" }

// ServeHTTP reads the body to its end before it answers or hangs, as a target does that looks at it.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // the caller has gone
	}
	t.calls.Add(1)
	if status := t.status.Load(); status != 0 {
		w.WriteHeader(int(status))
		return
	}
	t.mu.Lock()
	open := t.open
	t.mu.Unlock()
	t.hanging.Add(1)
	defer t.hanging.Add(-1)
	select {
	case <-open:
	case <-r.Context().Done():
	}
}

// release answers 200 to every call that hangs, and to all that come from now on.
func (t *target) release() {
	t.status.Store(http.StatusOK)
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.open)
	t.open = make(chan struct{})
}

func (t *target) close() {
	t.release()
	t.server.Close()
}

// connections counts a server's open connections, and the most that were open at a time.
type connections struct {
	mu         sync.Mutex
	open, most int
}

func (c *connections) watch(_ net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open++
		c.most = max(c.most, c.open)
	case http.StateClosed, http.StateHijacked:
		c.open--
	case http.StateActive, http.StateIdle: // open already
	}
}

// peak is the most that were open since the last call.
func (c *connections) peak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.most
	c.most = c.open
	return most
}
