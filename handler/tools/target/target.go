package target

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Target is a server that answers calls as their URL says and records every call.
//
// The path /answer/503,hang,200 is a script, whose parts [Parse] describes: the first call of a request id is
// answered with 503, the second one hangs, the third and all later ones are answered with 200.
type Target struct {
	*Server

	mu    sync.Mutex
	calls map[string][]Call
}

// Call is one call that the target received.
type Call struct {
	// Answer is the part of the script that it was answered with.
	Answer string
	// Attempt is the header X-Async-Caller-Attempt.
	Attempt string
	Method  string
	Header  http.Header
	Body    []byte
	At      time.Time
}

// Start starts a target on a free port. The caller closes it.
func Start(ctx context.Context) (*Target, error) { return StartAt(ctx, 0) }

// StartAt starts a target on a port; 0 means a free one.
func StartAt(ctx context.Context, port int) (t *Target, err error) {
	t = &Target{calls: map[string][]Call{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/answer/{script}", t.answer)
	t.Server, err = serveAt(ctx, port, mux)
	return t, err
}

// URL returns the URL at which calls are answered by the script.
func (t *Target) URL(script string) string { return "http://" + t.Addr + "/answer/" + script }

// Calls returns the calls received so far with a request id, in order.
func (t *Target) Calls(requestID string) []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.calls[requestID])
}

func (t *Target) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has left
	}
	answer, err := Parse(t.record(r, body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer.Write(w, r)
}

// record records a call and returns the part of the script that is its answer.
func (t *Target) record(r *http.Request, body []byte) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := r.Header.Get("Idempotency-Key")
	script := strings.Split(r.PathValue("script"), ",")
	answer := script[min(len(t.calls[id]), len(script)-1)]
	t.calls[id] = append(t.calls[id], Call{
		Answer: answer, Attempt: r.Header.Get("X-Async-Caller-Attempt"), Method: r.Method, Header: r.Header.Clone(),
		Body: body, At: time.Now(),
	})
	return answer
}
