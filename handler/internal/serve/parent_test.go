package serve_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/serve"
)

// A killed host does not stop its handler. The next host receives the messages in progress again, so the handler must
// not settle them.
func TestHostGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var parent atomic.Int64
		parent.Store(42)
		s := startWith(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }), func(server *serve.Server) {
			server.EndWith(func() int { return int(parent.Load()) })
		})
		go func() { _, _ = post(t.Context(), s.transport, "http://handler/AC-standard", "") }()
		advance(time.Hour)
		s.wantRunning(t)
		parent.Store(1)
		began := time.Now()
		if err := <-s.ended; !errors.Is(err, serve.ErrHostGone) {
			t.Errorf("got %v, want %v", err, serve.ErrHostGone)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Run ended after %v", took)
		}
		close(release)
	})
}
