package azure

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"asynccaller/handler/internal/storage"
)

// TestExcludesWrite: only storage's own 503 and 429, and a request that was never sent, exclude a write.
func TestExcludesWrite(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	cut := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "<QueueMessagesList>")
	})
	reset := startServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for name, test := range map[string]struct {
		endpoint string
		kind     error // nil: perhaps written
	}{
		"busy":               {startServer(t, answerWith(503, "ServerBusy")), storage.ErrBusy},
		"too_many":           {startServer(t, answerWith(429, "TooManyRequests")), storage.ErrBusy},
		"503_of_a_proxy":     {startServer(t, answerWith(503, "")), nil},
		"timed_out":          {startServer(t, answerWith(500, "OperationTimedOut")), nil},
		"connection_refused": {closed.URL, storage.ErrNotSent},
		"untrusted":          {untrusted.URL, storage.ErrNotSent},
		"reset":              {reset, nil},
		"answer_cut_off":     {cut, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, conn := range connections(test.endpoint) {
				err := putError(t.Context(), mustOpen(t, conn))
				checkKind(t, err, test.kind)
				mustHideSecrets(t, err)
			}
		})
	}
}

func checkKind(t *testing.T, err, kind error) {
	t.Helper()
	for _, other := range []error{storage.ErrBusy, storage.ErrNotSent} {
		if err == nil || errors.Is(err, other) != errors.Is(kind, other) {
			t.Errorf("%v is %v: %v", err, other, !errors.Is(kind, other))
		}
	}
}
