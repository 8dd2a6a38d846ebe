package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
)

// manner is how the target answers a call.
type manner struct {
	// status is what it answers; 0 with a call that hangs means not before it is released, and 200 then.
	status int
	// announced is the Content-Length, where there is one; sent is how much of the body it sends.
	announced, sent int64
	// hang means that it then waits until it is released.
	hang bool
}

// target is what is called.
type target struct {
	server *httptest.Server
	manner atomic.Pointer[manner]
	// calls is how many came, received how many bytes their bodies had, hanging how many wait.
	calls, received, hanging atomic.Int64

	mu   sync.Mutex
	open chan struct{}
}

func newTarget() *target {
	t := &target{open: make(chan struct{})}
	t.answer(http.StatusOK)
	t.server = httptest.NewServer(t)
	return t
}

// answer makes it answer at once with the status, and nothing else.
func (t *target) answer(status int) { t.behave(manner{status: status}) }

func (t *target) behave(m manner) { t.manner.Store(&m) }

func (t *target) url() string { return t.server.URL + "/orders" }

// port is where the target listens.
func (t *target) port() int { return t.server.Listener.Addr().(*net.TCPAddr).Port }

// ServeHTTP reads the body to its end before it answers or hangs, as a target does that looks at it.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return // the caller has gone
	}
	t.received.Add(n)
	t.calls.Add(1)
	m := t.manner.Load()
	if m.announced > 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(m.announced, 10))
	}
	if m.status != 0 {
		w.WriteHeader(m.status)
	}
	send(w, m.sent)
	if !m.hang {
		return
	}
	if m.status != 0 {
		_ = http.NewResponseController(w).Flush() // a caller who has gone is noticed below
	}
	t.wait(r.Context().Done())
}

// send sends so many bytes of a body, or as many as the caller takes.
func send(w io.Writer, size int64) {
	piece := make([]byte, min(size, 32<<10))
	for size > 0 {
		n, err := w.Write(piece[:min(size, int64(len(piece)))])
		if err != nil {
			return // the caller has had enough
		}
		size -= int64(n)
	}
}

// wait hangs until all calls are released, or this one's caller has gone.
func (t *target) wait(gone <-chan struct{}) {
	t.mu.Lock()
	open := t.open
	t.mu.Unlock()
	t.hanging.Add(1)
	defer t.hanging.Add(-1)
	select {
	case <-open:
	case <-gone:
	}
}

// release lets all calls go that hang, and answers 200 to all that come from now on.
func (t *target) release() {
	t.answer(http.StatusOK)
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
