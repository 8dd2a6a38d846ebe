package outbound_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
)

func mustProxy(tb testing.TB, text string) outbound.Proxy {
	tb.Helper()
	proxy, err := outbound.ParseProxy(text)
	if err != nil {
		tb.Fatal(err)
	}
	return proxy
}

// newProxied returns a client that uses a proxy on this machine, which its rules would refuse as a target.
func newProxied(tb testing.TB, n *names, proxy, allow, deny string) *outbound.Client {
	tb.Helper()
	client := outbound.New(longTimeout, mustRules(tb, allow, deny), mustProxy(tb, proxy))
	tb.Cleanup(client.Close)
	client.Resolve(n.resolver())
	return client
}

// newTargetsProxied returns a client for t.example and inner.example, of which only the first is allowed.
func newTargetsProxied(tb testing.TB, proxy string) *outbound.Client {
	tb.Helper()
	n := newNames(tb, map[string][]string{
		"t.example": {"203.0.113.1"}, "inner.example": {"127.0.0.1"}, "localhost": {"127.0.0.1"},
	})
	return newProxied(tb, n, proxy, "", "")
}

// newSecureTarget starts a target with a certificate for t.example.
func newSecureTarget(t *testing.T, answer http.HandlerFunc) (*testServer, *authority) {
	t.Helper()
	authority, server := newAuthority(t), newUnstartedServer(t, answer)
	server.TLS = serverConfig(authority.server(t, "t.example", time.Now().Add(time.Hour)))
	server.StartTLS()
	return server, authority
}

// withUser puts user info into a URL.
func withUser(rawURL string) string {
	return strings.Replace(rawURL, "://", "://me:"+canary+"@", 1)
}

// The rules apply to the target, although the proxy connects to it, and not to the proxy.
func TestProxyAndTargets(t *testing.T) {
	answers := map[string][]string{
		"t.example": {"203.0.113.1 2001:db8::1"}, "private.example": {"10.0.0.1"}, "inner.example": {"127.0.0.1"},
		"mixed.example": {"203.0.113.1 127.0.0.1"}, "rebind.example": {"203.0.113.1", "127.0.0.1"},
	}
	for name, test := range map[string]struct{ host, allow, deny, want string }{
		"public":             {"t.example", "", "", ""},
		"private":            {"private.example", "", "", ""},
		"literal":            {"203.0.113.9", "", "", ""},
		"loopback":           {"inner.example", "", "", loopback},
		"loopback_literal":   {"127.0.0.1", "", "", loopback},
		"one_is_refused":     {"mixed.example", "", "", loopback}, // the proxy may choose it
		"unknown":            {canary + ".example", "", "", unknown},
		"not_named":          {"t.example", "u.example", "", "ASYNC_CALLER_TARGETS_ALLOW does not name it"},
		"named_loopback":     {"inner.example", "inner.example,*", "", loopback},
		"localhost":          {"localhost", "localhost", "", ""},
		"named_unknown":      {"only-the-proxy-knows.example", "*.example,*", "", ""},
		"named_deny_unknown": {"only-the-proxy-knows.example", "*.example,*", "10.0.0.0/8", unknown},
		"unknown_by_network": {"only-the-proxy-knows.example", "10.0.0.0/8", "", unknown},
		"unicode":            {"t。example", "t.example", "", ""},
		"named_but_denied":   {"inner.example", "inner.example", "127.0.0.0/8", "DENY has 127.0.0.0/8"},
		"denied":             {"t.example", "", "t.example", "DENY has t.example"},
		"allowed_addresses":  {"inner.example", "127.0.0.0/8", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := newTestServer(t, nil)
			client := newProxied(t, newNames(t, answers), withUser(proxy.URL), test.allow, test.deny)
			wantRefused(t, client.Do(t.Context(), secretCall(t, "http", test.host)), test.want)
			if test.want != "" {
				if len(proxy.all()) > 0 {
					t.Error("the proxy was called")
				}
				return
			}
			got := proxy.one(t)
			url := "http://" + strings.ReplaceAll(test.host, "。", ".") + "/" + canary + "?code=" + canary
			user := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+canary))
			if sent := got.header.Get("Proxy-Authorization"); got.uri != url || sent != user {
				t.Errorf("the proxy was asked for %s with %q, want %s with %q", got.uri, sent, url, user)
			}
		})
	}
}

// A proxy gets the host of the URL, whatever Host header an envelope has.
func TestProxyAndHostHeader(t *testing.T) {
	const url, differs = "http://t.example/latest", "the Host header is refused: it differs from the URL"
	for name, test := range map[string]struct{ url, host, want string }{
		"none":            {url, "", url},
		"spelling":        {url, "T.Example.:80", url},
		"spelling_port":   {"http://t.example:8080/", "T.EXAMPLE:8080", "http://t.example:8080/"},
		"unicode":         {"http://T。example:80/", "t.example", "http://t.example:80/"},
		"metadata":        {url, "169.254.169.254", ""},
		"other_port":      {url, "t.example:8080", ""},
		"relative":        {"http://t.example/relative", "T.example", "http://t.example/there"},
		"to_other":        {"http://t.example/absolute", "T.example", "http://u.example/there"},
		"scheme_relative": {"http://t.example/scheme", "T.example", "http://u.example/there"},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
				location := map[string]string{
					"/relative": "/there", "/absolute": "http://u。example/there",
					"/scheme": "//u.example/there",
				}[r.URL.Path]
				if location != "" {
					w.Header().Set("Location", location)
					w.WriteHeader(http.StatusTemporaryRedirect)
				}
			})
			n := newNames(t, map[string][]string{"t.example": {"203.0.113.1"}, "u.example": {"203.0.113.2"}})
			call := object{"url": test.url}
			if test.host != "" {
				call["headers"] = object{"host": test.host}
			}
			o := newProxied(t, n, proxy.URL, "t.example,u.example,*", "").Do(t.Context(), mustEnvelope(t, call))
			if test.want == "" {
				wantRefused(t, o, differs)
				if len(proxy.all()) != 0 {
					t.Error("the proxy was called")
				}
				return
			}
			wantAnswer(t, o, 200)
			all := proxy.all()
			if last := all[len(all)-1]; last.uri != test.want ||
				"http://"+last.host != test.want[:len("http://")+len(last.host)] {
				t.Errorf("the proxy was asked for %s with Host %s", last.uri, last.host)
			}
		})
	}
}

// TestProxyAndLaterCalls: the client checks the target for each call on an existing connection to the proxy, and behind
// redirects.
func TestProxyAndLaterCalls(t *testing.T) {
	proxy := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "away.example" {
			w.Header().Set("Location", "http://169.254.169.254/"+canary)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
	n := newNames(t, map[string][]string{"t.example": {"203.0.113.1", "127.0.0.1"}, "away.example": {"203.0.113.1"}})
	client := newProxied(t, n, proxy.URL, "", "")
	wantAnswer(t, client.Do(t.Context(), secretCall(t, "http", "t.example")), 200)
	wantRefused(t, client.Do(t.Context(), secretCall(t, "http", "t.example")), loopback)
	proxy.one(t)
	wantRefused(t, client.Do(t.Context(), secretCall(t, "http", "away.example")),
		"behind a redirect: 169.254.169.254 is refused")
}

// newTunnel starts a proxy that connects every CONNECT to one address.
func newTunnel(t *testing.T, to string) *testServer {
	t.Helper()
	return newTestServer(t, tunnel(t, to))
}

func tunnel(t *testing.T, to string) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		there, err := new(net.Dialer).DialContext(r.Context(), "tcp", to)
		if r.Method != http.MethodConnect || err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{})
		go func() { _, _ = io.Copy(there, here); _ = there.Close(); close(done) }()
		_, _ = io.Copy(here, there)
		_ = here.Close()
		<-done
	}
}

func TestProxyAndTLS(t *testing.T) {
	server, authority := newSecureTarget(t, nil)
	proxy := newTunnel(t, server.Listener.Addr().String())
	client := newTargetsProxied(t, withUser(proxy.URL))
	client.Trust(authority.pool())

	wantAnswer(t, client.Do(t.Context(), secretCall(t, "https", "t.example")), 200)
	if got := server.one(t); got.header.Get("Proxy-Authorization") != "" || string(got.body) != canary {
		t.Errorf("the target got %q and the proxy's password %q", got.body, got.header.Get("Proxy-Authorization"))
	}
	if got := proxy.one(t); got.uri != "t.example:443" || got.header.Get("Proxy-Authorization") == "" ||
		got.header.Get("X-Api-Key") != "" {
		t.Errorf("the proxy got %+v", got)
	}
	wantRefused(t, client.Do(t.Context(), secretCall(t, "https", "inner.example")), loopback)
	proxy.one(t)
}

// A failure of the proxy is temporary.
func TestProxyFails(t *testing.T) {
	refusing := newTestServer(t,
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) })
	socks := newSocks(t, 5, nil)
	for name, test := range map[string]struct{ proxy, scheme, detail string }{
		"unreachable":     {"http://" + refusedAddress(t), "http", "the proxy cannot be reached"},
		"unreachable_tls": {"http://" + refusedAddress(t), "https", "the proxy cannot be reached"},
		"unknown":         {"http://" + canary + ".invalid", "http", "the proxy cannot be reached"},
		"no_tls":          {strings.Replace(refusing.URL, "http", "https", 1), "http", "the proxy cannot be reached"},
		"refusing":        {withUser(refusing.URL), "https", "the proxy answered 407"},
		"socks":           {"socks5://" + socks, "https", "the proxy does not connect to the target"},
	} {
		o := newTargetsProxied(t, test.proxy).Do(t.Context(), secretCall(t, test.scheme, "t.example"))
		if got := summary(o); got != "0 connect: "+test.detail {
			t.Errorf("%s: got %s, want %s", name, got, test.detail)
		}
	}
}

// TestProxyAuthentication: an expired password of the proxy is no answer of the target.
func TestProxyAuthentication(t *testing.T) {
	refuse := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			http.Redirect(w, r, "http://t.example/next", http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(http.StatusProxyAuthRequired)
	}
	proxy := newTestServer(t, refuse)
	client := newTargetsProxied(t, withUser(proxy.URL))
	for _, url := range []string{"http://t.example/", "https://t.example/", "http://t.example/first"} {
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": url}, reported))
		if got := summary(o); got != "0 connect: the proxy answered 407" {
			t.Errorf("%s: got %s", url, got)
		}
	}
	wantAnswer(t, call(t, proxy.URL), 407)
}

// TestAnswersThroughATunnel: an answer through a proxy counts as it does without one, and the tunnel is used again.
func TestAnswersThroughATunnel(t *testing.T) {
	server, authority := newSecureTarget(t, func(w http.ResponseWriter, r *http.Request) {
		head, body := "HTTP/1.1 200 OK\r\n", "5\r\nwhole\r\n0\r\n\r\n"
		switch r.URL.Path {
		case "/odd":
			head += strings.Repeat("Transfer-Encoding: chunked\r\n", 2)
		case "/ambiguous":
			head += "Content-Length: 1\r\nContent-Length: 2\r\n"
		case "/long":
			head += strings.Repeat("X: y\r\n", 300)
		case "/407":
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		default:
			return
		}
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(connection, head+"\r\n"+body)
		_ = connection.Close()
	})
	proxy := newTunnel(t, server.Listener.Addr().String())
	client := newTargetsProxied(t, proxy.URL)
	client.Trust(authority.pool())
	for range 3 {
		wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": "https://t.example/"})), 200)
	}
	proxy.one(t)
	for path, want := range map[string]string{
		"odd":       "200 whole",
		"ambiguous": "200 ... connection: answered 200, but it has two different lengths",
		"long":      "0 connection: the answer has too many header lines",
		"407":       "407",
	} {
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": "https://t.example/" + path}, reported))
		if got := summary(o); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// TestProxyWithTLS: a proxy with an https URL gets the calls to http targets, and makes tunnels to https targets.
func TestProxyWithTLS(t *testing.T) {
	server, authority := newSecureTarget(t, nil)
	connects := tunnel(t, server.Listener.Addr().String())
	proxy := newUnstartedServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			connects(w, r)
		}
	})
	proxy.TLS = serverConfig(authority.server(t, "localhost", time.Now().Add(time.Hour)))
	proxy.StartTLS()
	_, port, _ := net.SplitHostPort(proxy.Listener.Addr().String())
	client := newTargetsProxied(t, withUser("https://localhost:"+port))
	client.Trust(authority.pool())
	for range 2 {
		for _, scheme := range []string{"http", "https"} {
			wantAnswer(t, client.Do(t.Context(), secretCall(t, scheme, "t.example")), 200)
		}
	}
	if n := len(server.all()); n != 2 {
		t.Errorf("the target got %d calls", n)
	}
	all := proxy.all()
	if len(all) != 3 || all[0].uri != "http://t.example/"+canary+"?code="+canary || all[1].uri != "t.example:443" {
		t.Errorf("the proxy got %d requests: %+v", len(all), all)
	}
	for _, request := range all {
		if request.header.Get("Proxy-Authorization") == "" {
			t.Errorf("%s without the password", request.method)
		}
	}
	stranger := newTargetsProxied(t, "https://localhost:"+port) // does not trust the proxy
	for _, scheme := range []string{"http", "https"} {
		o := stranger.Do(t.Context(), secretCall(t, scheme, "t.example"))
		if got := summary(o); got != "0 connect: the proxy cannot be reached" {
			t.Errorf("got %s", got)
		}
	}
}

// TestTunnelFails: what a proxy says in place of a tunnel is no answer of the target.
func TestTunnelFails(t *testing.T) {
	for name, test := range map[string]struct{ answer, detail string }{
		"unavailable": {
			"HTTP/1.1 503 " + canary + "\r\nContent-Length: 100\r\n\r\n" + canary, "the proxy answered 503",
		},
		"expired": {
			"HTTP/1.1 407 X\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "the proxy answered 407",
		},
		"old_version": {"HTTP/1.0 403 X\r\n\r\n", "the proxy answered 403"},
		"garbage":     {canary + "\r\n", "the proxy cannot be reached"},
		"closed":      {"", "the proxy cannot be reached"},
		"endless":     {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 10_000), "the proxy cannot be reached"},
	} {
		client := newTargetsProxied(t, newAnswer(t, test.answer).url())
		o := client.Do(t.Context(), secretCall(t, "https", "t.example"))
		if got := summary(o); got != "0 connect: "+test.detail {
			t.Errorf("%s: got %s, want %s", name, got, test.detail)
		}
	}
	t.Run("silent", func(t *testing.T) {
		proxy := newRawServer(t, hang)
		client := newTargetsProxied(t, proxy.url())
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": "https://t.example", "timeout": "50ms"}))
		wantFailure(t, o, decision.FailureTimeout)
	})
	t.Run("handshake", func(t *testing.T) {
		proxy := newTunnel(t, newHandshakeServer(t, alert(112)))
		client := newTargetsProxied(t, proxy.URL)
		o := client.Do(t.Context(), secretCall(t, "https", "t.example"))
		wantFailure(t, o, decision.FailureTLS)
		if !strings.Contains(o.Detail, "unrecognized name") {
			t.Errorf("the detail is %q", o.Detail)
		}
	})
}

// newSocks starts a SOCKS 5 proxy that answers each request with a code. With code 0 it passes the connection to
// handle.
func newSocks(t *testing.T, code byte, handle func(host string, c net.Conn)) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			greeting, request := make([]byte, 3), make([]byte, 5) // one method; up to the name's length
			_, _ = io.ReadFull(c, greeting)
			_, _ = c.Write([]byte{5, 0})
			_, _ = io.ReadFull(c, request)
			name := make([]byte, int(request[4])+2) // and the port
			_, _ = io.ReadFull(c, name)
			_, _ = c.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
			if code == 0 {
				handle(string(name[:len(name)-2]), c)
			}
			_ = c.Close()
		}
	}()
	return listener.Addr().String()
}

// TestSocksProxy: a SOCKS 5 proxy gets the names of allowed targets, and connects.
func TestSocksProxy(t *testing.T) {
	secure, authority := newSecureTarget(t, nil)
	for scheme, server := range map[string]*testServer{"http": newTestServer(t, nil), "https": secure} {
		hosts := make(chan string, 10)
		address := newSocks(t, 0, func(host string, here net.Conn) {
			hosts <- host
			there, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
			_, _ = io.Copy(here, there)
		})
		client := newTargetsProxied(t, "socks5://"+address)
		client.Trust(authority.pool())
		for range 2 {
			wantAnswer(t, client.Do(t.Context(), secretCall(t, scheme, "t.example")), 200)
		}
		wantRefused(t, client.Do(t.Context(), secretCall(t, scheme, "inner.example")), loopback)
		if <-hosts != "t.example" || len(hosts) > 0 || len(server.all()) != 2 {
			t.Errorf("%s: %d calls, or other requests than one for t.example", scheme, len(server.all()))
		}
	}
}

// The client ignores the proxy variables of the environment.
func TestProxyVariablesAreIgnored(t *testing.T) {
	proxy := newTestServer(t, nil)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	server, addr, port := newPublic(t, nil)
	wantAnswer(t, newGuarded(t, newNames(t, map[string][]string{"t.example": {addr}}), "", "").
		Do(t.Context(), secretCall(t, "http", "t.example:"+port)), 200)
	server.one(t)
	if len(proxy.all()) != 0 {
		t.Error("the proxy was called")
	}
}

func TestParseProxy(t *testing.T) {
	for _, text := range []string{
		"http://proxy.example", "https://proxy.example:8443/", "socks5://10.0.0.1:1080",
		withUser("http://[::1]:3128"),
	} {
		proxy := mustProxy(t, text)
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			for _, value := range []any{
				proxy, &proxy,
				struct{ P outbound.Proxy }{proxy},
				struct{ p outbound.Proxy }{proxy},
			} {
				if text := fmt.Sprintf(format, value); strings.Contains(text, canary) ||
					strings.Contains(text, "example") {
					t.Errorf("%s shows %s", format, text)
				}
			}
		}
	}
	for _, text := range []string{
		"", "proxy.example", "proxy.example:3128", "//proxy.example", "ftp://proxy.example", "socks4://proxy.example",
		"http://", "http://:3128",
		"http://proxy.example:0", "http://proxy.example:65536", "http://proxy.example:x", "http://proxy.example/path",
		"http://proxy.example?a=b", "http://proxy.example#a",
		"http://me:" + canary + "@", "http://me:" + canary + "@proxy.example:port", canary + "://proxy.example",
		"http://a b/", "%zz",
	} {
		if proxy, err := outbound.ParseProxy(text); err == nil {
			t.Errorf("%q was accepted: %v", text, proxy)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

// The call's timeout ends a look-up.
func TestProxyAndSlowNames(t *testing.T) {
	client := newProxied(t, newNames(t, nil), "http://127.0.0.1:1", "", "")
	client.Resolve(&net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	o := client.Do(t.Context(), mustEnvelope(t, object{"url": "http://t.example", "timeout": "50ms"}))
	wantFailure(t, o, decision.FailureTimeout)
}
