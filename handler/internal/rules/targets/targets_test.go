package targets_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
)

// canary is the value of a header, which no error may repeat.
const canary = "C4nary"

// certificateFile is base64 of a client certificate in PKCS#12.
const certificateFile = "../certificate/testdata/openssl1.pfx"

func getenv(name string) string {
	if name == "CERT" {
		content, _ := os.ReadFile(certificateFile)
		return base64.StdEncoding.EncodeToString(content)
	}
	return map[string]string{
		"KEY": "the key", "BROKEN": canary + "\n", "LONG": "longer-than-7", "BASIC": "Basic dTpwdw==",
	}[name]
}

func mustParse(tb testing.TB, content string) targets.Profiles {
	tb.Helper()
	profiles, err := targets.Parse([]byte(content), nil, getenv)
	if err != nil {
		tb.Fatal(err)
	}
	return profiles
}

func profileOf(tb testing.TB, profiles targets.Profiles, text string) targets.Profile {
	tb.Helper()
	target, err := envelope.ParseURL(text)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return profiles.For(target)
}

func TestMostSpecificPattern(t *testing.T) {
	profiles := mustParse(t, `{"*":{}, "*.example.com":{}, "*.b.example.com":{}, "a.example.com":{}, 
		"A.example.com.:8443":{}, "plain.example:80":{},
		"*.räksmörgås.se":{}, "10.1.2.3":{}, "2001:db8::1":{}, "[2001:DB8:0::2]:443":{}, "[::1]":{}}`)
	for target, want := range map[string]struct{ pattern, scope string }{
		"https://a.example.com/x":         {"a.example.com", "a.example.com"},
		"https://A.Example.COM./":         {"a.example.com", "a.example.com"},
		"https://a.example.com:8443":      {"A.example.com.:8443", "a.example.com:8443"},
		"https://a.example.com:08443":     {"A.example.com.:8443", "a.example.com:8443"},
		"http://a.example.com:8080":       {"a.example.com", "a.example.com"},
		"http://plain.example":            {"plain.example:80", "plain.example:80"},
		"http://plain.example:080/":       {"plain.example:80", "plain.example:80"},
		"https://plain.example":           {"*", "plain.example"},
		"https://x.example.com":           {"*.example.com", "x.example.com"},
		"https://x.y.example.com":         {"*.example.com", "x.y.example.com"},
		"https://x.b.example.com":         {"*.b.example.com", "x.b.example.com"},
		"https://b.example.com":           {"*.example.com", "b.example.com"},
		"https://example.com":             {"*", "example.com"},
		"https://notexample.com":          {"*", "notexample.com"},
		"https://x.RÄKSMÖRGÅS.se":         {"*.räksmörgås.se", "x.xn--rksmrgs-5wao1o.se"},
		"https://x.xn--rksmrgs-5wao1o.se": {"*.räksmörgås.se", "x.xn--rksmrgs-5wao1o.se"},
		"http://10.1.2.3":                 {"10.1.2.3", "10.1.2.3"},
		"http://[::ffff:10.1.2.3]":        {"10.1.2.3", "10.1.2.3"},
		"http://[2001:db8:0:0::1]:99":     {"2001:db8::1", "[2001:db8::1]"},
		"https://[2001:db8::2]":           {"[2001:DB8:0::2]:443", "[2001:db8::2]:443"},
		"http://[2001:db8::2]":            {"*", "[2001:db8::2]"},
		"http://[::1]:7071":               {"[::1]", "[::1]"},
	} {
		if p := profileOf(t, profiles, target); p.Pattern != want.pattern || p.Scope != want.scope {
			t.Errorf("%s: got the profile of %q with scope %q, want %q with %q", target, p.Pattern, p.Scope,
				want.pattern, want.scope)
		}
	}
}

// TestPatterns: all texts of a name are the same pattern.
func TestPatterns(t *testing.T) {
	profiles := mustParse(t, `{"*":{}, "*.Räksmörgås.se.":{}, "A.example.com.:08443":{}, "b.example":{}, "[::1]":{}}`)
	want := []string{"*", "*.xn--rksmrgs-5wao1o.se", "[::1]", "a.example.com:8443", "b.example"}
	if diff := cmp.Diff(want, profiles.Patterns()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDefaultProfile(t *testing.T) {
	want := targets.Profile{
		Scope:   "a.example",
		Breaker: targets.Breaker{Failures: 5, MinDelay: 5 * time.Second, MaxDelay: 15 * time.Minute},
	}
	for name, profiles := range map[string]targets.Profiles{
		"none":   {},
		"others": mustParse(t, `{"b.example":{"breaker":"off"}}`),
	} {
		if diff := cmp.Diff(want, profileOf(t, profiles, "https://a.example/")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMembers(t *testing.T) {
	own := retry.Policies{"patient": retry.Default()}
	rated := func(limit rate.Limit, burst int, text string) func(*targets.Profile) {
		return func(p *targets.Profile) { p.Rate, p.Burst, p.RateText = limit, burst, text }
	}
	for name, test := range map[string]struct {
		profile string
		set     func(*targets.Profile)
	}{
		"empty":           {`{}`, func(*targets.Profile) {}},
		"concurrency":     {`{"concurrency":2}`, func(p *targets.Profile) { p.Concurrency = 2 }},
		"rate":            {`{"rate":"50/s"}`, rated(50, 50, "50/s")},
		"rate_per_minute": {`{"rate":"90/m"}`, rated(1.5, 1, "90/m")},
		"rate_per_hour":   {`{"rate":"1/h"}`, rated(rate.Every(time.Hour), 1, "1/h")},
		"burst":           {`{"rate":{"limit":"50/s","burst":3}}`, rated(50, 3, "50/s")},
		"burst_first":     {`{"rate":{"burst":99,"limit":"1/s"}}`, rated(1, 99, "1/s")},
		"rate_object":     {`{"rate":{"limit":"2/s"}}`, rated(2, 2, "2/s")},
		"statuses": {`{"statuses":{"retry":[409,499,409],"reject":[404,503,302]}}`, func(p *targets.Profile) {
			p.Statuses = map[int]bool{409: true, 499: true, 404: false, 503: false, 302: false}
		}},
		"statuses_reject": {
			`{"statuses":{"reject":[999]}}`, func(p *targets.Profile) { p.Statuses = map[int]bool{999: false} },
		},
		"timeout":          {`{"timeout":"4m30s"}`, func(p *targets.Profile) { p.Timeout = 270 * time.Second }},
		"timeout_number":   {`{"timeout":1}`, func(p *targets.Profile) { p.Timeout = time.Second }},
		"breaker_off":      {`{"breaker":"off"}`, func(p *targets.Profile) { p.Breaker.Off = true }},
		"breaker_failures": {`{"breaker":{"failures":9}}`, func(p *targets.Profile) { p.Breaker.Failures = 9 }},
		"breaker_day":      {`{"breaker":{"maxDelay":"1d"}}`, func(p *targets.Profile) { p.Breaker.MaxDelay = 24 * time.Hour }},
		"breaker_delays": {`{"breaker":{"minDelay":"1m","maxDelay":"1m"}}`, func(p *targets.Profile) {
			p.Breaker.MinDelay, p.Breaker.MaxDelay = time.Minute, time.Minute
		}},
		"headers": {`{"headers":{"x-a":"1","X-B":["1","$KEY"],"Authorization":"$KEY"}}`, func(p *targets.Profile) {
			p.Headers = http.Header{"X-A": {"1"}, "X-B": {"1", "the key"}, "Authorization": {"the key"}}
			p.Spelling = map[string]string{"X-A": "x-a"}
			p.Secrets = []secret.Text{"the key", "key"}
		}},
		"secret_headers": {
			`{"headers":{"X-A":["1","$KEY"],"X-B":"$LONG","X-Key":"$KEY","Authorization":["$BASIC"]}}`,
			func(p *targets.Profile) {
				p.Headers = http.Header{
					"X-A": {"1", "the key"}, "X-B": {"longer-than-7"}, "X-Key": {"the key"},
					"Authorization": {"Basic dTpwdw=="},
				}
				p.Secrets = []secret.Text{
					"longer-than-7", "the key", "key", "Basic dTpwdw==", "dTpwdw==", "u:pw", "pw",
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := profileOf(t, targets.Profiles{}, "https://a.example")
			want.Pattern = "a.example"
			test.set(&want)
			if diff := cmp.Diff(want, profileOf(t, mustParse(t, `{"a.example":`+test.profile+`}`),
				"https://a.example")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for text, want := range map[string]string{
		`"patient"`: "exponential", `"fixed"`: "fixed",
		`{"schedule":["1s"]}`: "list",
	} {
		profiles, err := targets.Parse([]byte(`{"*":{"retry":`+text+`}}`), own, getenv)
		if err != nil {
			t.Fatal(err)
		}
		if p := profileOf(t, profiles, "https://a.example"); p.Retry == nil || p.Retry.Name != want {
			t.Errorf("%s: got %+v", text, p.Retry)
		}
	}
}

func TestLongestTimeout(t *testing.T) {
	profiles := mustParse(t, `{"a.example":{"timeout":"30s"},"*.example":{"timeout":"3m"},"*":{}}`)
	if d := profiles.LongestTimeout(); d != 3*time.Minute {
		t.Errorf("got %v", d)
	}
}

// oauth2 is a valid credential, and auth a file with one.
const oauth2 = `{"tokenUrl":"https://l.example/t","clientId":"c","clientSecret":"$KEY"}`

// moves returns a file with a host that has moved.
func moves(to string) string { return `{"a.example":{"to":` + to + `}}` }

func auth(value string) string { return `{"a.example":{"auth":` + value + `}}` }

// TestProblems: each error names the pattern and the member, and says what is wrong.
func TestProblems(t *testing.T) {
	const pattern = "not a pattern: "
	star := func(members string) string { return `{"*":{` + members + `}}` }
	for _, c := range []struct{ content, want string }{
		{`{"*":{},}`, "not JSON: line 1, column 8: "},
		{`[]`, "want an object, not an array"},
		{`{"*.a.example":{},"*.a.example":{}}`, "*.a.example: appears twice"},
		{`{"a.example":{},"A.example.":{}}`, `"A.example.": means the same as the pattern "a.example": remove one`},
		{`{"*.å.se":{},"*.xn--5ca.se":{}}`, `"*.xn--5ca.se": means the same as the pattern "*.å.se"`},
		{`{"a.example:80":{},"a.example:080":{}}`, `means the same`},
		{`{"[::1]":{},"::1":{}}`, `"::1": means the same as the pattern "[::1]"`},
		{`{"":{}}`, `"": ` + pattern},
		{`{"https://a.example":{}}`, `"https://a.example": ` + pattern},
		{`{"a.example/x":{}}`, pattern},
		{`{"a.example:0":{}}`, pattern},
		{`{"fe80::1%eth0":{}}`, pattern},
		{`{"10.0.0.0/8":{}}`, pattern},
		{`{"*.a.example:80":{}}`, pattern},
		{`{"a.*.example":{}}`, pattern},
		{`{"a\n.example":{}}`, `"a\n.example": ` + pattern},
		{`{"*":"off"}`, `"*": want an object, not a string`},
		{`{"a.example:80":{"auth":{"managedIdentity":"x"}}}`, `"a.example:80": auth: a credential is sent by https`},
		{
			`{"a.example":{"auth":{"managedIdentity":"x"},"headers":{"authorization":"$KEY"}}}`,
			`auth: takes the place of headers.Authorization: remove one`,
		},
		{
			star(`"concurency":2`),
			`"*": concurency: unknown member: the members are auth, breaker, ca, certificate, concurrency, headers, ` +
				`history, rate, retry, sign, statuses, timeout, to; did you mean concurrency?`,
		},
		{star(`"rate":"1/s","rate":"2/s"`), `"*": rate: appears twice`},
		{star(`"concurrency":0`), `"*": concurrency: want a whole number from 1 to 10000`},
		{star(`"concurrency":10001`), `"*": concurrency: want`},
		{star(`"rate":"0/s"`), `"*": rate: want 1 to 1000000 calls per second, minute or hour, such as "50/s"`},
		{star(`"rate":"5/d"`), `"*": rate: want`},
		{star(`"rate":{"burst":5}`), `"*": rate.limit: missing`},
		{star(`"rate":{"limit":"5/s","burst":0}`), `"*": rate.burst: want a whole number from 1 to 1000000`},
		{star(`"rate":{"limit":"5/s","brust":1}`), `"*": rate.brust: unknown member: the members are burst, limit`},
		{star(`"timeout":"999ms"`), `"*": timeout: want a duration from 1s to 4m30s`},
		{star(`"timeout":"271s"`), `"*": timeout: want a duration from 1s to 4m30s`},
		{star(`"timeout":null`), `"*": timeout: want a duration such as`},
		{star(`"retry":"often"`), `"*": retry: unknown policy "often": the policies are `},
		{star(`"retry":{"baseDelay":-1}`), `"*": retry.baseDelay: a duration cannot be negative`},
		{star(`"breaker":"on"`), `"*": breaker: want "off" or an object with its parameters`},
		{star(`"breaker":false`), `"*": breaker: want an object, not a boolean`},
		{star(`"breaker":{"failures":0}`), `"*": breaker.failures: want a whole number from 1 to 1000`},
		{star(`"breaker":{"minDelay":"16m"}`), `"*": breaker: minDelay, 16m0s, is longer than maxDelay, 15m0s`},
		{star(`"breaker":{"minDelay":"1ms"}`), `"*": breaker.minDelay: want a duration from 1s to 24h0m0s`},
		{star(`"statuses":[409]`), `"*": statuses: want an object, not an array`},
		{star(`"statuses":{}`), `"*": statuses: want a list retry or reject, or both`},
		{star(`"statuses":{"retry":[]}`), `"*": statuses.retry: want at least one status`},
		{star(`"statuses":{"retry":[409],"reject":[]}`), `"*": statuses.reject: want at least one status`},
		{star(`"statuses":{"retry":[409,99]}`), `"*": statuses.retry[1]: want a whole number from 100 to 999`},
		{star(`"statuses":{"reject":[1000]}`), `"*": statuses.reject[0]: want a whole number`},
		{star(`"statuses":{"reject":[299]}`), `"*": statuses.reject[0]: 2xx means delivered`},
		{star(`"statuses":{"retry":[404,409],"reject":[410,409]}`), `"*": statuses.reject[1]: 409 is in both lists`},
		{star(`"statuses":{"rejct":[404]}`), `"*": statuses.rejct: unknown member: the members are reject, retry`},
		{`{"*":{"certificate":"$CERT"}}`, `"*": certificate: a certificate is for the hosts that a pattern names`},
		{`{"a.example:80":{"certificate":"$CERT"}}`, `"a.example:80": certificate: a certificate is presented by`},
		{`{"a.example":{"certificate":"` + canary + `"}}`, `"a.example": certificate: want "$NAME", and the text in`},
		{`{"a.example":{"certificate":"$UNSET"}}`, `certificate: the environment variable UNSET is not set`},
		{`{"a.example":{"certificate":"$KEY"}}`, `certificate: the environment variable KEY is neither PEM nor base64`},
		{`{"a.example":{"ca":"$KEY"}}`, `"a.example": ca: the environment variable KEY has no certificate: want PEM`},
		{star(`"to":"https://b.example"`), `"*": to: is for one host: * and *.suffix name many`},
		{`{"*.a.example":{"to":"https://b.example"}}`, `"*.a.example": to: is for one host`},
		{moves(`"https://b.example","timeout":"1s"`), `"a.example": to: takes the place of the other members`},
		{moves(`"b.example"`), `"a.example": to: want an absolute http or https URL`},
		{moves(`"https://b.example/x"`), `"a.example": to: want a scheme, a host and perhaps a port`},
		{moves(`"https://b.example?"`), `"a.example": to: want a scheme, a host`},
		{moves(`"https://u:` + canary + `@b.example"`), `"a.example": to: want a scheme, a host`},
		{moves(`"http://b.example"`), `"a.example": to: leads from https to http: want https, or the port`},
		{`{"a.example:443":{"to":"http://b.example"}}`, `"a.example:443": to: leads from https to http`},
		{moves(`"https://A.example.:8443"`), `"a.example": to: leads to itself`},
		{
			`{"a.example":{"to":"https://b.example"},"b.example:443":{"to":"https://c.example"}}`,
			`"a.example": to: b.example is moved itself, by the pattern "b.example:443": name its new host`,
		},
		{star(`"headers":{"X-Api-Key":"` + canary + `"}`), `"*": headers.X-Api-Key: may be secret`},
		{star(`"headers":{"authorization":["$KEY","Bearer $KEY"]}`), `"*": headers.authorization: may be secret`},
		{star(`"headers":{"X-A":"$KEY ` + canary + `"}`), `"*": headers.X-A: want "$NAME": `},
		{star(`"headers":{"X-A":"$UNSET"}`), `"*": headers.X-A: the environment variable UNSET is not set: `},
		{star(`"headers":{"X-A":"$BROKEN"}`), `"*": headers.X-A: the environment variable BROKEN holds a line break`},
		{star(`"headers":{"X-A":"` + canary + `\r\nX-B: 1"}`), `"*": headers.X-A: holds a line break`},
		{star(`"headers":{"X-A":"` + canary + `\ud800"}`), `"*": headers.X-A: holds half of a surrogate pair`},
		{star(`"headers":{"X-A":1}`), `"*": headers.X-A: want a string or an array of strings`},
		{star(`"headers":{"X-A":[]}`), `"*": headers.X-A: want a string or an array of strings`},
		{star(`"headers":{"X A":"1"}`), `"*": headers.X…: not a header name`},
		{star(`"headers":{"X-A: ` + canary + `":"1"}`), `"*": headers.X-A…: not a header name`},
		{star(`"headers":{"X-A":"1","x-a":"2"}`), `"*": headers.x-a: appears twice`},
		{star(`"headers":{"host":"b.example"}`), `"*": headers.host: cannot be set here: it follows from the call`},
		{star(`"headers":{"TE":"x"}`), `"*": headers.TE: cannot be set here`},
		{star(`"headers":{"Content-Length":"1"}`), `"*": headers.Content-Length: cannot be set here`},
		{star(`"headers":{"x-async-caller-attempt":"1"}`), `"*": headers.x-async-caller-attempt: cannot be set here: `},
		{star(`"headers":{"Idempotency-Key":"1"}`), `"*": headers.Idempotency-Key: cannot be set here: `},
		{star(`"auth":{"managedIdentity":"x"}`), `"*": auth: a credential is for the hosts that a pattern`},
		{auth(`{}`), `auth: want managedIdentity or oauth2`},
		{auth(`{"managedIdentity":"x","oauth2":` + oauth2 + `}`), `auth: want managedIdentity or oauth2`},
		{auth(`"x"`), `auth: want an object, not a string`},
		{auth(`{"certificate":"x"}`), `auth.certificate: unknown member: the members are clientId, `},
		{auth(`{"sign":"x"}`), `auth.sign: unknown member: `},
		{auth(`{"managedIdentity":""}`), `auth.managedIdentity: want 1 to 500 bytes`},
		{auth(`{"managedIdentity":"` + strings.Repeat("x", 501) + `"}`), `auth.managedIdentity: want 1 to 500`},
		{auth(`{"managedIdentity":"x","clientId":"$UNSET"}`), `auth.clientId: the environment variable UNSET is`},
		{auth(`{"managedIdentity":"x","override":"no"}`), `auth.override: want true or false`},
		{auth(`{"oauth2":` + oauth2 + `,"clientId":"x"}`), `auth.clientId: is that of a managed identity`},
		{auth(`{"oauth2":{"tokenUrl":"https://l.example","clientId":"x"}}`), `auth.oauth2: want tokenUrl`},
		{auth(`{"oauth2":{"clientSecret":"` + canary + `"}}`), `auth.oauth2.clientSecret: want "$NAME", and`},
		{auth(`{"oauth2":{"style":"both"}}`), `auth.oauth2.style: want "header" or "body"`},
		{auth(`{"oauth2":{"scopes":"x"}}`), `auth.oauth2.scopes: unknown member: `},
		{auth(`{"oauth2":{"parameters":{"grant_type":"password"}}}`), `parameters.grant_type: the grant and`},
		{auth(`{"oauth2":{"parameters":{"CLIENT_SECRET":"$KEY"}}}`), `auth.oauth2.parameters.CLIENT_SECRET: the grant`},
		{auth(`{"oauth2":{"parameters":{"scope":"x"}}}`), `parameters.scope: the grant`},
		{auth(`{"oauth2":{"parameters":{"a b":"x"}}}`), `want a name of letters, digits, `},
		{auth(`{"oauth2":{"parameters":"resource=x"}}`), `auth.oauth2.parameters: `},
		{auth(`{"oauth2":{"parameters":{"resource":1}}}`), `auth.oauth2.parameters.resource: `},
		{auth(`{"oauth2":{"parameters":{"resource":""}}}`), `parameters.resource: want 1 to 500`},
		{auth(`{"oauth2":{"parameters":{"resource":"a\nb"}}}`), `resource: want 1 to 500 bytes`},
		{auth(`{"oauth2":{"parameters":{"password":"` + canary + `"}}}`), `parameters.password: may be secret`},
		{auth(`{"oauth2":{"tokenUrl":"http://l.example"}}`), `auth.oauth2.tokenUrl: want an https URL`},
		{auth(`{"oauth2":{"tokenUrl":"https://l.example/?x=` + canary + `"}}`), `tokenUrl: want an https URL`},
		{auth(`{"oauth2":{"tokenUrl":"https://u:` + canary + `@l.example"}}`), `tokenUrl: want an https URL`},
	} {
		_, err := targets.Parse([]byte(c.content), nil, getenv)
		switch {
		case err == nil:
			t.Errorf("%s: no problem was found", c.content)
		case !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: got %v\nwant %s", c.content, err, c.want)
		case strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: the error has more than one line, or a header's value: %v", c.content, err)
		}
	}
}

// TestAllProblems: one line for each, down to the members of members.
func TestAllProblems(t *testing.T) {
	_, err := targets.Parse([]byte(`{"a/b":{"rate":{"limit":1,"burst":-1}},
		"*.b.example":{"headers":{"Host":"x","X-A":["$A1","$B1"]},"timeout":0},"*":{"statuses":{"retry":[1,2]}}}`),
		nil, getenv)
	want := []string{
		`"a/b": not a pattern`, `"a/b": rate.limit: `, `"a/b": rate.burst: `, `"*.b.example": headers.Host: `,
		`"*.b.example": headers.X-A: the environment variable A1 `,
		`"*.b.example": headers.X-A: the environment variable B1 `, `"*.b.example": timeout: `,
		`"*": statuses.retry[0]: `, `"*": statuses.retry[1]: `,
	}
	if err == nil {
		t.Fatal("no problem was found")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%v", len(lines), len(want), err)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d is %q, want %q", i+1, line, want[i])
		}
	}
}

// TestNoEnvironment: a tool without the handler's environment can read the file.
func TestNoEnvironment(t *testing.T) {
	profiles, err := targets.Parse([]byte(`{"*":{"headers":{"Authorization":"$UNSET"}}}`), nil, nil)
	if p := profileOf(t, profiles, "https://a.example"); err != nil || len(p.Headers) != 1 {
		t.Errorf("got %v, %v", p.Headers, err)
	}
}

// TestHost: one target has one spelling, which stays as it is when it is read again.
func TestHost(t *testing.T) {
	label := strings.Repeat("a", 60) + "."
	long := label + label + strings.Repeat("b", 60) + ".example"
	for text, want := range map[string]string{
		"https://h.example": "h.example", "https://H.Example./x": "h.example", "http://h.example.:80": "h.example",
		"https://h.example:443": "h.example", "https://h.example.:0443": "h.example", "https://h.example:": "h.example",
		"https://h.example:80": "h.example:80", "http://h.example:443": "h.example:443",
		"http://H.EXAMPLE.:08443": "h.example:8443", "https://bücher.example": "xn--bcher-kva.example",
		"https://B%C3%BCCHER.example.:444": "xn--bcher-kva.example:444",
		"https://xn--BCHER-kva.example":    "xn--bcher-kva.example",
		"https://10.1.2.3:443":             "10.1.2.3", "http://[2001:DB8:0::1]": "[2001:db8::1]",
		"http://[2001:db8::0:1]:7071": "[2001:db8::1]:7071", "http://[fe80::1%25eth0]:80": "[fe80::1]",
		"http://[::ffff:10.1.2.3]:81": "10.1.2.3:81", "https://a-": "a-", "http://h.example.:8443?:1": "h.example:8443",
		"https://" + long: long[:121], "https://" + long + ":444": long[:121] + ":444",
		"https://" + strings.Repeat("c.1.", 40) + "x:444": strings.Repeat("c.1.", 40)[:121] + ":444",
	} {
		target, err := envelope.ParseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := targets.Host(target); got != want || targets.HostOf(got) != want {
			t.Errorf("%s: got %s, and then %s, want %s", text, got, targets.HostOf(got), want)
		}
	}
	for text, want := range map[string]string{
		"": "", "H.example.:0443": "h.example:443", "::1": "[::1]", "[0::1]": "[::1]", "[::1]:80": "[::1]:80",
		"::ffff:10.1.2.3": "10.1.2.3", "bücher.example": "xn--bcher-kva.example", "no host/": "no host/",
		"h.example:http": "h.example:http", "A..": "a..",
	} {
		if got := targets.HostOf(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	if got := targets.HostOf("h:" + strings.Repeat("9", 1000)); len(got) > 128 {
		t.Errorf("%d bytes", len(got))
	}
	for _, same := range [][2]string{ // for breakers and shares, the scheme does not matter
		{"https://H.Example./", "https://h.example:443"},
		{"http://h.example.:0443/", "https://h.example"},
		{"http://[::ffff:10.1.2.3]/", "http://10.1.2.3:80"},
	} {
		first, err := envelope.ParseURL(same[0])
		second, otherErr := envelope.ParseURL(same[1])
		if err != nil || otherErr != nil || targets.Address(first) != targets.Address(second) {
			t.Errorf("%s and %s are two targets, %v, %v", same[0], same[1], err, otherErr)
		}
	}
	host := strings.Repeat("a.", 20) + "example"
	if unsafe.StringData(targets.HostOf(host)) == unsafe.StringData(host) {
		t.Error("shares the memory of a message")
	}
}

func TestBounds(t *testing.T) {
	var entries []string
	for i := range 1001 {
		entries = append(entries, fmt.Sprintf(`"h%d.example":{}`, i))
	}
	file := func(n int) []byte { return []byte("{" + strings.Join(entries[:n], ",") + "}") }
	if _, err := targets.Parse(file(1000), nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := targets.Parse(file(1001), nil, nil); err == nil ||
		err.Error() != "has 1001 entries: at most 1000 are allowed" {
		t.Errorf("got %v", err)
	}
	if _, err := targets.Parse(append([]byte("{}"), make([]byte, 1<<20)...), nil, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "has 1048578 bytes") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"*":{"concurrency":2,"rate":"1/s","timeout":"30s","breaker":{"failures":3,"minDelay":1,"maxDelay":"1m"}}}`,
		"https://a.example:8443")
	f.Add(`{"a.example:080":{"rate":{"limit":"90/m","burst":2},"retry":"fixed"},"*.example":{"breaker":"off"}}`,
		"http://A.example.")
	f.Add(`{"a.example":{"auth":{"managedIdentity":"api://x","clientId":"$KEY","override":false}},"*.b.example":`+
		`{"auth":{"oauth2":`+oauth2+`}}}`, "https://a.example")
	f.Add(`{"[::1]:7071":{"headers":{"X-a":["$KEY","1"],"Authorization":"$KEY"}},"::1":{}}`, "http://[::1]:7071")
	f.Fuzz(func(t *testing.T, content, url string) {
		profiles, err := targets.Parse([]byte(content), nil, getenv)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if line == "" || len(line) > 2000 {
					t.Errorf("an error of %d bytes: %q", len(line), line)
				}
			}
			return
		}
		target, err := envelope.ParseURL(url)
		if err != nil {
			return
		}
		p := profiles.For(target)
		burst, b := p.Burst, p.Breaker
		switch {
		case p.Scope != strings.ToLower(p.Scope) || !strings.Contains(targets.Address(target), p.Scope):
			t.Errorf("scope %q of %q", p.Scope, url)
		case p.Concurrency < 0 || p.Concurrency > 10_000 || p.Rate < 0 || (p.Rate > 0) != (burst > 0):
			t.Errorf("limits of %+v", p)
		case p.Timeout != 0 && p.Timeout < targets.MinTimeout || p.Timeout > targets.MaxTimeout ||
			p.Timeout > profiles.LongestTimeout():
			t.Errorf("timeout %v", p.Timeout)
		case b.Failures < 1 || b.MinDelay < time.Second || b.MaxDelay < b.MinDelay:
			t.Errorf("breaker %+v", b)
		}
		for name, values := range p.Headers {
			if len(values) == 0 || name != http.CanonicalHeaderKey(name) ||
				!strings.EqualFold(p.Spelling.Of(name), name) {
				t.Errorf("header %s: %q", name, values)
			}
		}
	})
}

// TestMoved: scheme, host and port of the URL are the new ones, and a Host header for the old host goes.
func TestMoved(t *testing.T) {
	profiles := mustParse(t, `{"a.example":{"to":"https://b.example:8443"},"a.example:80":{"to":"http://c.example/"}}`)
	for _, c := range []struct{ url, host, want, wantHost, refusal string }{
		{"https://u:p@A.example./x%2Fy?q=1", "", "https://u:p@b.example:8443/x%2Fy?q=1", "", ""},
		{"https://a.example", "A.EXAMPLE:443", "https://b.example:8443", "", ""},
		{"https://a.example", "front.example", "https://b.example:8443", "front.example", ""},
		{"https://a.example", "a.example:8443", "https://b.example:8443", "a.example:8443", ""},
		{"http://a.example/x", "a.example", "http://c.example/x", "", ""},
		{"http://a.example:8080/x", "", "https://b.example:8443/x", "", ""},
		{"https://a.example:80/x", "", "http://c.example/x", "", targets.DowngradeRefusal},
		{"https://b.example:8443/x", "", "", "", ""},
		{"https://x.a.example/x", "", "", "", ""},
	} {
		target, err := envelope.ParseURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		moved, refusal := profiles.Moved(envelope.Call{Target: target, Host: c.host, Method: "PUT"})
		if moved == nil {
			moved = &envelope.Call{Target: &url.URL{}}
		}
		isRight := moved.Target.String() == c.want && moved.Host == c.wantHost && refusal == c.refusal
		if !isRight || target.String() != c.url {
			t.Errorf("%s, Host %q: got %v, Host %q, %q; want %s, Host %q", c.url, c.host, moved.Target, moved.Host,
				refusal, c.want, c.wantHost)
		}
	}
}

// TestCertificateOf: a certificate is that of the host's profile, and only for calls by https to which a profile adds
// something.
func TestCertificateOf(t *testing.T) {
	profiles := mustParse(t, `{"a.example":{"certificate":"$CERT"},"*.a.example":{"certificate":"$CERT"}}`)
	for _, c := range []struct {
		url, method, host string
		want              bool
	}{
		{"https://a.example/x", "GET", "", true},
		{"https://b.a.example:8443/x", "POST", "", true},
		{"http://a.example/x", "GET", "", false},
		{"https://a.example/x", "TRACE", "", false},
		{"https://a.example/x", "GET", "b.example", false},
		{"https://b.example/x", "GET", "", false},
	} {
		target, err := envelope.ParseURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		call := &envelope.Call{Target: target, Method: c.method, Host: c.host}
		got := profiles.For(target).CertificateOf(call)
		if (got != nil) != c.want || c.want && (got.Name != "$CERT" || got.Pair() == nil) {
			t.Errorf("%+v: got %+v", c, got)
		}
		if key := profiles.IdentityFor(target, call).Key(); (key != "") != c.want {
			t.Errorf("%+v: the key of its connections is %q", c, key)
		}
	}
	unresolved, err := targets.Parse([]byte(`{"a.example":{"certificate":"$CERT","ca":"$CA"}}`), nil, nil)
	if err != nil || unresolved.Certificates()["a.example"].Name != "$CERT" {
		t.Errorf("without an environment: got %v, %v", unresolved, err)
	}
}
