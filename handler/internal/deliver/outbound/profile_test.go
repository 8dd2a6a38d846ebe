package outbound_test

import (
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

func mustProfiles(tb testing.TB, content string) targets.Profiles {
	tb.Helper()
	profiles, err := targets.Parse([]byte(content), nil, func(string) string { return "theirs" })
	if err != nil {
		tb.Fatal(err)
	}
	return profiles
}

// TestProfileHeaders: a profile adds what the envelope does not have, in the file's spelling, and only if the call
// certainly goes to the profile's host.
func TestProfileHeaders(t *testing.T) {
	ours := []string{"Idempotency-Key: request-1", "User-Agent: async-caller", "X-Async-Caller-Attempt: 1"}
	for name, test := range map[string]struct {
		profile string
		url     string
		call    object
		want    []string // besides ours
	}{
		"added": {
			`"a.example":{"headers":{"Authorization":"$KEY","SOAPAction":"x","X-Two":["1","2"]}}`, "http://a.example",
			nil,
			[]string{"Accept-Encoding: identity", "Authorization: theirs", "SOAPAction: x", "X-Two: 1", "X-Two: 2"},
		},
		"not_merged": {`"a.example":{},"*":{"headers":{"X-A":"1"}}`, "http://a.example", nil, nil},
		"other_host": {`"a.example":{"headers":{"X-A":"1"}}`, "http://b.example", nil, nil},
		"envelopes_own": {
			`"*":{"headers":{"X-A":"1","x-b":"1","X-C":"1"}}`, "http://a.example",
			object{"headers": object{"x-a": "mine", "X-B": "mine", "X-C": []string{}}},
			[]string{"X-B: mine", "x-a: mine"},
		},
		"named_in_connection": {
			`"*":{"headers":{"X-A":"1","X-B":"1"}}`, "http://a.example",
			object{"headers": object{"x-a": "mine", "Connection": "X-A, X-B"}},
			[]string{"X-B: 1"},
		},
		"user_agent": {
			`"*":{"headers":{"user-agent":"theirs"}}`, "http://a.example", nil,
			[]string{"-User-Agent: async-caller", "user-agent: theirs"},
		},
		"user_info": {
			`"*":{"headers":{"authorization":"$KEY"}}`, "http://u:p@a.example", nil,
			[]string{"Accept-Encoding: identity", "Authorization: Basic dTpw"},
		},
		"identity_only": {
			`"*":{"headers":{"X-Key":"$KEY","Accept-Encoding":"br"}}`, "http://a.example",
			object{"headers": object{"accept-encoding": "gzip"}},
			[]string{"X-Key: theirs", "accept-encoding: identity"},
		},
		"identity_without_host": {
			`"*":{"headers":{"X-Key":"$KEY"}}`, "http://a.example",
			object{"headers": object{"Host": "b.example", "Accept-Encoding": "gzip"}},
			[]string{"Accept-Encoding: gzip"},
		},
		"no_secret": {
			`"*":{"headers":{"X-A":"$REGION"}}`, "http://a.example",
			object{"headers": object{"Accept-Encoding": "gzip"}},
			[]string{"Accept-Encoding: gzip", "X-A: theirs"},
		},
		"same_host_header": {
			`"*":{"headers":{"X-A":"1"}}`, "http://a.example",
			object{"headers": object{"Host": "a.example:80"}},
			[]string{"X-A: 1"},
		},
		"other_host_header": {
			`"*":{"headers":{"X-A":"1"}}`, "http://a.example",
			object{"headers": object{"Host": "b.example"}},
			nil,
		},
		"other_port_header": {
			`"*":{"headers":{"X-A":"1"}}`, "http://a.example",
			object{"headers": object{"Host": "a.example:81"}},
			nil,
		},
		"trace":          {`"*":{"headers":{"X-A":"1"}}`, "http://a.example", object{"method": "trace"}, nil},
		"track":          {`"*":{"headers":{"X-A":"1"}}`, "http://a.example", object{"method": "TRACK"}, nil},
		"debug":          {`"*":{"headers":{"X-A":"1"}}`, "http://a.example", object{"method": "Debug"}, nil},
		"unknown_method": {`"*":{"headers":{"X-A":"1"}}`, "http://a.example", object{"method": "PURGE"}, nil},
		"known_method": {
			`"*":{"headers":{"X-A":"1"}}`, "http://a.example",
			object{"method": "options"},
			[]string{"X-A: 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				heads := make(chan string, 1)
				client := newPipedClient(t, longTimeout, func(c net.Conn) {
					head, _ := readHead(c)
					heads <- head
					_, _ = io.WriteString(c, "HTTP/1.1 204 Done\r\nConnection: close\r\n\r\n")
				}).WithProfiles(mustProfiles(t, "{"+test.profile+"}"))
				call := object{"url": test.url}
				maps.Copy(call, test.call)
				wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, call)), http.StatusNoContent)
				want := slices.Clone(ours)
				for _, line := range test.want {
					if removed, ok := strings.CutPrefix(line, "-"); ok {
						want = slices.DeleteFunc(want, func(line string) bool { return line == removed })
					} else {
						want = append(want, line)
					}
				}
				byName := func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }
				slices.SortFunc(want, byName)
				if diff := cmp.Diff(want,
					headerLines(strings.Replace(<-heads, "idempotency-key", "Idempotency-Key", 1))); diff != "" {
					t.Errorf("headers (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestProfileHeadersStayWithTheirHost: what a profile adds is never sent to another host, nor sent again if that host
// redirects back, and the other host's own profile does not apply.
func TestProfileHeadersStayWithTheirHost(t *testing.T) {
	const anyPort, port80 = "a.example", "a.example:80"
	for name, test := range map[string]struct {
		pattern   string
		locations []string
		kept      bool
	}{
		"same_host":       {anyPort, []string{"/x"}, true},
		"same_host_twice": {anyPort, []string{"/1", "http://a.example:80/x"}, true},
		"upgrade":         {anyPort, []string{"https://a.example/x"}, true},
		"same_port":       {port80, []string{"/1", "http://a.example:80/x"}, true},
		"port_upgrade":    {port80, []string{"https://a.example/x"}, false},
		"port_in_detail":  {port80, []string{"/1", "https://a.example:443/x"}, false},
		"other_host":      {anyPort, []string{"http://b.example/x"}, false},
		"other_port":      {anyPort, []string{"http://a.example:8080/x"}, false},
		"sub_domain":      {anyPort, []string{"http://b.a.example/x"}, false},
		"back_again":      {anyPort, []string{"http://b.example/1", "http://a.example/x"}, false},
		"see_other":       {anyPort, []string{"http://b.example/x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			status := http.StatusTemporaryRedirect
			if name == "see_other" {
				status = http.StatusSeeOther
			}
			w := newNetwork(t, status, test.locations)
			w.client.WithProfiles(mustProfiles(t,
				`{"*":{"headers":{"X-Other":"1"}},"`+test.pattern+`":{"headers":{"x-tenant":"a","X-Api-Key":"$KEY"}}}`))
			wantAnswer(t, w.client.Do(t.Context(), mustEnvelope(t,
				object{"url": "http://a.example/0", "body": "x", "headers": object{"X-Mine": "1"}})), 200)
			all := append(w.plain.all(), w.secure.all()...)
			first, latest := all[0].header, all[len(all)-1].header
			if len(all) != len(test.locations)+1 || first.Get("X-Tenant") != "a" || first.Get("X-Api-Key") != "theirs" {
				t.Fatalf("%d requests, the first with %v", len(all), first)
			}
			for _, name := range []string{"X-Tenant", "X-Api-Key"} {
				if got := latest.Get(name) != ""; got != test.kept {
					t.Errorf("%s was sent behind the redirect: %v, want %v", name, got, test.kept)
				}
			}
			if latest.Get("X-Mine") == "" || latest.Get("X-Other") != "" {
				t.Errorf("behind the redirect: %v", latest)
			}
		})
	}
}

func TestProfileTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		url, timeout string
		want         time.Duration
	}{
		"longer":            {"http://slow.example", "", 200 * time.Second},
		"shorter":           {"http://fast.example", "", 2 * time.Second},
		"envelope_shorter":  {"http://slow.example", "150s", 150 * time.Second},
		"envelope_longer":   {"http://fast.example", "90s", 2 * time.Second},
		"profile_without":   {"http://other.example", "", 120 * time.Second},
		"without_a_profile": {"http://none.test", "", 120 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newPipedClient(t, 120*time.Second, hang).WithProfiles(
					mustProfiles(t, `{"slow.example":{"timeout":"200s"},"fast.example":{"timeout":"2s"},`+
						`"*.example":{"concurrency":1}}`))
				call := object{"url": test.url}
				if test.timeout != "" {
					call["timeout"] = test.timeout
				}
				o := client.Do(t.Context(), mustEnvelope(t, call))
				wantFailure(t, o, decision.FailureTimeout)
				if o.Took != test.want {
					t.Errorf("it took %v, want %v", o.Took, test.want)
				}
			})
		})
	}
}
