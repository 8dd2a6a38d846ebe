package outbound_test

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
)

// secretHeaders have names of credentials; otherHeaders do not.
var (
	secretHeaders = []string{
		"Authorization", "X-Authorization", "Cookie", "Cookie2", "Proxy-Foo", "X-Api-Key", "Ocp-Apim-Subscription-Key",
		"X-Functions-Key",
		"X-Token", "X-Csrf-Token", "Client-Secret", "X-Auth", "X-Password", "X-Hub-Signature-256", "X-Session-Id",
		"X-Amz-Cred" +
			"ential", "X-MY-SECRETS", "apikey", "x-ms-token-aad-id-token", "X-Sig", "X-Sas", "DPoP", "X-JWT-Assertion",
		"X-Client_Assertion",
		"X-ConnectionString", "X-Pin", "X-HMAC", "X-ClientSig", "X-SasUri",
	}
	otherHeaders = []string{
		"Idempotency-Key", "Accept", "X-Correlation-Id", "Traceparent", "Tracestate", "X-Mine", "User-Agent",
		"If-Match", "X-Ms-Date", "X-Design",
		"X-Assigned-To", "X-Shipping", "X-Author", "X-Idempotency-Key", "X-Signal", "X-Passenger",
	}
)

// network is a network in which one server has every host name, on default and other ports.
type network struct {
	plain, secure *testServer
	client        *outbound.Client
}

// newNetwork returns a network whose server redirects each path /0, /1 ... to the next location.
func newNetwork(t *testing.T, status int, locations []string) *network {
	t.Helper()
	authority := newAuthority(t)
	answer := func(w http.ResponseWriter, r *http.Request) {
		for i, location := range locations {
			if r.URL.Path == "/"+string(rune('0'+i)) {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			}
		}
	}
	w := &network{
		plain: newTestServer(t, answer), secure: newUnstartedServer(t, answer),
		client: newClient(t, longTimeout),
	}
	certificate := authority.server(t, "a.example", time.Now().Add(time.Hour))
	w.secure.TLS = serverConfig(certificate)
	w.secure.StartTLS()
	w.client.Trust(authority.pool())
	w.client.ConnectBy(func(ctx context.Context, network, address string) (net.Conn, error) {
		server := w.plain
		if _, port, _ := net.SplitHostPort(address); port == "443" || port == "8443" {
			server = w.secure
		}
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	})
	return w
}

// A redirect to another host drops credentials and keeps all other headers.
func TestCredentialsBehindRedirects(t *testing.T) {
	tests := map[string]struct {
		first     string
		locations []string
		kept      bool
	}{
		"same_host":          {"http://a.example/0", []string{"http://a.example/x"}, true},
		"relative":           {"https://a.example/0", []string{"/x"}, true},
		"other_case":         {"http://a.example/0", []string{"http://A.Example/x"}, false}, // another host to net/http
		"port_spelled_out":   {"http://a.example/0", []string{"http://a.example:80/x"}, true},
		"usual_upgrade":      {"http://a.example/0", []string{"https://a.example/x"}, true},
		"twice":              {"http://a.example/0", []string{"/1", "http://a.example/x"}, true},
		"other_host":         {"http://a.example/0", []string{"http://b.example/x"}, false},
		"sub_domain":         {"http://a.example/0", []string{"http://b.a.example/x"}, false},
		"parent_domain":      {"http://b.a.example/0", []string{"http://a.example/x"}, false},
		"other_port":         {"http://a.example/0", []string{"http://a.example:8080/x"}, false},
		"other_port_and_tls": {"http://a.example/0", []string{"https://a.example:8443/x"}, false},
		"port_and_tls":       {"http://a.example:8080/0", []string{"https://a.example/x"}, false},
		"there_and_back":     {"http://a.example/0", []string{"http://b.example/1", "http://a.example/x"}, false},
		"back_by_detour": {
			"http://a.example/0",
			[]string{"/1", "http://b.example/2", "http://a.example/3", "/x"},
			false,
		},
	}
	for name, test := range tests {
		for _, status := range []int{302, 307} {
			t.Run(name, func(t *testing.T) {
				w := newNetwork(t, status, test.locations)
				headers := object{}
				for _, name := range append(slices.Clone(secretHeaders), otherHeaders...) {
					headers[name] = canary
				}
				o := w.client.Do(t.Context(),
					mustEnvelope(t, object{"url": test.first, "method": "GET", "headers": headers}))
				wantAnswer(t, o, 200)
				all := append(w.plain.all(), w.secure.all()...)
				if len(all) != len(test.locations)+1 {
					t.Fatalf("%d requests", len(all))
				}
				last := slices.IndexFunc(all, func(s seen) bool { return s.uri == "/x" })
				got := all[last].header
				for _, name := range secretHeaders {
					if has := got.Get(name) != ""; has != test.kept {
						t.Errorf("%s arrived: %v, want %v", name, has, test.kept)
					}
				}
				for _, name := range append(otherHeaders, "X-Async-Caller-Attempt") {
					if got.Get(name) == "" {
						t.Errorf("%s is lost", name)
					}
				}
			})
		}
	}
}

// The client does not follow a redirect from https to http, which would send the call in the clear.
func TestRedirectsGiveUpNoTLS(t *testing.T) {
	for name, locations := range map[string][]string{
		"at_once": {"http://a.example/x"}, "other_host": {"http://b.example/x"}, "other_case": {"HTTP://a.example/x"},
		"port":        {"http://a.example:443/x"},
		"later":       {"/1", "//a.example/2", "http://a.example/x"},
		"up_and_down": {"https://a.example/1", "http://a.example/x"},
	} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			first := "https://a.example/0"
			if name == "up_and_down" {
				first = "http://a.example/0"
			}
			w := newNetwork(t, status, locations)
			o := w.client.Do(t.Context(), mustEnvelope(t, object{"url": first, "method": "GET"}))
			wantFailure(t, o, decision.FailureRedirected)
			if n := len(w.plain.all()) + len(w.secure.all()); o.Status != status || n != len(locations) {
				t.Errorf("%s: status %d after %d calls", name, o.Status, n)
			}
		}
	}
}

// User info in the URL is a credential too.
func TestUserInfoBehindRedirects(t *testing.T) {
	for name, test := range map[string]struct {
		locations []string
		want      bool
	}{
		"relative":       {[]string{"/x"}, true},
		"other_host":     {[]string{"http://b.example/x"}, false},
		"there_and_back": {[]string{"http://b.example/1", "http://a.example/x"}, false},
		"by_the_other":   {[]string{"//b.example/1", "//a.example/2", "/x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t, 307, test.locations)
			o := w.client.Do(t.Context(),
				mustEnvelope(t, object{"url": "http://user:" + canary + "@a.example/0", "body": "the body"}))
			wantAnswer(t, o, 200)
			all := w.plain.all()
			if last := all[len(all)-1]; (last.header.Get("Authorization") != "") != test.want ||
				string(last.body) != "the body" {
				t.Errorf("got %v with %q", slices.Collect(maps.Keys(last.header)), last.body)
			}
			if all[0].header.Get("Authorization") == "" {
				t.Error("the sender's target got none")
			}
		})
	}
}

// The sender's own Authorization, in any letter case, takes precedence over the user info. The target never gets two.
func TestOneAuthorization(t *testing.T) {
	for _, name := range []string{"Authorization", "authorization", "AUTHORIZATION"} {
		for hops := range 2 {
			last := newRawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n") })
			withUser := strings.Replace(last.url(), "://", "://user:pass@", 1)
			first := withUser
			if hops > 0 {
				first = redirecting(t, 307, withUser).URL
			}
			o := newClient(t, longTimeout).
				Do(t.Context(), mustEnvelope(t, object{"url": first, "headers": object{name: "mine"}}))
			wantAnswer(t, o, 204)
			var got []string
			for _, line := range headerLines(<-last.heads) {
				if strings.HasPrefix(strings.ToLower(line), "authorization:") {
					got = append(got, line)
				}
			}
			want := []string{name + ": mine"}
			if hops > 0 { // to another host, which may have credentials of its own
				want = []string{"Authorization: Basic dXNlcjpwYXNz"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %d redirects: got %v, want %v", name, hops, got, want)
			}
		}
	}
}

func serverConfig(certificate tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate}}
}
