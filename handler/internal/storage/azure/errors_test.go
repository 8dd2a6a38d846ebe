package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/socket"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/freeport"
)

const (
	canaryKey  = "Y2FuYXJ5LWtleS1jYW5hcnkta2V5LWNhbmFyeQ=="
	canarySAS  = "sv=2022-11-02&ss=q&srt=sco&sp=raup&sig=canarySAS%2Bsig%3D"
	canaryText = "canary-text"
)

// connections returns connections with a secret in the URL and with a secret in a header.
func connections(endpoint string) map[string]Connection {
	return map[string]Connection{
		"key": {Endpoint: endpoint + "/acct", AccountName: "acct", AccountKey: canaryKey},
		"sas": {Endpoint: endpoint, SAS: canarySAS},
	}
}

func mustOpen(t *testing.T, conn Connection) *Queues {
	t.Helper()
	store, err := Open(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func startServer(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func putError(ctx context.Context, store *Queues) error {
	_, err := store.Put(ctx, "async-caller", storage.Item{Text: canaryText})
	return err
}

// mustHideSecrets checks the error and all that it wraps, with every way of printing.
func mustHideSecrets(t *testing.T, err error) {
	t.Helper()
	for ; err != nil; err = errors.Unwrap(err) {
		for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %#v %q", err, err, err, err)} {
			for _, hidden := range []string{"canary", canaryKey, "sig=", "SharedKey"} {
				if strings.Contains(text, hidden) {
					t.Errorf("%q shows in %s", hidden, text)
				}
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
	}
}

// serviceMessage returns the first line of a service's message that quotes the request.
func serviceMessage(r *http.Request) string {
	credential := strings.TrimPrefix(r.Header.Get("Authorization"), "SharedKey ")
	return "The service\u202e says so: " + credential + strings.ReplaceAll(r.URL.String(), "&", "&amp;") + ". "
}

// answerWith returns a service that gives one answer. Like the real one, its answer holds secrets.
func answerWith(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if code != "" {
			w.Header().Set("x-ms-error-code", code)
		}
		w.Header().Set("X-Canary", "canary")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "\ufeff<?xml "+
			"version=\"1.0\"?><Error><Code>%s</Code><Message>%s\ncanary</Message><Detail>canary</Detail></Error>",
			code, serviceMessage(r))
	}
}

// kinds are the errors that are final, or say that nothing was written.
var kinds = []error{
	storage.ErrNoQueue, storage.ErrStale, storage.ErrRefused, storage.ErrDenied, storage.ErrBusy, storage.ErrNotSent,
}

const foreignText = "the answer is not Queue Storage's: a proxy (HTTP_PROXY), or the endpoint of another service"

// TestAnswers: an error has one line with the operation and the answer, and no secret, and no request is repeated.
func TestAnswers(t *testing.T) {
	const (
		stale   = ": message is gone or another client received it"
		refused = ": The service says so: ***: storage refused"
		denied  = refused + " access"
	)
	tests := []struct {
		status int
		code   string
		kind   error // nil: temporary, and perhaps written
		text   string
	}{
		{404, "QueueNotFound", storage.ErrNoQueue, "404 QueueNotFound: queue does not exist"},
		{409, "QueueBeingDeleted", storage.ErrNoQueue, "409 QueueBeingDeleted: queue does not exist"},
		{404, "MessageNotFound", storage.ErrStale, "404 MessageNotFound" + stale},
		{400, "PopReceiptMismatch", storage.ErrStale, "400 PopReceiptMismatch" + stale},
		{403, "AuthenticationFailed", storage.ErrDenied, "403 AuthenticationFailed" + denied},
		{401, "NoAuthenticationInformation", storage.ErrDenied, "401 NoAuthenticationInformation" + denied},
		{400, "InvalidAuthenticationInfo", storage.ErrDenied, "400 InvalidAuthenticationInfo" + denied},
		{403, "not\ta code", storage.ErrDenied, "403 Forbidden: storage refused access"},
		{400, "InvalidHeaderValue", storage.ErrRefused, "400 InvalidHeaderValue" + refused},
		{413, "RequestBodyTooLarge", storage.ErrRefused, "413 RequestBodyTooLarge" + refused},
		{404, "", nil, "404 Not Found: " + foreignText},
		{408, "OperationTimedOut", nil, "408 OperationTimedOut"},
		{429, "", nil, "429 Too Many Requests: " + foreignText},
		{500, "InternalError", nil, "500 InternalError"},
		{500, "OperationTimedOut", nil, "500 OperationTimedOut"},
		{503, "ServerBusy", storage.ErrBusy, "503 ServerBusy"},
		{429, "TooManyRequests", storage.ErrBusy, "429 TooManyRequests"},
		{503, "", nil, "503 Service Unavailable: " + foreignText}, // a proxy may have forwarded the request
		{599, "", nil, "599: " + foreignText},
		{302, "", nil, "302 Found: " + foreignText},
		{200, "", nil, "200 OK: " + foreignText},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%d_%s", test.status, test.code), func(t *testing.T) {
			var requests atomic.Int32
			url := startServer(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				w.Header().Set("Location", "http://"+r.Host+"/elsewhere")
				answerWith(test.status, test.code)(w, r)
			})
			for name, conn := range connections(url) {
				requests.Store(0)
				err := putError(t.Context(), mustOpen(t, conn))
				if want := "put on queue async-caller: " + test.text; err == nil || err.Error() != want {
					t.Errorf("%s: error %q, want %q", name, err, want)
				}
				mustBe(t, test.kind, err)
				if got := requests.Load(); got != 1 {
					t.Errorf("%s: %d requests, want 1: the caller retries", name, got)
				}
			}
		})
	}
}

// A service that does not know our API version says so itself, or only names the header.
func TestVersionRefused(t *testing.T) {
	const fix = "--skipApiVersionCheck"
	for name, test := range map[string]struct{ body, want string }{
		"azurite": {
			"<Message>The API version is not supported. Upgrade Azurite, or give " + fix + ".\nRequestId:1</Message>",
			"The API version is not supported. Upgrade Azurite, or give " + fix,
		},
		"old_azurite": {
			"<Message>The API version is not supported by Azurite.</Message>",
			"The API version is not supported by Azurite; update Azurite, or start it with " + fix,
		},
		"azure": {
			"<Message>Wrong format.\r\nRequestId:1</Message><HeaderName>x-ms-version</HeaderName>",
			"Wrong format; update Azurite, or start it with " + fix,
		},
		"other_header": {"<Message>Wrong format.</Message><HeaderName>x-ms-date</HeaderName>", "Wrong format"},
		"no_message":   {"<HeaderName>x-ms-version</HeaderName>", "update Azurite, or start it with " + fix},
	} {
		t.Run(name, func(t *testing.T) {
			url := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("x-ms-error-code", "InvalidHeaderValue")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, "<Error>"+test.body+"</Error>")
			})
			err := putError(t.Context(), mustOpen(t, connections(url)["key"]))
			want := "put on queue async-caller: 400 InvalidHeaderValue: " + test.want + ": storage refused"
			if err == nil || err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
		})
	}
}

// The service reports a queue that exists with other metadata.
func TestCreateExists(t *testing.T) {
	url := startServer(t, answerWith(http.StatusConflict, "QueueAlreadyExists"))
	if err := mustOpen(t, connections(url)["key"]).Create(t.Context(), "async-caller"); err != nil {
		t.Error(err)
	}
}

// TestEveryOperation: the error of each operation names it.
func TestEveryOperation(t *testing.T) {
	url := startServer(t, answerWith(http.StatusServiceUnavailable, "ServerBusy"))
	m := storage.Message{ID: "6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57", PopReceipt: "canary-receipt"}
	for _, conn := range connections(url) {
		operations := queueOperations(mustOpen(t, conn), "async-caller", m)
		for operation, doing := range map[string]string{
			"create": "create queue async-caller-new", "put": "put on queue async-caller",
			"update": "update message on queue async-caller", "delete": "delete message from queue async-caller",
			"receive": "receive from queue async-caller", "peek": "peek at queue async-caller",
			"count": "count queue async-caller", "names": "list queues",
		} {
			err := operations[operation](t.Context())
			if want := doing + ": 503 ServerBusy"; err == nil || err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
			mustHideSecrets(t, err)
		}
	}
}

// TestNoAnswer: only a request that was never sent excludes a write.
func TestNoAnswer(t *testing.T) {
	reset := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the client may see its own write fail first
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // so that Close sends a reset
		_ = conn.Close()
	}
	cutOff := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "<QueueMessagesList>")
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the client go
		<-r.Context().Done()
	}
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	nobody, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	isRefused := func(err error) bool {
		return socket.IsRefused(err) && strings.Contains(err.Error(), "Post "+nobody+": ")
	}
	for name, test := range map[string]struct {
		endpoint string
		want     func(error) bool
		kind     error
	}{
		"reset":     {startServer(t, reset), socket.IsReset, nil},
		"cut_off":   {startServer(t, cutOff), equals(io.ErrUnexpectedEOF), nil},
		"timeout":   {startServer(t, hang), equals(context.DeadlineExceeded), nil},
		"refused":   {"http://" + nobody, isRefused, storage.ErrNotSent},
		"untrusted": {untrusted.URL, isUntrusted, storage.ErrNotSent},
	} {
		t.Run(name, func(t *testing.T) {
			for way, conn := range connections(test.endpoint) {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if name != "timeout" {
					ctx = t.Context()
				}
				err := putError(ctx, mustOpen(t, conn))
				mustBe(t, test.kind, err)
				if !test.want(err) {
					t.Errorf("%s: error %q is another one", way, err)
				}
			}
		})
	}
}

func equals(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

// mustBe checks the kind of the error of a put; nil is a temporary one.
func mustBe(t *testing.T, kind, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "put on queue async-caller: ") {
		t.Fatalf("error %v, want one that names the operation", err)
	}
	for _, other := range kinds {
		if errors.Is(err, other) != (kind != nil && errors.Is(kind, other)) {
			t.Errorf("%q is %q: %t", err, other, errors.Is(err, other))
		}
	}
	mustHideSecrets(t, err)
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"first\n\n  second\r\n----------\n\tthird - fourth\n": "first second third fourth",
		strings.Repeat("é", maxErrorText):                     strings.Repeat("é", maxErrorText/2) + "…",
		"x" + strings.Repeat("é", maxErrorText):               "x" + strings.Repeat("é", maxErrorText/2-1) + "…",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
