package ingress_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/tools/freeport"
)

// canary is a secret in every place of an envelope that can hold one. It must not appear anywhere else.
const canary = "C4nary"

// wantNoSecret checks that neither the log nor the answer contains the canary.
func (a *app) wantNoSecret(t *testing.T, r reply) {
	t.Helper()
	if a.log.String() == "" {
		t.Error("the log is empty, so the check means nothing")
	}
	for where, text := range map[string]string{
		"log": a.log.String(), "answer": r.body,
		"answer's headers": fmt.Sprint(r.header),
	} {
		if at := strings.Index(strings.ToLower(text), strings.ToLower(canary)); at >= 0 {
			t.Errorf("the %s contains a secret: …%s…", where, text[max(0, at-60):min(len(text), at+60)])
		}
	}
}

// secretEnvelope returns an envelope with the canary in every place that can hold a secret.
func secretEnvelope(scheme, host, path string) string {
	return fmt.Sprintf(`{"asyncCaller":1,"requestId":"r1","call":{"url":"%s://u-C4nary:p-C4nary@%s%s?code=q-C4nary#f-C4nary",
		"headers":{"Authorization":"Bearer h-C4nary","X-Many":["m-C4nary"],"Cookie":"c-C4nary"},"json":{"password":"b-C4nary"}},
		"context":{"token":"x-C4nary"},"note":"n-C4nary"}`, scheme, host, path)
}

// TestSecretsInRealCalls: the errors of net/http contain URLs, but the client's outcomes do not.
func TestSecretsInRealCalls(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/hang"):
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client has gone
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/reset"):
			panic(http.ErrAbortHandler)
		case strings.HasPrefix(r.URL.Path, "/redirect"):
			http.Redirect(w, r, "https://r-C4nary@other.example/l-C4nary?code=C4nary", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/loop"):
			http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
		case strings.HasPrefix(r.URL.Path, "/nowhere"):
			http.Redirect(w, r, "http://127.0.0.1:C4nary/", http.StatusTemporaryRedirect)
		default:
			w.Header().Set("X-Echo", "e-C4nary")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "a-C4nary")
		}
	}))
	t.Cleanup(server.Close)
	tlsServer := httptest.NewUnstartedServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports that the client does not trust it
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	here, there := server.Listener.Addr().String(), tlsServer.Listener.Addr().String()

	loopback, err := guard.ParseAllow("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ scheme, host, path, reason string }{
		"target_refused": {"http", "127.0.0.2", "/", "target_refused"},
		"answered":       {"http", here, "/", "rejected"},
		"timeout":        {"http", here, "/hang", "timeout"},
		"reset":          {"http", here, "/reset", "connection"},
		"redirected":     {"http", here, "/redirect", "redirected"},
		"redirect_loop":  {"http", here, "/loop", "redirected"},
		"refused":        {"http", unusedAddress(t), "/", "connect"},
		"untrusted":      {"https", there, "/", "certificate"},
		"not_tls":        {"https", here, "/", "tls"},
		"redirect_bad":   {"http", here, "/nowhere", ""},
	} {
		t.Run(name, func(t *testing.T) {
			patience := time.Minute
			if row.reason == "timeout" {
				patience = 200 * time.Millisecond
			}
			client := outbound.New(patience, guard.Rules{Allow: loopback}, outbound.Proxy{})
			t.Cleanup(client.Close)
			a := newApp(t, delivery.Caller(client))

			reply := post(t, a.start(t), binary(secretEnvelope(row.scheme, row.host, row.path), goodMetadata))

			reply.wantStatus(t, http.StatusOK)
			a.wantNoSecret(t, reply)
			lines := a.lines(t)
			if got := lines[len(lines)-1]["reason"]; row.reason != "" && got != row.reason {
				t.Errorf("reason %v, want %s", got, row.reason)
			}
		})
	}
}

// unusedAddress returns an address that refuses connections.
func unusedAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}
