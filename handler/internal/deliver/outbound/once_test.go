package outbound_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"asynccaller/handler/internal/rules/decision"
)

// TestOneAttemptIsOneCall: after a connection breaks, the target may have received the call. Only a new attempt, which
// is delayed and counted, repeats the call.
func TestOneAttemptIsOneCall(t *testing.T) {
	for name, call := range map[string]object{
		"post":   {"method": "POST", "body": "x"},
		"delete": {"method": "DELETE"},
		"own_key": {
			"method": "POST", "body": "x",
			"headers": object{"Idempotency-Key": "mine", "X-Idempotency-Key": "mine"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			const connections = 5
			var together sync.WaitGroup
			together.Add(connections)
			var calls atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/warm" { // each needs its own connection, which stays open
					together.Done()
					together.Wait()
					return
				}
				calls.Add(1)
				panic(http.ErrAbortHandler) // breaks the connection without an answer
			}))
			defer server.Close()
			client := newClient(t, longTimeout)
			var warm sync.WaitGroup
			for range connections {
				warm.Go(func() {
					wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL + "/warm"})), 200)
				})
			}
			warm.Wait()

			call["url"] = server.URL + "/call"
			if o := client.Do(t.Context(), mustEnvelope(t, call)); o.Failure != decision.FailureConnection {
				t.Errorf("got %+v, want %q", o, decision.FailureConnection)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("the target got %d calls in one attempt", n)
			}
		})
	}
}

// TestConnectionThatClosesWhenIdle: a target may close a kept connection at the moment at which a call is about to use
// it. The target has not answered with anything that could be unusable.
func TestConnectionThatClosesWhenIdle(t *testing.T) {
	const calls = 100 // of which some meet the moment
	server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(connection, "HTTP/1.1 204 No Content\r\n\r\n")
		_ = connection.Close()
	})
	client := newClient(t, longTimeout)
	text := strings.Repeat("x", 5<<10)
	e := mustEnvelope(t, object{"url": server.URL, "gzipBody": inGzip(text)}, object{"asyncCaller": 2})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range calls {
				o := client.Do(t.Context(), e)
				closed := o.Detail == "connection closed before the answer" || o.Detail == "connection reset"
				if o.Failure != "" && (o.Failure != decision.FailureConnection || !closed) {
					t.Errorf("got %s: %s", o.Failure, o.Detail)
					return
				}
			}
		})
	}
	callers.Wait()
	for _, s := range server.all() {
		if string(s.body) != text {
			t.Errorf("the body is %q", s.body)
		}
	}
}
