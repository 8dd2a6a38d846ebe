package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCircuitBreaker checks that messages for a target that is down wait without a call, that the first success brings
// them back, and that the log says so once.
func TestCircuitBreaker(t *testing.T) {
	t.Parallel()
	const messages = 40
	f := newFixture(t, options{breaker: true})
	f.must(os.WriteFile(filepath.Join(f.app, "retry.json"), []byte(`{"fast":{"schedule":["1s"]}}`), 0o600))
	var up atomic.Bool
	var failed, delivered atomic.Int64
	unsteady := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			failed.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		delivered.Add(1)
	}))
	t.Cleanup(unsteady.Close)
	for n := range messages {
		f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r%d","call":{"url":%q}}`, n, unsteady.URL))
	}
	f.start(inAFewSeconds)
	f.await("the breaker to make a message wait",
		func() bool { return strings.Contains(f.host.Output(), `"reason":"target_down"`) })
	up.Store(true)
	f.await("all messages to be delivered", func() bool { return delivered.Load() >= messages })
	f.awaitEmpty()
	f.mustDeliverOnce()
	waited := 0
	for _, line := range f.host.Lines("settled") {
		if line["reason"] == "target_down" {
			waited++
			if line["action"] != "reschedule" || line["delay"].(float64) < 5000 || line["attempt"] != nil {
				t.Errorf("%v", line)
			}
		}
	}
	opened, closed := f.host.Lines("circuit breaker opened"), f.host.Lines("circuit breaker closed")
	if waited == 0 || len(opened) != 1 || len(closed) != 1 || delivered.Load() != messages {
		t.Fatalf("%d messages waited, the breaker opened %d times and closed %d times, %d calls failed and "+
			"%d succeeded",
			waited, len(opened), len(closed), failed.Load(), delivered.Load())
	}
	if host := strings.TrimPrefix(unsteady.URL, "http://"); opened[0]["level"] != "warn" ||
		opened[0]["failures"] != 5.0 ||
		opened[0]["target_host"] != host || closed[0]["down"].(float64) < 5000 {
		t.Errorf("%v, %v", opened[0], closed[0])
	}
}

// TestTargetProfile checks that the limits and headers of targets.json apply to real calls, and to no other target.
func TestTargetProfile(t *testing.T) {
	t.Parallel()
	const messages = 12
	f := newFixture(t, options{})
	var mu sync.Mutex
	atOnce, most, keyed := 0, 0, 0
	fragile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		atOnce++
		most = max(most, atOnce)
		if r.Header.Get("X-Key") == "C4nary" {
			keyed++
		}
		mu.Unlock()
		<-time.After(200 * time.Millisecond)
		mu.Lock()
		atOnce--
		mu.Unlock()
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(fragile.Close)
	profiles := fmt.Sprintf(`{%q: {"concurrency": 2, "headers": {"X-Key": "$FRAGILE_KEY"}}}`,
		strings.TrimPrefix(fragile.URL, "http://"))
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"), []byte(profiles), 0o600))
	for n := range messages {
		f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"call":{"url":%q}}`, fragile.URL))
		f.put(fmt.Sprintf("r%d", n), "200", "")
	}
	f.start([]string{"FRAGILE_KEY=C4nary"})
	f.await("all messages to be delivered", func() bool { return f.delivered(messages) })
	f.awaitEmpty()
	f.mustDeliverOnce()
	if most != 2 || keyed != messages {
		t.Errorf("at most %d calls at once, %d with the header; want 2 and %d", most, keyed, messages)
	}
	busy := 0
	for _, line := range f.host.Lines("settled") {
		if line["reason"] == "busy" {
			busy++
			if line["detail"] != "concurrency" || line["target_host"] == f.target.Addr {
				t.Errorf("%v", line)
			}
		}
	}
	if busy < messages-2 {
		t.Errorf("%d reschedules, want one for each message beyond two", busy)
	}
	for n := range messages {
		if calls := f.target.Calls(fmt.Sprintf("r%d", n)); len(calls) != 1 || calls[0].Header.Get("X-Key") != "" {
			t.Errorf("r%d: %d calls, header %q", n, len(calls), calls[0].Header.Get("X-Key"))
		}
	}
}
