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

const foreignText = "the answer is not Queue Storage's: a proxy (HTTP_PROXY), or the endpoint of another service"

func TestAnswers(t *testing.T) {
	tests := []struct {
		status int
		code   string
		kind   error // nil: temporary
		text   string
	}{
		{404, "QueueNotFound", storage.ErrNoQueue, "404 QueueNotFound: queue does not exist"},
		{409, "QueueBeingDeleted", storage.ErrNoQueue, "409 QueueBeingDeleted: queue does not exist"},
		{
			404, "MessageNotFound", storage.ErrStale,
			"404 MessageNotFound: message is gone or another client received it",
		},
		{
			400, "PopReceiptMismatch", storage.ErrStale,
			"400 PopReceiptMismatch: message is gone or another client received it",
		},
		{
			403, "AuthorizationFailure", storage.ErrDenied,
			"403 AuthorizationFailure: The service says so: ***: storage refused access",
		},
		{
			403, "AuthenticationFailed", storage.ErrDenied,
			"403 AuthenticationFailed: The service says so: ***: storage refused access",
		},
		{
			403, "AuthorizationPermissionMismatch", storage.ErrDenied,
			"403 AuthorizationPermissionMismatch: The service says so: ***: storage refused access",
		},
		{
			401, "NoAuthenticationInformation", storage.ErrDenied,
			"401 NoAuthenticationInformation: The service says so: ***: storage refused access",
		},
		{
			400, "InvalidAuthenticationInfo", storage.ErrDenied,
			"400 InvalidAuthenticationInfo: The service says so: ***: storage refused access",
		},
		{
			400, "InvalidHeaderValue", storage.ErrRefused,
			"400 InvalidHeaderValue: The service says so: ***: storage refused",
		},
		{
			400, "InvalidResourceName", storage.ErrRefused,
			"400 InvalidResourceName: The service says so: ***: storage refused",
		},
		{
			413, "RequestBodyTooLarge", storage.ErrRefused,
			"413 RequestBodyTooLarge: The service says so: ***: storage refused",
		},
		{404, "", nil, "404 Not Found: " + foreignText},
		{403, "not\ta code", storage.ErrDenied, "403 Forbidden: storage refused access"},
		{408, "OperationTimedOut", nil, "408 OperationTimedOut"},
		{429, "", nil, "429 Too Many Requests: " + foreignText},
		{500, "InternalError", nil, "500 InternalError"},
		{500, "OperationTimedOut", nil, "500 OperationTimedOut"},
		{502, "", nil, "502 Bad Gateway: " + foreignText},
		{503, "ServerBusy", nil, "503 ServerBusy"},
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
				for _, kind := range []error{
					storage.ErrNoQueue, storage.ErrStale, storage.ErrRefused,
					storage.ErrDenied,
				} {
					if errors.Is(err, kind) != (test.kind != nil && errors.Is(test.kind, kind)) {
						t.Errorf("%s: errors.Is(%q, %q) = %t", name, err, kind, errors.Is(err, kind))
					}
				}
				if got := requests.Load(); got != 1 {
					t.Errorf("%s: %d requests, want 1: the caller retries", name, got)
				}
				mustHideSecrets(t, err)
			}
		})
	}
}

// A service that does not know our API version says so itself, or only names the header.
func TestVersionRefused(t *testing.T) {
	const fix = "--skipApiVersionCheck"
	for name, test := range map[string]struct{ body, want string }{
		"azurite": {
			"<Message>The API version 2021-12-02 is not supported. Upgrade Azurite, or give " + fix +
				".\nRequestId:1</Message>",
			"The API version 2021-12-02 is not supported. Upgrade Azurite, or give " + fix + ": storage refused",
		},
		"old_azurite": {
			"<Message>The API version 2021-12-02 is not supported by Azurite.</Message>",
			"The API version 2021-12-02 is not supported by Azurite; update Azurite, or start it with " + fix +
				": storage refused",
		},
		"azure": {
			"<Message>A header is not in the correct " +
				"format.\r\nRequestId:1</Message><HeaderName>x-ms-version</HeaderName>",
			"A header is not in the correct format; update Azurite, or start it with " + fix + ": storage refused",
		},
		"other_header": {
			"<Message>A header is not in the correct format.</Message><HeaderName>x-ms-date</HeaderName>",
			"A header is not in the correct format: storage refused",
		},
		"no_message": {
			"<HeaderName>x-ms-version</HeaderName>",
			"update Azurite, or start it with " + fix + ": storage refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := startServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("x-ms-error-code", "InvalidHeaderValue")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, "<Error>"+test.body+"</Error>")
			})
			err := putError(t.Context(), mustOpen(t, connections(url)["key"]))
			if want := "put on queue async-caller: 400 InvalidHeaderValue: " + test.want; err == nil ||
				err.Error() != want {
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

func TestEveryOperation(t *testing.T) {
	url := startServer(t, answerWith(http.StatusServiceUnavailable, "ServerBusy"))
	const id, receipt = "6f1bbb3e-8a0c-4a5c-a7c6-2a4b5b1f0f57", "canary-receipt"
	tests := map[string]func(context.Context, *Queues) error{
		"create queue async-caller": func(ctx context.Context,
			s *Queues,
		) error {
			return s.Create(ctx, "async-caller")
		},
		"put on queue async-caller": putError,
		"update message on queue async-caller": func(ctx context.Context, s *Queues) error {
			_, err := s.Update(ctx, "async-caller", id, receipt, canaryText, 0)
			return err
		},
		"delete message from queue async-caller": func(ctx context.Context, s *Queues) error {
			return s.Delete(ctx, "async-caller", id, receipt)
		},
		"receive from queue async-caller": func(ctx context.Context, s *Queues) error {
			_, err := s.Receive(ctx, "async-caller", 1, time.Second)
			return err
		},
		"peek at queue async-caller": func(ctx context.Context, s *Queues) error {
			_, err := s.Peek(ctx, "async-caller", 1)
			return err
		},
		"count queue async-caller": func(ctx context.Context, s *Queues) error {
			_, err := s.Count(ctx, "async-caller")
			return err
		},
		"list queues": func(ctx context.Context, s *Queues) error {
			_, err := s.Names(ctx, "async")
			return err
		},
	}
	for doing, do := range tests {
		for name, conn := range connections(url) {
			err := do(t.Context(), mustOpen(t, conn))
			if want := doing + ": 503 ServerBusy"; err == nil || err.Error() != want {
				t.Errorf("%s: error %q, want %q", name, err, want)
			}
			mustHideSecrets(t, err)
		}
	}
}

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
	}
	notXML := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "<canary-text")
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the client go
		<-r.Context().Done()
	}
	tests := map[string]struct {
		handler http.HandlerFunc
		want    func(error) bool // nil: any
	}{
		"reset":   {reset, socket.IsReset},
		"cut_off": {cutOff, equals(io.ErrUnexpectedEOF)},
		"not_xml": {notXML, nil},
		"timeout": {hang, equals(context.DeadlineExceeded)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			url := startServer(t, test.handler)
			for way, conn := range connections(url) {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if name != "timeout" {
					ctx = t.Context()
				}
				mustBeTemporary(t, way, putError(ctx, mustOpen(t, conn)), test.want)
			}
		})
	}
}

func TestConnectionRefused(t *testing.T) {
	addr, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for way, conn := range connections("http://" + addr) {
		err := putError(t.Context(), mustOpen(t, conn))
		mustBeTemporary(t, way, err, socket.IsRefused)
		if !strings.Contains(err.Error(), "Post "+addr+": ") {
			t.Errorf("%s: error %q does not contain method and host", way, err)
		}
	}
}

func equals(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

// mustBeTemporary checks an error that is none of those of package storage.
func mustBeTemporary(t *testing.T, way string, err error, want func(error) bool) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "put on queue async-caller: ") {
		t.Fatalf("%s: error %v, want one that names the operation", way, err)
	}
	if want != nil && !want(err) {
		t.Errorf("%s: error %q is another one", way, err)
	}
	for _, kind := range []error{storage.ErrNoQueue, storage.ErrStale, storage.ErrRefused} {
		if errors.Is(err, kind) {
			t.Errorf("%s: error %q is %q", way, err, kind)
		}
	}
	mustHideSecrets(t, err)
}

func TestOneLine(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"folded":  {"first\n\n  second\r\n----------\n\tthird - fourth\n", "first second third fourth"},
		"cut":     {strings.Repeat("é", maxErrorText), strings.Repeat("é", maxErrorText/2) + "…"},
		"at_rune": {"x" + strings.Repeat("é", maxErrorText), "x" + strings.Repeat("é", maxErrorText/2-1) + "…"},
	}
	for name, test := range tests {
		if got := oneLine(test.in); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
