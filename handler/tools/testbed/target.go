// Package testbed runs the whole product on one machine, out of real parts: Azurite, the local host as a
// process that starts the handler as another, and a target that answers by script. The demo and the
// end-to-end tests stand on it.
package testbed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Target is an HTTP server on 127.0.0.1 that answers as the called URL says, and remembers every call.
//
// The path /answer/503,hang,200 is a script: the first call of a request id is answered with 503, the
// second one never, the third and all later ones with 200. Besides statuses a script knows the words
// hang (no answer) and reset (the connection is closed without one).
type Target struct {
	server   *http.Server
	listener net.Listener
	served   chan struct{}
	stopping chan struct{}

	mu    sync.Mutex
	calls map[string][]Call
}

// Call is one call that the target received.
type Call struct {
	// Answer is what the script gave it: a status, "hang" or "reset".
	Answer string
	// Attempt is the header X-Async-Caller-Attempt.
	Attempt string
	Header  http.Header
	Body    []byte
	At      time.Time
}

// NewTarget starts a target on a free port.
func NewTarget(ctx context.Context) (*Target, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the target: %w", err)
	}
	t := &Target{
		listener: listener,
		served:   make(chan struct{}),
		stopping: make(chan struct{}),
		calls:    map[string][]Call{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/answer/{script}", t.answer)
	t.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(t.served)
		_ = t.server.Serve(listener) // ends with Close
	}()
	return t, nil
}

// URL is where a call is answered by the given script.
func (t *Target) URL(script string) string {
	return fmt.Sprintf("http://%s/answer/%s", t.listener.Addr(), script)
}

// Close stops the target; calls that hang are cut off.
func (t *Target) Close() {
	close(t.stopping)
	_ = t.server.Close()
	<-t.served
}

// Calls are the calls received so far under a request id, in order.
func (t *Target) Calls(requestID string) []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.calls[requestID])
}

func (t *Target) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	answer, n := t.record(r, body)
	switch answer {
	case "hang":
		select {
		case <-r.Context().Done():
		case <-t.stopping:
		}
		return
	case "reset":
		panic(http.ErrAbortHandler) // the server's own way to drop a connection
	}
	status, err := strconv.Atoi(answer)
	if err != nil {
		http.Error(w, "no such answer in the script", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"call":%d}`, n)
}

func (t *Target) record(r *http.Request, body []byte) (answer string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := r.Header.Get("Idempotency-Key")
	script := strings.Split(r.PathValue("script"), ",")
	n = len(t.calls[id]) + 1
	answer = script[min(n, len(script))-1]
	t.calls[id] = append(t.calls[id], Call{
		Answer: answer, Attempt: r.Header.Get("X-Async-Caller-Attempt"), Header: r.Header.Clone(), Body: body, At: time.Now(),
	})
	return answer, n
}
