package target

import (
	"context"
	"io"
	"net/http"
	"net/netip"
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
	// most limits the request ids that are remembered; 0 means no limit, and all calls are recorded. Otherwise seen
	// counts the calls of each of the latest ids.
	most int
	seen map[string]int
	ids  []string
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
	if err != nil {
		return nil, err
	}
	return t, nil
}

// URL returns the URL at which calls are answered by the script.
func (t *Target) URL(script string) string { return "http://" + t.Addr + "/answer/" + script }

// AddrPort returns the address that the target listens on.
func (t *Target) AddrPort() netip.AddrPort { return netip.MustParseAddrPort(t.Addr) }

// Calls returns the calls received so far with a request id, in order.
func (t *Target) Calls(requestID string) []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.calls[requestID])
}

func (t *Target) answer(w http.ResponseWriter, r *http.Request) {
	answered, err := t.next(r)
	if err != nil {
		return // the caller has left
	}
	answer, err := Parse(answered)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer.Write(w, r)
}

// Forget makes the target remember only how often it was called with each of the latest ids, at most so many, for a
// target that runs long. It is called before the first call.
func (t *Target) Forget(most int) { t.most, t.seen = most, map[string]int{} }

// maxID is how much of a request id is remembered. Those of envelopes are not longer.
const maxID = 128

// next returns the part of the script that is the answer to a call.
func (t *Target) next(r *http.Request) (string, error) {
	if t.most == 0 {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return "", err
		}
		return t.record(r, body), nil
	}
	_, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	id := r.Header.Get("Idempotency-Key")
	id = strings.Clone(id[:min(len(id), maxID)])
	if t.seen[id] == 0 {
		t.ids = append(t.ids, id)
	}
	if len(t.ids) > t.most {
		delete(t.seen, t.ids[0])
		t.ids = t.ids[1:]
	}
	script := strings.Split(r.PathValue("script"), ",")
	answer := script[min(t.seen[id], len(script)-1)]
	t.seen[id]++
	return answer, nil
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
