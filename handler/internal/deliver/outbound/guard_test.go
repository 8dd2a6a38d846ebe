package outbound_test

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/guard"
)

// newPublic starts a target that represents one on the public network: its address belongs to this machine but is not
// 127.0.0.1. The same port of 127.0.0.1 has a target that must not be called.
func newPublic(tb testing.TB, answer http.HandlerFunc) (public *testServer, addr, port string) {
	tb.Helper()
	for range 20 { // the port may be in use on one of the two
		for _, addr := range []string{"127.0.0.2", "::1"} { // some systems lack the first one
			listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", net.JoinHostPort(addr, "0"))
			if err != nil {
				continue
			}
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			private, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				_ = listener.Close()
				continue
			}
			forbidden := newTestServerAt(tb, private, nil)
			tb.Cleanup(func() {
				if n := len(forbidden.all()); n != 0 {
					tb.Errorf("the target on 127.0.0.1 was called %d times", n)
				}
			})
			return newTestServerAt(tb, listener, answer), addr, port
		}
	}
	tb.Fatal("this machine has no second address")
	return nil, "", ""
}

func newTestServerAt(tb testing.TB, listener net.Listener, answer http.HandlerFunc) *testServer {
	tb.Helper()
	s := newUnstartedServer(tb, answer)
	_ = s.Listener.Close()
	s.Listener = listener
	s.Start()
	return s
}

// newGuarded returns a client whose rules treat 127.0.0.2 and ::1 as public addresses.
func newGuarded(tb testing.TB, n *names, allow, deny string) *outbound.Client {
	tb.Helper()
	client := outbound.New(longTimeout, mustRules(tb, strings.TrimPrefix(allow+",127.0.0.2,::1,*", ","), deny),
		outbound.Proxy{})
	tb.Cleanup(client.Close)
	client.Resolve(n.resolver())
	return client
}

// wantRefused checks that a call was not made, and that the outcome says why. An empty text wants an answer with 200.
func wantRefused(tb testing.TB, o decision.Outcome, why string) {
	tb.Helper()
	text := summary(o)
	if why == "" && text != "200" || !strings.Contains(text, why) || why != "" && o.Status != 0 {
		tb.Errorf("got %s, want %s", text, cmp.Or(why, "an answer"))
	}
	if strings.Contains(text, canary) {
		tb.Errorf("the outcome contains a secret: %s", text)
	}
}

const (
	loopback = "127.0.0.1 is refused: loopback addresses (built in; ASYNC_CALLER_TARGETS_ALLOW can allow it)"
	unknown  = "dns: "
)

// A name cannot become private after its check, because the client checks the address that it connects to.
func TestRebinding(t *testing.T) {
	closing := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }
	public, addr, port := newPublic(t, closing)
	n := newNames(t, map[string][]string{"rebind.example": {addr, "127.0.0.1"}})
	client := newGuarded(t, n, "", "")
	e := secretCall(t, "http", "rebind.example:"+port)

	wantAnswer(t, client.Do(t.Context(), e), 200)
	wantRefused(t, client.Do(t.Context(), e), loopback)
	wantRefused(t, client.Do(t.Context(), e), loopback)
	public.one(t)
}

// TestBuiltInRefusals: these targets are refused without a setting.
func TestBuiltInRefusals(t *testing.T) {
	n := newNames(t, map[string][]string{"inner.example": {"127.0.0.1"}, "six.example": {"::1 fe80::1"}})
	client := outbound.New(longTimeout, guard.Rules{}, outbound.Proxy{})
	t.Cleanup(client.Close)
	client.Resolve(n.resolver())
	for host, rule := range map[string]string{
		"inner.example": loopback, "six.example": " is refused: l", "localhost": " is refused: loopback",
		"[::ffff:127.0.0.1]": loopback, "127.0.0.1.": loopback, "１２７.0.0.1": loopback,
		"169.254.169.254": "metadata", "[fe80::1%25eth0]": "fe80::1 is refused",
	} {
		for _, scheme := range []string{"http", "https"} {
			wantRefused(t, client.Do(t.Context(), secretCall(t, scheme, host)), rule)
		}
	}
}

// The addresses of this machine are refused, also after they change.
func TestOwnAddresses(t *testing.T) {
	for name, proxy := range map[string]outbound.Proxy{"direct": {}, "proxied": mustProxy(t, "http://203.0.113.1")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var own []net.Addr
				var broken error
				client := outbound.New(longTimeout, mustRules(t, "*.example,*", ""), proxy)
				client.Resolve(newNames(t, map[string][]string{"t.example": {"203.0.113.8"}}).resolver())
				client.Interfaces(func() ([]net.Addr, error) { return own, broken })
				for _, hosts := range [][]string{
					{"203.0.113.7", "[::ffff:203.0.113.7]", "[64:ff9b::203.0.113.7]"},
					{"203.0.113.8", "t.example"},
				} {
					own = []net.Addr{
						&net.IPNet{IP: net.ParseIP("fe80::1")},
						&net.IPNet{IP: net.ParseIP(strings.Trim(hosts[0], "[]"))},
					}
					for _, host := range hosts {
						wantRefused(t, client.Do(t.Context(), secretCall(t, "http", host)),
							"is refused: addresses of this machine (built in")
					}
					advance(time.Second)
				}
				broken = errors.New("no interfaces")
				wantFailure(t, client.Do(t.Context(), secretCall(t, "http", "t.example")), decision.FailureConnect)
			})
		})
	}
}

func TestTargetRules(t *testing.T) {
	const deny = "ASYNC_CALLER_TARGETS_DENY has "
	for name, test := range map[string]struct {
		addrs             string // PUBLIC is the address of the public target
		allow, deny, want string
	}{
		"allow_by_suffix":         {"127.0.0.1", "*.example", "", loopback},
		"allow_by_address":        {"127.0.0.1", "127.0.0.1", "", ""},
		"deny_beats_name":         {"127.0.0.1", "t.example", "t.example", "name is refused: " + deny + "t.example"},
		"deny_address_beats_name": {"127.0.0.1", "t.example", "127.0.0.1", "is refused: " + deny + "127.0.0.1"},
		"public":                  {"PUBLIC", "", "", ""},
		"refused_before_others":   {"127.0.0.1 PUBLIC", "", "", ""},
		"refused_after_others":    {"PUBLIC 127.0.0.1 169.254.169.254", "", "", ""},
		"all_refused":             {"127.0.0.1 127.0.0.3 169.254.169.254", "", "", "is refused: "},
		"two_families":            {"127.0.0.1 fe80::1", "", "", "is refused: l"},
		"no_addresses":            {"", "", "", unknown},
	} {
		t.Run(name, func(t *testing.T) {
			server, addr, port := newPublic(t, nil)
			if test.want == "" && !strings.Contains(test.addrs, "PUBLIC") {
				server = newTestServer(t, nil)
				_, port, _ = net.SplitHostPort(server.Listener.Addr().String())
			}
			n := newNames(t, map[string][]string{"t.example": {strings.ReplaceAll(test.addrs, "PUBLIC", addr)}})
			o := newGuarded(t, n, test.allow, test.deny).Do(t.Context(), secretCall(t, "http", "t.example:"+port))
			wantRefused(t, o, test.want)
			if called := len(server.all()) == 1; called != (test.want == "") {
				t.Errorf("%d calls", len(server.all()))
			}
		})
	}
}

// An allowed address that cannot be reached is a temporary failure, even if the other addresses are refused.
func TestRefusedAndUnreachable(t *testing.T) {
	server, addr, port := newPublic(t, nil)
	server.Close()
	for _, addrs := range []string{"127.0.0.1 " + addr, addr + " 127.0.0.1", addr} {
		n := newNames(t, map[string][]string{"t.example": {addrs}})
		wantFailure(t, newGuarded(t, n, "", "").Do(t.Context(), secretCall(t, "http", "t.example:"+port)),
			decision.FailureConnect)
	}
}

// With ALLOW set, the client calls only named targets, and does not look up other names.
func TestOnlyWhatIsNamed(t *testing.T) {
	server := newTestServer(t, nil)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	n := newNames(t, map[string][]string{"localhost": {"127.0.0.1"}, "u.example": {"127.0.0.1"}})
	client := outbound.New(longTimeout, mustRules(t, "localhost", ""), outbound.Proxy{})
	t.Cleanup(client.Close)
	client.Resolve(n.resolver())

	wantRefused(t, client.Do(t.Context(), secretCall(t, "http", "u.example:"+port)),
		"the host name is refused: ASYNC_CALLER_TARGETS_ALLOW does not name it")
	wantRefused(t, client.Do(t.Context(), secretCall(t, "http", "127.0.0.1:"+port)),
		"127.0.0.1 is refused: ASYNC_CALLER_TARGETS_ALLOW names neither it nor its host name")
	if n.count() != 0 {
		t.Errorf("%d look-ups", n.count())
	}
	wantAnswer(t, client.Do(t.Context(), secretCall(t, "http", "LocalHost.:"+port)), 200)
	server.one(t)
}

func TestRefusedBehindARedirect(t *testing.T) {
	for location, rule := range map[string]string{
		"http://169.254.169.254/latest/" + canary:    "169.254.169.254 is refused: link-local and metadata addresses",
		"http://" + canary + ".inner.example:PORT/":  loopback,
		"http://" + canary + ".denied.example:PORT/": "the host name is refused: ASYNC_CALLER_TARGETS_DENY",
		"https://c4nary.inner.example:PORT/":         loopback,
	} {
		var port string
		public, addr, port := newPublic(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", strings.ReplaceAll(location, "PORT", port))
			w.WriteHeader(http.StatusFound)
		})
		n := newNames(t, map[string][]string{"t.example": {addr}, "c4nary.inner.example": {"127.0.0.1"}})
		e := mustEnvelope(t, object{"url": "http://t.example:" + port + "/?code=" + canary, "method": "GET"})
		wantRefused(t, newGuarded(t, n, "", "*.denied.example").Do(t.Context(), e), "behind a redirect: "+rule)
		public.one(t)
	}
}

// The client checks the name for each call on an existing connection, without another look-up.
func TestKeptConnectionIsJudged(t *testing.T) {
	public, addr, port := newPublic(t, nil)
	n := newNames(t, map[string][]string{"t.example": {addr}})
	client := newGuarded(t, n, "", "")
	e := secretCall(t, "http", "t.example:"+port)
	wantAnswer(t, client.Do(t.Context(), e), 200)
	lookups := n.count()
	wantAnswer(t, client.Do(t.Context(), e), 200)
	client.SetRules(mustRules(t, "*,127.0.0.2,::1", "t.example"))
	wantRefused(t, client.Do(t.Context(), e), "ASYNC_CALLER_TARGETS_DENY has t.example")
	if n.count() != lookups || len(public.all()) != 2 {
		t.Errorf("%d look-ups and then %d, %d calls", lookups, n.count(), len(public.all()))
	}
}

// A server may choose a site by the Host header, so the header must not name a denied host.
func TestDeniedHostHeader(t *testing.T) {
	server, client := newTestServer(t, nil), newClient(t, longTimeout)
	client.SetRules(mustRules(t, "127.0.0.1,*", "denied.example"))
	for host, want := range map[string]string{
		"Denied.Example.:80": "ASYNC_CALLER_TARGETS_DENY has ", "other.example": "",
	} {
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL, "headers": object{"Host": host}}))
		wantRefused(t, o, want)
	}
	if got := server.one(t); got.host != "other.example" {
		t.Errorf("the Host header is %q", got.host)
	}
}

// TestLocal: of an address that is not allowed, one port can be, and nothing else by a redirect from there.
func TestLocal(t *testing.T) {
	other := newTestServer(t, func(http.ResponseWriter, *http.Request) {})
	local := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}
	})
	rules := mustRules(t, "*", "")
	rules.Local = netip.MustParseAddrPort(local.Listener.Addr().String())
	client := outbound.New(longTimeout, rules, outbound.Proxy{})
	t.Cleanup(client.Close)
	port := strconv.Itoa(int(rules.Local.Port()))
	for url, isAllowed := range map[string]bool{
		local.URL: true, local.URL + "/away": false, other.URL: false,
		"http://localhost:" + port: false, "http://127.0.0.2:" + port: false, "http://[::1]:" + port: false,
	} {
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": url}))
		if isAllowed {
			wantAnswer(t, o, http.StatusOK)
		} else if o.Failure != decision.FailureTargetRefused {
			t.Errorf("%s: failure %q, want that the target is refused", url, o.Failure)
		}
	}
	if calls := len(other.all()); calls > 0 {
		t.Errorf("the other server was called %d times", calls)
	}
}
