package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
)

const (
	// awayTime is how long storage may give no answer before the worker is not ready.
	awayTime = time.Minute
	// healthTimeout bounds a request for the health, and maxHealthHeader its headers.
	healthTimeout   = 5 * time.Second
	maxHealthHeader = 8 << 10
)

// health says whether the worker is ready: whether it receives messages.
type health struct {
	// isIdle says that it makes no calls, for a reason that does not pass by itself.
	isIdle bool

	mu sync.Mutex
	// hasAnswer says that storage has answered, failing since when polls have failed; zero if the latest did not.
	hasAnswer bool
	failing   time.Time
}

// polled learns how a poll ended. That a queue does not exist yet is an answer.
func (h *health) polled(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, storage.ErrNoQueue):
		h.hasAnswer, h.failing = true, time.Time{}
	case h.failing.IsZero():
		h.failing = time.Now()
	}
}

// problem returns why the worker is not ready, in a fixed word, or nothing if it is.
func (h *health) problem() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.isIdle:
		return "settings"
	case !h.failing.IsZero() && time.Since(h.failing) >= awayTime:
		return "storage"
	case !h.hasAnswer:
		return "starting"
	}
	return ""
}

// ServeHTTP answers GET / with 200, or with 503 and the problem.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" || r.Method != http.MethodGet {
		http.Error(w, "GET / is all there is", http.StatusNotFound)
		return
	}
	problem := h.problem()
	if problem != "" {
		http.Error(w, problem, http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // the one who asks may have gone
}

// serveHealth serves the health on the port, if there is one, on all addresses: the platform asks from outside.
func (w *worker) serveHealth(ctx context.Context) (end func(), err error) {
	if w.HealthPort == "" {
		return func() {}, nil
	}
	port, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", w.HealthPort))
	if err != nil {
		return nil, fmt.Errorf("listen for --health: %w", err)
	}
	server := &http.Server{
		Handler: &w.health, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout, MaxHeaderBytes: maxHealthHeader,
	}
	go func() { _ = server.Serve(port) }() // it ends with end
	return func() { _ = server.Close() }, nil
}
