package ingress_test

import (
	"context"
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
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/storage"
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
func secretEnvelope(scheme, host, path, extra string) string {
	return fmt.Sprintf(`{"asyncCaller":1,"requestId":"r1","call":{"url":"%s://u-C4nary:p-C4nary@%s%s?code=q-C4nary#f-C4nary",
		"headers":{"Authorization":"Bearer h-C4nary","X-Many":["m-C4nary"],"Cookie":"c-C4nary"},"json":{"password":"b-C4nary"}},
		"context":{"token":"x-C4nary"},"note":"n-C4nary"%s}`, scheme, host, path, extra)
}

const secretCallback = `,"callback":{"url":"https://u-C4nary:p-C4nary@sender.example/?sig=s-C4nary",` +
	`"headers":{"X-Key":"k-C4nary"}}`

// TestSecretsInOutcomes: no outcome of a call reveals a secret.
func TestSecretsInOutcomes(t *testing.T) {
	says := func(status int) decision.Outcome {
		return decision.Outcome{
			Status: status,
			Header: http.Header{"Content-Type": {"text/plain"}},
			Body:   []byte(`{"Type":"a-C4nary","IsRetryMeaningful":"a-C4nary"}`),
		}
	}
	for name, row := range map[string]struct {
		extra   string
		outcome decision.Outcome
		fault   error
	}{
		"delivered":          {"", says(200), nil},
		"delivered_callback": {secretCallback, says(200), nil},
		"reschedule":         {secretCallback, says(503), nil},
		"rejected":           {"", says(400), nil},
		"rejected_callback":  {secretCallback, says(400), nil},
		"fault":              {`,"giveUp":"fault"`, says(400), nil},
		"timeout": {
			"",
			decision.Outcome{Failure: decision.FailureTimeout, Detail: "no answer in time"},
			nil,
		},
		"expired":         {`,"deadline":"2020-01-01T00:00:00Z"`, decision.Outcome{}, nil},
		"not_due":         {`,"notBefore":"2999-01-01T00:00:00Z"`, decision.Outcome{}, nil},
		"storage_refuses": {"", says(503), storage.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, caller(func(context.Context, *envelope.Envelope) decision.Outcome { return row.outcome }),
				func() error { return row.fault })

			reply := post(t, a.start(t), binary(secretEnvelope("https", "t.example", "/path-C4nary", row.extra),
				goodMetadata))

			a.wantNoSecret(t, reply)
			if dead := strings.Join(a.contents(t, poisonQueue), ""); name == "rejected" &&
				!strings.Contains(dead, "a-C4nary") {
				t.Errorf("the dead letter does not hold the answer: %s", dead)
			}
			if line := a.lines(t)[0]; line["target_host"] != "t.example" {
				t.Errorf("target_host is %v", line["target_host"])
			}
		})
	}
}

// TestSecretsInMalformed: the reason for a malformed message does not quote it.
func TestSecretsInMalformed(t *testing.T) {
	for name, content := range map[string]string{
		"not_json":    `C4nary`,
		"cut_off":     `{"asyncCaller":1,"call":{"headers":{"Authorization":"C4nary`,
		"url_scheme":  secretEnvelope("C4nary", "t.example", "/", ""),
		"url_port":    secretEnvelope("https", "t.example:C4nary", "/", ""),
		"url_space":   secretEnvelope("https", "t .example", "/", ""),
		"url_escape":  secretEnvelope("https", "t.example%zzC4nary", "/", ""),
		"url_no_host": secretEnvelope("https", "", "/", ""),
		"method":      `{"asyncCaller":1,"call":{"url":"https://t.example/","method":"C4nary C4nary"}}`,
		"header_line_break": `{"asyncCaller":1,"call":{"url":"https://t.example/",` +
			`"headers":{"X-A":"C4nary\nC4nary"}}}`,
		"header_object": `{"asyncCaller":1,"call":{"url":"https://t.example/",` +
			`"headers":{"X-A":{"C4nary":"C4nary"}}}}`,
		"host_header": `{"asyncCaller":1,"call":{"url":"https://t.example/","headers":{"Host":"C4nary ` +
			`C4nary"}}}`,
		"base64":             `{"asyncCaller":1,"call":{"url":"https://t.example/","bodyBase64":"C4nary!"}}`,
		"two_bodies":         `{"asyncCaller":1,"call":{"url":"https://t.example/","body":"C4nary","json":"C4nary"}}`,
		"half_surrogate":     `{"asyncCaller":1,"call":{"url":"https://t.example/","body":"C4nary\ud800"}}`,
		"callback_url":       `{"asyncCaller":1,"call":{"url":"https://t.example/"},"callback":{"url":"C4nary"}}`,
		"deadline":           `{"asyncCaller":1,"call":{"url":"https://t.example/"},"deadline":"C4nary"}`,
		"timeout":            `{"asyncCaller":1,"call":{"url":"https://t.example/","timeout":"C4nary"}}`,
		"body_of_wrong_type": `{"asyncCaller":1,"call":{"url":"https://t.example/","body":{"C4nary":"C4nary"}}}`,
		"request_id":         `{"asyncCaller":1,"requestId":"C4nary C4nary","call":{"url":"https://t.example/"}}`,
		"give_up":            `{"asyncCaller":1,"giveUp":"C4nary","call":{"url":"https://t.example/"}}`,
		"too_large": `{"asyncCaller":1,"call":{"url":"https://t.example/","body":"` + strings.Repeat(canary,
			8175) + `"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, nil)

			reply := post(t, a.start(t), binary(content, goodMetadata))

			reply.wantStatus(t, http.StatusOK)
			a.wantContents(t, poisonQueue, content)
			a.wantNoSecret(t, reply)
		})
	}
}

// TestSecretsInRefusedInvocations: the reason for a refused invocation does not quote it.
func TestSecretsInRefusedInvocations(t *testing.T) {
	for name, body := range map[string]string{
		"not_json":       canary,
		"data_string":    `{"Data":"C4nary","Metadata":{}}`,
		"not_base64":     `{"Data":{"msg":"C4nary!"},"Metadata":{}}`,
		"not_text":       `{"Data":{"msg":"\"C4nary"},"Metadata":{}}`,
		"wrong_binding":  `{"Data":{"other":"C4nary"},"Metadata":{}}`,
		"metadata":       `{"Data":{"msg":"aGVsbG8="},"Metadata":"C4nary"}`,
		"content_object": `{"Data":{"msg":{"C4nary":"C4nary"}},"Metadata":{}}`,
		"too_large":      strings.Repeat(canary, 1<<19),
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t, nil)
			reply := post(t, a.start(t), body)
			if reply.status < 400 {
				t.Errorf("answered %d", reply.status)
			}
			a.wantNoSecret(t, reply)
		})
	}
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

			reply := post(t, a.start(t), binary(secretEnvelope(row.scheme, row.host, row.path, ""), goodMetadata))

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
