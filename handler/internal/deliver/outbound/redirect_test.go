package outbound_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/decision"
)

// redirecting starts a target that redirects to a location.
func redirecting(t *testing.T, status int, location string) *testServer {
	t.Helper()
	return newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if location != "" {
			w.Header().Set("Location", location)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("over there"))
	})
}

func TestRedirects(t *testing.T) {
	tests := map[string]struct {
		method   string
		status   int
		followed string // by this method, or empty
	}{
		"307_post":   {"POST", 307, "POST"},
		"308_post":   {"POST", 308, "POST"},
		"307_put":    {"PUT", 307, "PUT"},
		"308_patch":  {"PATCH", 308, "PATCH"},
		"307_delete": {"DELETE", 307, "DELETE"},
		"307_get":    {"GET", 307, "GET"},
		"308_head":   {"HEAD", 308, "HEAD"},
		"301_get":    {"GET", 301, "GET"},
		"302_get":    {"GET", 302, "GET"},
		"303_get":    {"GET", 303, "GET"},
		"301_head":   {"HEAD", 301, "HEAD"},
		"302_head":   {"HEAD", 302, "HEAD"},
		"303_head":   {"HEAD", 303, "HEAD"},
		"301_post":   {"POST", 301, ""},
		"302_post":   {"POST", 302, ""},
		"303_post":   {"POST", 303, "GET"},
		"302_put":    {"PUT", 302, "PUT"},
		"301_patch":  {"PATCH", 301, "PATCH"},
		"302_delete": {"DELETE", 302, "DELETE"},
		"300_get":    {"GET", 300, "GET"},
		"300_head":   {"HEAD", 300, "HEAD"},
		"300_put":    {"PUT", 300, "PUT"},
		"300_post":   {"POST", 300, ""},
		"303_delete": {"DELETE", 303, "GET"},
		"301_odd":    {"PURGE", 301, "PURGE"},
		"303_odd":    {"PURGE", 303, "GET"},
		"303_put":    {"PUT", 303, "GET"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			second := newTestServer(t, nil)
			first := redirecting(t, test.status, second.URL+"/there?x=1")
			call := object{"url": first.URL, "method": test.method}
			body := ""
			if test.method != "GET" && test.method != "HEAD" {
				body = "the body"
				call["body"] = body
			}
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, call))
			first.one(t)
			if test.followed == "" {
				wantFailure(t, o, decision.FailureRedirected)
				if o.Status != test.status || string(o.Body) != "over there" {
					t.Errorf("got %d %q, want the redirect itself", o.Status, o.Body)
				}
				if n := len(second.all()); n != 0 {
					t.Errorf("it was followed: the second target was called %d times", n)
				}
				return
			}
			wantAnswer(t, o, 200)
			got := second.one(t)
			if test.status == 303 {
				body = ""
			}
			if got.method != test.followed || got.uri != "/there?x=1" || string(got.body) != body {
				t.Errorf("got %s %s with %q, want %s with %q", got.method, got.uri, got.body, test.followed, body)
			}
		})
	}
}

// After a 303 the call is a GET without content: later redirects follow it as such.
func TestRedirectsAfterSeeOther(t *testing.T) {
	for _, method := range []string{"POST", "HEAD"} {
		for _, next := range []int{301, 302, 303, 307, 308} {
			t.Run(fmt.Sprintf("%s_%d", method, next), func(t *testing.T) {
				server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
					if status := map[string]int{"/0": 303, "/1": next}[r.URL.Path]; status != 0 {
						w.Header().Set("Location", map[string]string{"/0": "/1", "/1": "/2"}[r.URL.Path])
						w.WriteHeader(status)
					}
				})
				headers := object{"X-Kept": "1", "Content-Version": "2"}
				content := []string{
					"ALLOW", "Content-Disposition", "content-encoding", "Content-Language", "Content-Location",
					"Content-MD5", "Content-Range",
					"Content-Type", "Expires", "Last-Modified",
				}
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

func TestRedirectsThatLeadNowhere(t *testing.T) {
	tests := map[string]struct {
		status   int
		location string
	}{
		"other_scheme":  {307, "ftp://files.example/" + canary},
		"file":          {302, "file:///etc/" + canary},
		"no_scheme":     {302, "mailto:x@example.com"},
		"no_location":   {302, ""},
		"307_no_target": {307, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := newClient(t, longTimeout).
				Do(t.Context(), mustEnvelope(t, object{"url": redirecting(t, test.status, test.location).URL}))
			wantFailure(t, o, decision.FailureRedirected)
			if o.Status != test.status {
				t.Errorf("got status %d, want %d", o.Status, test.status)
			}
		})
	}
}

func TestRedirectsToRawPaths(t *testing.T) {
	for location, want := range map[string]string{
		"/å|%2F?q=å": "/%C3%A5%7C%2F?q=%C3%A5", "/100%/x": "/100%25/x", "/b=aYL%yAdp?d=100%": "/b=aYL%25yAdp?d=100%25",
		"x%2F%": "/x%2F%25", "http://one.example/%zz": "/%25zz",
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
		client.ConnectBy(dialTo(map[string]*testServer{"one.example": server}))
		wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": "http://one.example"})), 200)
		if all := server.all(); len(all) != 2 || all[1].uri != want {
			t.Errorf("%s: got %+v, want %s", location, all, want)
		}
	}
}

// An unreachable target behind a redirect fails like any other.
func TestRedirectToNobody(t *testing.T) {
	o := newClient(t, longTimeout).Do(t.Context(),
		mustEnvelope(t, object{"url": redirecting(t, 307, "http://"+refusedAddress(t)+"/?code="+canary).URL}))
	wantFailure(t, o, decision.FailureConnect)
}

func TestRedirectLimit(t *testing.T) {
	for _, status := range []int{302, 307} {
		for hops, followed := range map[int]bool{1: true, 10: true, 11: false} {
			t.Run(fmt.Sprintf("%d_times_%d", status, hops), func(t *testing.T) {
				left := hops
				server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
					if left > 0 {
						left--
						http.Redirect(w, r, "/again", status)
					}
				})
				o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.URL}))
				if followed {
					wantAnswer(t, o, 200)
				} else {
					wantFailure(t, o, decision.FailureRedirected)
				}
				if n := len(server.all()); n != min(hops, 10)+1 {
					t.Errorf("%d requests for %d redirects", n, hops)
				}
			})
		}
	}
}

func TestRedirectLoop(t *testing.T) {
	server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/again?code="+canary, http.StatusTemporaryRedirect)
	})
	o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.URL, "body": "x"}))
	wantFailure(t, o, decision.FailureRedirected)
	if n := len(server.all()); n != 11 {
		t.Errorf("%d requests, want the first and 10 more", n)
	}
}

// dialTo returns a dialer that connects invented host names to servers.
func dialTo(hosts map[string]*testServer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(hosts[host].URL, "http://"))
	}
}

func TestHeadersBehindARedirect(t *testing.T) {
	headers := object{
		"Authorization": "Bearer " + canary, "Cookie": "session=" + canary, "X-Mine": "1",
		"Content-Type": "text/plain",
	}
	tests := map[string]struct {
		location string
		more     object
		host     string
		want     http.Header
	}{
		"same_host": {
			location: "http://one.example/there", host: "one.example",
			want: http.Header{"Authorization": {"Bearer " + canary}, "Cookie": {"session=" + canary}},
		},
		"relative": {
			location: "/there", host: "one.example",
			want: http.Header{"Authorization": {"Bearer " + canary}, "Cookie": {"session=" + canary}},
		},
		"other_host": {location: "http://two.example/there", host: "two.example", want: http.Header{}},
		"own_referer": {
			location: "/there",
			more:     object{"Referer": "http://me.example/"},
			host:     "one.example",
			want: http.Header{
				"Authorization": {"Bearer " + canary}, "Cookie": {"session=" + canary},
				"Referer": {"http://me.example/"},
			},
		},
		"host_header_relative": {
			location: "/there",
			more:     object{"Host": "tenant.example"},
			host:     "tenant.example",
			want:     http.Header{"Authorization": {"Bearer " + canary}, "Cookie": {"session=" + canary}},
		},
		"host_header_absolute": {
			location: "http://two.example/there", more: object{"Host": "tenant.example"},
			host: "two.example", want: http.Header{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/there" {
					w.Header().Set("Location", test.location)
					w.WriteHeader(http.StatusTemporaryRedirect)
				}
			})
			client := newClient(t, longTimeout)
			client.ConnectBy(dialTo(map[string]*testServer{"one.example": server, "two.example": server}))
			all := object{}
			maps.Copy(all, headers)
			maps.Copy(all, test.more)
			o := client.Do(t.Context(), mustEnvelope(t, object{
				"url":     "http://one.example/start?code=" + canary,
				"headers": all, "body": "text",
			}, object{"attempts": 4}))
			wantAnswer(t, o, 200)
			if len(server.all()) != 2 {
				t.Fatalf("%d requests, want 2", len(server.all()))
			}
			got := server.all()[1]
			if got.host != test.host || string(got.body) != "text" {
				t.Errorf("got %q from host %q, want host %q", got.body, got.host, test.host)
			}
			// Every redirect keeps these.
			for name, value := range map[string]string{
				"X-Mine": "1", "Content-Type": "text/plain", "Content-Length": "4",
				"Idempotency-Key": "request-1", "X-Async-Caller-Attempt": "5", "User-Agent": "async-caller",
			} {
				test.want.Set(name, value)
			}
			if diff := cmp.Diff(test.want, got.header); diff != "" {
				t.Errorf("headers behind the redirect (-want +got):\n%s", diff)
			}
		})
	}
}
