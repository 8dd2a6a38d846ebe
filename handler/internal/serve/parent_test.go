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

// A host that was killed stops nobody. What the handler has in hand comes again with the next host, so it
// must not wait for it and settle it.
func TestHostGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var parent atomic.Int64
		parent.Store(42)
		s := startWith(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }), func(server *serve.Server) {
			server.EndWith(func() int { return int(parent.Load()) })
		})
		go func() { _, _ = post(t.Context(), s.transport, "http://handler/AC-standard", "") }()
		<-time.After(time.Hour) // of the bubble's clock
		s.wantRunning(t)
		parent.Store(1)
		began := time.Now()
		if err := <-s.ended; !errors.Is(err, serve.ErrHostGone) {
			t.Errorf("got %v, want %v", err, serve.ErrHostGone)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v to notice", took)
		}
		close(release)
	})
}
