package outbound_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
)

// redirecting starts a target that redirects to a location.
func redirecting(t *testing.T, status int, location string) *testServer {
	t.Helper()
	return newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if location != "" {
			w.Header()["Location"] = []string{location}
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("over there"))
	})
}

// TestRedirects: by which method each redirect is followed, if it is. All but 303 keep the body.
func TestRedirects(t *testing.T) {
	statuses := [...]int{300, 301, 302, 303, 307, 308}
	for method, followed := range map[string][len(statuses)]string{
		"GET":   {"GET", "GET", "GET", "GET", "GET", "GET"},
		"HEAD":  {"HEAD", "HEAD", "HEAD", "HEAD", "HEAD", "HEAD"},
		"POST":  {"", "", "", "GET", "POST", "POST"},
		"PUT":   {"PUT", "PUT", "PUT", "GET", "PUT", "PUT"},
		"PURGE": {"PURGE", "PURGE", "PURGE", "GET", "PURGE", "PURGE"},
	} {
		for n, status := range statuses {
			t.Run(fmt.Sprintf("%d_%s", status, method), func(t *testing.T) {
				second := newTestServer(t, nil)
				first := redirecting(t, status, second.URL+"/there?x=1")
				call := object{"url": first.URL, "method": method}
				want := followed[n] + " /there?x=1 "
				if method != "GET" && method != "HEAD" {
					call["body"] = "the body"
					if status != 303 {
						want += "the body"
					}
				}
				o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, call))
				first.one(t)
				if followed[n] != "" {
					wantAnswer(t, o, 200)
					got := second.one(t)
					if text := got.method + " " + got.uri + " " + string(got.body); text != want {
						t.Errorf("got %s, want %s", text, want)
					}
					return
				}
				want = fmt.Sprintf("%d over there redirected: answered %d", status, status)
				if got := summary(o); got != want || len(second.all()) > 0 {
					t.Errorf("got %s after %d calls of the second target, want %s", got, len(second.all()), want)
				}
			})
		}
	}
}

// TestRedirectsAfterSeeOther: after a 303 the call is a GET without content, and later redirects follow it as such.
func TestRedirectsAfterSeeOther(t *testing.T) {
	for _, method := range []string{"POST", "HEAD"} {
		for _, next := range []int{301, 303, 307} {
			t.Run(fmt.Sprintf("%s_%d", method, next), func(t *testing.T) {
				server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case "/0":
						w.Header().Set("Location", "/1")
						w.WriteHeader(http.StatusSeeOther)
					case "/1":
						w.Header().Set("Location", "/2")
						w.WriteHeader(next)
					}
				})
				headers := object{"X-Kept": "1", "Content-Version": "2"}
				content := []string{"ALLOW", "content-encoding", "Content-MD5", "Content-Type", "Expires"}
				for _, name := range content {
					headers[name] = "1"
				}
				o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t,
					object{"url": server.URL + "/0", "method": method, "body": "x", "headers": headers}))
				wantAnswer(t, o, 200)
				all := server.all()
				if len(all) != 3 {
					t.Fatalf("%d requests", len(all))
				}
				want := strings.Replace(method, "POST", "GET", 1)
				for _, got := range all[1:] {
					if got.method != want || len(got.body) != 0 || got.header.Get("X-Kept") == "" ||
						got.header.Get("Content-Version") == "" {
						t.Errorf("got %s %s with %q and %v", got.method, got.uri, got.body, got.header)
					}
					for _, name := range append(content, "Content-Length") {
						if got.header.Get(name) != "" {
							t.Errorf("%s still has %s", got.uri, name)
						}
					}
				}
			})
		}
	}
}

// TestRedirectsThatLeadNowhere: a redirect that cannot be followed is the answer.
func TestRedirectsThatLeadNowhere(t *testing.T) {
	for _, location := range []string{
		"", "ftp://files.example/" + canary, "mailto:x@example.com", "http://[::1", "http://a b/", "http:///x",
		"http://exa%zzmple/", "http://127.0.0.1:99999/",
	} {
		o := call(t, redirecting(t, http.StatusTemporaryRedirect, location).URL)
		if got := summary(o); got != "307 over there redirected: answered 307" {
			t.Errorf("%q: got %s", location, got)
		}
	}
	nobody := redirecting(t, http.StatusTemporaryRedirect, "http://"+refusedAddress(t)+"/?code="+canary)
	wantFailure(t, call(t, nobody.URL), decision.FailureConnect) // like any other
}

func TestRedirectsToRawPaths(t *testing.T) {
	for location, want := range map[string]string{
		"/å|%2F?q=å": "/%C3%A5%7C%2F?q=%C3%A5", "/100%/x": "/100%25/x", "x%2F%": "/x%2F%25",
		"http://one.example/å|%2F?q=\xe5": "/%C3%A5%7C%2F?q=%E5",
		"//one.example?{å}":               "/?%7B%C3%A5%7D", "?å": "/?%C3%A5",
	} {
		server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.RequestURI == "/" {
				w.Header()["Location"] = []string{location}
				w.WriteHeader(http.StatusFound)
			}
		})
		client := newClient(t, longTimeout)
		client.ConnectBy(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		})
		wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": "http://one.example"})), 200)
		if all := server.all(); len(all) != 2 || all[1].uri != want {
			t.Errorf("%s: got %+v, want %s", location, all, want)
		}
	}
}

// TestRedirectLimit: a call follows ten redirects, also in a loop.
func TestRedirectLimit(t *testing.T) {
	for hops, want := range map[int]string{10: "200", 11: "307 redirected: answered 307"} {
		left := hops
		server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
			if left > 0 {
				left--
				w.Header().Set("Location", "/again")
				w.WriteHeader(http.StatusTemporaryRedirect)
			}
		})
		if got := summary(call(t, server.URL)); got != want || len(server.all()) != 11 {
			t.Errorf("%d redirects: got %s after %d requests, want %s", hops, got, len(server.all()), want)
		}
	}
}

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
			if r.URL.Path == fmt.Sprint("/", i) {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			}
		}
	}
	w := &network{
		plain: newTestServer(t, answer), secure: newUnstartedServer(t, answer),
		client: newClient(t, longTimeout),
	}
	w.secure.TLS = serverConfig(authority.server(t, "a.example", time.Now().Add(time.Hour)))
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

func serverConfig(certificate tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate}}
}

// TestHeadersBehindRedirects: a redirect to another host or port drops the sender's credentials, and what a profile has
// added, and keeps all other headers. The call never gets them back, nor those of the other host's profile.
func TestHeadersBehindRedirects(t *testing.T) {
	const start = "http://a.example/0"
	for name, test := range map[string]struct {
		first     string
		locations []string
		kept      bool
		host      string // the Host header behind the redirects
	}{
		"same_host":          {start, []string{"http://a.example/x"}, true, "a.example"},
		"relative":           {"https://a.example/0", []string{"/x"}, true, "a.example"},
		"other_case":         {start, []string{"http://A.Example/x"}, false, "A.Example"}, // another host to net/http
		"port_spelled_out":   {start, []string{"/1", "http://a.example:80/x"}, true, "a.example:80"},
		"upgrade":            {start, []string{"https://a.example/x"}, true, "a.example"},
		"other_host":         {start, []string{"http://b.example/x"}, false, "b.example"},
		"sub_domain":         {start, []string{"http://b.a.example/x"}, false, "b.a.example"},
		"other_port":         {start, []string{"http://a.example:8080/x"}, false, "a.example:8080"},
		"other_port_and_tls": {start, []string{"https://a.example:8443/x"}, false, "a.example:8443"},
		"port_and_tls":       {"http://a.example:8080/0", []string{"https://a.example/x"}, false, "a.example"},
		"there_and_back":     {start, []string{"http://b.example/1", "http://a.example/x"}, false, "a.example"},
		"detour":             {start, []string{"/1", "//b.example/2", "//a.example/3", "/x"}, false, "a.example"},
	} {
		for _, status := range []int{302, 307} {
			t.Run(fmt.Sprint(name, "_", status), func(t *testing.T) {
				w := newNetwork(t, status, test.locations)
				w.client.WithProfiles(mustProfiles(t,
					`{"*":{"headers":{"X-Other":"1"}},"a.example":{"headers":{"x-tenant":"a","X-Partner":"$KEY"}}}`))
				o := w.client.Do(t.Context(), mustEnvelope(t, object{
					"url":     strings.Replace(test.first, "://", "://user:"+canary+"@", 1),
					"method":  "PUT",
					"body":    "text",
					"headers": object{"X-Api-Key": canary, "Cookie": canary, "X-Mine": "1", "Content-Type": "a/b"},
				}, object{"attempts": 4}))
				wantAnswer(t, o, 200)
				all := append(w.plain.all(), w.secure.all()...)
				last := slices.IndexFunc(all, func(s seen) bool { return s.uri == "/x" })
				if len(all) != len(test.locations)+1 || last < 0 {
					t.Fatalf("%d requests", len(all))
				}
				got := all[last]
				for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "X-Tenant", "X-Partner"} {
					if has := got.header.Get(name) != ""; has != test.kept {
						t.Errorf("%s arrived: %v, want %v", name, has, test.kept)
					}
				}
				for name, want := range map[string]string{
					"X-Mine": "1", "Content-Type": "a/b", "Content-Length": "4", "X-Other": "", "Referer": "",
					"Idempotency-Key": "request-1", "X-Async-Caller-Attempt": "5", "User-Agent": "async-caller",
				} {
					if value := got.header.Get(name); value != want {
						t.Errorf("%s is %q, want %q", name, value, want)
					}
				}
				if got.method != "PUT" || string(got.body) != "text" || got.host != test.host {
					t.Errorf("got %s with %q for %s", got.method, got.body, got.host)
				}
			})
		}
	}
}

// TestProfileOfAPortBehindRedirects: what the profile of a port adds does not reach another port of the host.
func TestProfileOfAPortBehindRedirects(t *testing.T) {
	for location, kept := range map[string]bool{
		"/x": true, "http://a.example:80/x": true, "https://a.example/x": false, "https://a.example:443/x": false,
	} {
		w := newNetwork(t, http.StatusSeeOther, []string{location})
		w.client.WithProfiles(mustProfiles(t, `{"a.example:80":{"headers":{"X-Tenant":"a"}}}`))
		wantAnswer(t, w.client.Do(t.Context(), mustEnvelope(t, object{"url": "http://a.example/0"})), 200)
		all := append(w.plain.all(), w.secure.all()...)
		if got := all[len(all)-1].header.Get("X-Tenant") != ""; len(all) != 2 || got != kept {
			t.Errorf("%s: %d requests, the header arrived: %v, want %v", location, len(all), got, kept)
		}
	}
}

// TestHostHeaderBehindRedirects: the envelope's Host header is for the first target, and relative redirects of it.
func TestHostHeaderBehindRedirects(t *testing.T) {
	for location, want := range map[string]string{"/x": "tenant.example", "http://two.example/x": "two.example"} {
		w := newNetwork(t, http.StatusTemporaryRedirect, []string{location})
		headers := object{"Host": "tenant.example"}
		wantAnswer(t, w.client.Do(t.Context(),
			mustEnvelope(t, object{"url": "http://a.example/0", "headers": headers})), 200)
		if all := w.plain.all(); len(all) != 2 || all[1].host != want {
			t.Errorf("%s: got %+v, want the host %s", location, all, want)
		}
	}
}

// TestUserInfoOfALocation: a redirect to another host may have credentials of its own, in place of the sender's.
func TestUserInfoOfALocation(t *testing.T) {
	w := newNetwork(t, http.StatusTemporaryRedirect, []string{"http://user:pass@b.example/x"})
	e := mustEnvelope(t, object{"url": "http://a.example/0", "headers": object{"authorization": "mine"}})
	wantAnswer(t, w.client.Do(t.Context(), e), 200)
	if got := authorizations(w.plain.all()[1]); !slices.Equal(got, []string{"Basic dXNlcjpwYXNz"}) {
		t.Errorf("got %q", got)
	}
}

// TestRedirectsGiveUpNoTLS: the client does not follow a redirect from https to http, which would send the call in the
// clear.
func TestRedirectsGiveUpNoTLS(t *testing.T) {
	for _, locations := range [][]string{
		{"http://a.example/x"},
		{"HTTP://b.example:443/x"},
		{"/1", "//a.example/2", "http://a.example/x"},
	} {
		for _, status := range []int{302, 303, 308} {
			w := newNetwork(t, status, locations)
			o := w.client.Do(t.Context(), mustEnvelope(t, object{"url": "https://a.example/0", "method": "GET"}))
			want := fmt.Sprintf("%d redirected: answered %d: it leads from https to http", status, status)
			if n := len(w.secure.all()); summary(o) != want || n != len(locations) || len(w.plain.all()) > 0 {
				t.Errorf("%v: got %s after %d calls", locations, summary(o), n)
			}
		}
	}
}

// TestRedirectsToAHostThatHasMoved: the request goes to its new host, with what that may get, and not by http instead
// of https.
func TestRedirectsToAHostThatHasMoved(t *testing.T) {
	const profiles = `{"old.example": {"to": "https://a.example"}, "old.example:80": {"to": "http://b.example"},
		"old.example:81": {"to": "http://b.example"},
		"a.example": {"headers": {"X-Tenant": "a"}}, "b.example": {"headers": {"X-Tenant": "b"}}}`
	for _, c := range []struct{ from, location, host, tenant, authorization string }{
		{"https://a.example/0", "https://old.example/x", "a.example", "a", "Bearer x"}, // back
		{"http://a.example/0", "https://old.example/x", "a.example", "a", "Bearer x"},
		{"http://c.example/0", "http://old.example/x", "b.example", "", ""},
		{"https://a.example/0", "https://old.example:81/x", "", "", ""},
	} {
		w := newNetwork(t, http.StatusTemporaryRedirect, []string{c.location})
		w.client.WithProfiles(mustProfiles(t, profiles))
		headers := object{"Host": strings.Split(c.from, "/")[2], "Authorization": "Bearer x"}
		o := w.client.Do(t.Context(), mustEnvelope(t, object{"url": c.from, "headers": headers}))
		all := append(w.plain.all(), w.secure.all()...)
		if c.host == "" {
			wantFailure(t, o, decision.FailureRedirected)
			if len(all) != 1 {
				t.Errorf("%s: %d requests", c.location, len(all))
			}
			continue
		}
		wantAnswer(t, o, 200)
		last := all[len(all)-1]
		tenant, authorization := last.header.Get("X-Tenant"), last.header.Get("Authorization")
		if len(all) != 2 || last.host != c.host || tenant != c.tenant || authorization != c.authorization {
			t.Errorf("%s: %d requests, the last one to %s with %q and %q", c.location, len(all), last.host, tenant,
				authorization)
		}
	}
}
