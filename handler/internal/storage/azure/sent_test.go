package azure

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

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
		"internal_error":     {startServer(t, answerWith(500, "InternalError")), nil},
		"timed_out":          {startServer(t, answerWith(500, "OperationTimedOut")), nil},
		"gateway":            {startServer(t, answerWith(502, "")), nil},
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
	t.Run("no_token", func(t *testing.T) {
		refuse := func(Identity) (azcore.TokenCredential, error) {
			return newCredential(Identity{ManagedIdentity: true})
		}
		t.Setenv("IDENTITY_ENDPOINT", closed.URL)
		t.Setenv("IDENTITY_HEADER", "canary")
		store, err := open(Connection{Endpoint: "https://acct.queue.core.windows.net"}, refuse, http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		checkKind(t, putError(ctx, store), storage.ErrNotSent)
	})
}

func checkKind(t *testing.T, err, kind error) {
	t.Helper()
	for _, other := range []error{storage.ErrBusy, storage.ErrNotSent} {
		if err == nil || errors.Is(err, other) != errors.Is(kind, other) {
			t.Errorf("%v is %v: %v", err, other, !errors.Is(kind, other))
		}
	}
}
