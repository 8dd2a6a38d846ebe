package outbound_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

// Refusals of a name that a search list completes.
const (
	short       = "the host name is refused: it depends on a search list, and "
	shortDeny   = short + "ASYNC_CALLER_TARGETS_DENY has "
	shortTarget = short + "targets.json has "
	advice      = ": give the full name, or allow it in ASYNC_CALLER_TARGETS_ALLOW"
)

// namesOfCorp are the names of a network whose search list has a domain. PUBLIC is the address of the public target.
var namesOfCorp = map[string][]string{
	"secret.corp.test": {"PUBLIC"}, "t.example": {"PUBLIC"}, "dual.example": {"127.0.0.1 PUBLIC"}, "docker": {"PUBLIC"},
	"both.corp": {"PUBLIC"}, "both.corp.corp.test": {"127.0.0.1"},
	"fails": {broken}, "fails.corp.test": {"PUBLIC"}, "unknown.corp": {broken},
}

// withAddress returns answers with the address of the public target.
func withAddress(answers map[string][]string, addr string) map[string][]string {
	real := map[string][]string{}
	for name, list := range answers {
		for _, text := range list {
			real[name] = append(real[name], strings.ReplaceAll(text, "PUBLIC", addr))
		}
	}
	return real
}

// A short name that the machine's resolver completes reaches no target that DENY or targets.json has by its full name.
func TestShortNames(t *testing.T) {
	const corp, test = "corp.test", "test"
	for name, test := range map[string]struct{ host, domain, allow, deny, profile, want string }{
		"no_rule":              {"secret", corp, "", "", "", ""},
		"suffix":               {"secret", corp, "", "*.corp.test", "", shortDeny + "*.corp.test" + advice},
		"with_a_dot":           {"secret.corp", test, "", "*.corp.test", "", advice},
		"any_suffix":           {"secret", corp, "", "*.other.example", "", advice}, // it could end so
		"other_name_denied":    {"secret", corp, "", "other.corp.test", "", ""},
		"profile":              {"secret", corp, "", "", "*.corp.test", shortTarget + "*.corp.test" + advice},
		"profile_of_all":       {"secret", corp, "", "", "*", ""},
		"allowed":              {"secret", corp, "secret", "*.corp.test", "*.corp.test", ""},
		"full_name_allowed":    {"secret", corp, "*.corp.test", "*.secret.corp.test", "", advice},
		"final_dot":            {"secret.", corp, "", "*.corp.test", "", unknown},
		"full":                 {"t.example", corp, "", "*.corp.test", "*.corp.test", ""},
		"full_with_dot":        {"T.Example.", corp, "", "*.corp.test", "", ""},
		"full_without_dot":     {"docker", corp, "", "*.corp.test", "", ""},
		"full_of_two_families": {"dual.example", corp, "", "*.corp.test", "", ""},
		"full_before_short":    {"both.corp", corp, "", "*.corp.test", "", ""},
		"full_has_a_profile":   {"secret.corp.test", corp, "", "", "*.corp.test", ""},
		"unknown":              {"nothing", corp, "", "*.corp.test", "", unknown},
		"server_fails":         {"fails", corp, "", "*.corp.test", "", unknown},
		"search_fails":         {"unknown", "corp", "", "*.corp.test", "", unknown},
	} {
		t.Run(name, func(t *testing.T) {
			public, addr, port := newPublic(t, nil)
			n := newNames(t, withAddress(namesOfCorp, addr))
			client := newGuarded(t, n, test.allow, test.deny)
			if test.profile != "" {
				client.SetProfiles(test.profile)
			}
			wantRefused(t, client.Do(n.search(t.Context(), test.domain), secretCall(t, "http", test.host+":"+port)),
				test.want)
			if test.want == "" && public.one(t).host != test.host+":"+port {
				t.Errorf("the Host header is %q", public.one(t).host)
			}
		})
	}
}

func TestShortNameBehindARedirect(t *testing.T) {
	var port string
	public, addr, port := newPublic(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://secret:"+port+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	n := newNames(t, withAddress(namesOfCorp, addr))
	client := newGuarded(t, n, "", "*.corp.test")
	o := client.Do(n.search(t.Context(), "corp.test"), secretCall(t, "http", "t.example:"+port))
	wantRefused(t, o, "behind a redirect: "+short)
	public.one(t)
}

// The final dot that keeps out the search list is part of the look-up only.
func TestFullNameAndTLS(t *testing.T) {
	server, authority := newSecureTarget(t, nil)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	n := newNames(t, map[string][]string{"t.example": {"127.0.0.1"}})
	client := newGuarded(t, n, "127.0.0.1", "*.corp.test")
	client.Trust(authority.pool())
	wantAnswer(t, client.Do(n.search(t.Context(), "corp.test"), secretCall(t, "https", "t.example:"+port)), 200)
	if got := server.one(t); got.host != "t.example:"+port {
		t.Errorf("the Host header is %q", got.host)
	}
}

// A full name is looked up once, with a rule that concerns short names and without.
func TestOneLookUp(t *testing.T) {
	// Without the rule and the final dot, the search list of this machine could add questions.
	for deny, host := range map[string]string{"": "t.example.", "*.corp.test": "t.example"} {
		_, addr, port := newPublic(t, nil)
		n := newNames(t, withAddress(namesOfCorp, addr))
		client := newGuarded(t, n, "", deny)
		wantAnswer(t, client.Do(t.Context(), secretCall(t, "http", host+":"+port)), 200)
		if count := n.count(); count != 2 { // one for each address family
			t.Errorf("with DENY %q the client asked %d questions", deny, count)
		}
	}
}

// The operator chose the names of the hosts file, and localhost is not looked up elsewhere.
func TestNamesOfTheHostsFile(t *testing.T) {
	public, addr, port := newPublic(t, nil)
	n := newNames(t, withAddress(namesOfCorp, addr))
	client := newGuarded(t, n, "", "*.corp.test")
	if addrs, err := client.InHostsFile(t.Context(), "localhost"); err != nil || !addrs[0].IsLoopback() {
		t.Errorf("the hosts file has %v for localhost: %v", addrs, err)
	}
	if addrs, err := client.InHostsFile(t.Context(), "t.example"); err == nil {
		t.Errorf("the hosts file has %v for t.example", addrs)
	}
	client.HostsFile(newNames(t, map[string][]string{"secret": {addr}}).resolver())
	wantAnswer(t, client.Do(t.Context(), secretCall(t, "http", "secret:"+port)), 200)
	public.one(t)

	server := newTestServer(t, nil)
	_, port, _ = net.SplitHostPort(server.Listener.Addr().String())
	client = newGuarded(t, n, "127.0.0.1", "*.corp.test")
	wantAnswer(t, client.Do(t.Context(), secretCall(t, "http", "localhost:"+port)), 200)
	server.one(t)
}

// A proxy looks up names with a search list of its own, so it gets no name that such a list could complete first.
func TestShortNamesThroughAProxy(t *testing.T) {
	answers := withAddress(namesOfCorp, "203.0.113.1")
	for name, test := range map[string]struct{ host, allow, deny, profile, want string }{
		"no_rule":              {"secret", "", "", "", ""},
		"suffix":               {"secret", "", "*.corp.test", "", shortDeny + "*.corp.test" + advice},
		"profile":              {"secret", "", "", "*.corp.test", shortTarget + "*.corp.test" + advice},
		"full_here":            {"docker", "", "*.corp.test", "", advice},
		"unknown_here":         {"nothing", "", "*.corp.test", "", advice},
		"final_dot":            {"docker.", "", "*.corp.test", "", advice}, // some proxies remove it
		"with_a_dot":           {"secret.corp", "", "*.corp.test", "", unknown},
		"with_a_dot_completed": {"both.corp", "", "*.corp.test", "", ""},
		"allowed_unknown":      {"nothing", "nothing,*", "*.corp.test", "", ""},
		"full":                 {"t.example", "", "*.corp.test", "*.corp.test", ""},
		"address":              {"[2001:db8::1]", "", "*.corp.test", "", ""},
		"localhost":            {"localhost", "127.0.0.0/8,*", "*.corp.test", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := newTestServer(t, nil)
			n := newNames(t, answers)
			client := newProxied(t, n, proxy.URL, test.allow, test.deny)
			if test.profile != "" {
				client.SetProfiles(test.profile)
			}
			wantRefused(t, client.Do(n.search(t.Context(), "corp.test"), secretCall(t, "http", test.host)), test.want)
			if test.want == "" && proxy.one(t).host != test.host || test.want != "" && len(proxy.all()) > 0 {
				t.Errorf("the proxy got %+v", proxy.all())
			}
		})
	}
	// A socks5 proxy looks up names too. A name with a dot is refused if it exists here with the search list only.
	for host, domain := range map[string]string{"docker": "corp.test", "secret.corp": "test"} {
		n := newNames(t, answers)
		client := newProxied(t, n, "socks5://127.0.0.1:1", "", "*.corp.test")
		wantRefused(t, client.Do(n.search(t.Context(), domain), secretCall(t, "https", host)), advice)
	}
}
