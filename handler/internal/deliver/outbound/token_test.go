package outbound_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/text/encoding/unicode"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
)

// tokens has a token for each client, which is named after it. Replaced tokens end in 2.
type tokens struct{ problem, problemOfReplace error }

func (s tokens) Token(_ context.Context, c targets.Credential) (secret.Text, error) {
	return secret.Text("token-" + c.ClientID), s.problem
}

func (s tokens) Replace(_ context.Context, _ targets.Credential, refused secret.Text) (secret.Text, error) {
	return refused + "2", s.problemOfReplace
}

// newSecureNetwork returns a client and a server that has all names below example, by https and http.
func newSecureNetwork(t *testing.T, answer http.HandlerFunc) (*outbound.Client, *testServer) {
	t.Helper()
	authority := newAuthority(t)
	server, plain := newUnstartedServer(t, answer), newTestServer(t, answer)
	server.TLS = serverConfig(authority.server(t, "*.example", time.Now().Add(time.Hour)))
	server.StartTLS()
	client := newClient(t, longTimeout)
	client.Trust(authority.pool())
	client.ConnectBy(func(ctx context.Context, network, address string) (net.Conn, error) {
		to := server
		if strings.HasSuffix(address, ":80") {
			to = plain
		}
		return new(net.Dialer).DialContext(ctx, network, to.Listener.Addr().String())
	})
	return client, server
}

const (
	authA  = `"auth":{"oauth2":{"tokenUrl":"https://l.example","clientId":"a","clientSecret":"$S"}%s}`
	authB  = `"b.example":{"auth":{"managedIdentity":"api://b","clientId":"b"}}`
	keeps  = `,"override":false`
	tokenA = "Bearer token-a"
)

func withAuth(more string) string { return fmt.Sprintf(`"*.example":{`+authA+`}`, more) }

// authorizations returns the values of the header, in any spelling.
func authorizations(s seen) (values []string) {
	for name, all := range s.header {
		if strings.EqualFold(name, "Authorization") {
			values = append(values, all...)
		}
	}
	return values
}

// TestCredential: the credential replaces the sender's Authorization, unless that is kept, and is only in calls that
// certainly go to the target and do not return it.
func TestCredential(t *testing.T) {
	const target = "https://a.example/0"
	mine := object{"authorization": "mine"}
	for name, test := range map[string]struct {
		profile, url string
		call         object
		want         []string
	}{
		"user_info":         {withAuth(""), "https://u:p@a.example", nil, []string{tokenA}},
		"keeps_none":        {withAuth(keeps), target, nil, []string{tokenA}},
		"keeps_user_info":   {withAuth(keeps), "https://u:p@a.example", nil, []string{"Basic dTpw"}},
		"replaced":          {withAuth(""), target, object{"headers": mine}, []string{tokenA}},
		"kept":              {withAuth(keeps), target, object{"headers": mine}, []string{"mine"}},
		"unknown_method":    {withAuth(""), target, object{"method": "PURGE"}, nil},
		"other_host_header": {withAuth(""), target, object{"headers": object{"Host": "b.example"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := newSecureNetwork(t, nil)
			client.WithProfiles(mustProfiles(t, "{"+test.profile+"}")).WithTokens(tokens{})
			call := object{"url": test.url, "method": "PUT"}
			maps.Copy(call, test.call)
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, call)), 200)
			if got := authorizations(server.one(t)); !slices.Equal(got, test.want) {
				t.Errorf("Authorization %q, want %q", got, test.want)
			}
		})
	}
}

// TestCredentialBehindRedirects: behind a redirect to another host or port the call has the credential of that host, or
// none.
func TestCredentialBehindRedirects(t *testing.T) {
	onlyA := fmt.Sprintf(`"a.example":{`+authA+`}`, "")
	onlyPort := fmt.Sprintf(`"a.example:443":{`+authA+`}`, "")
	for name, test := range map[string]struct{ profiles, location, want string }{
		"same_host":        {onlyA, "/x", tokenA},
		"its_own":          {onlyA + "," + authB, "https://b.example/x", "Bearer token-b"},
		"other_port":       {onlyPort, "https://a.example:8443/x", ""},
		"user_info":        {onlyA + "," + authB, "https://u:p@b.example/x", "Bearer token-b"},
		"to_one_from_none": {authB, "https://b.example/x", "Bearer token-b"},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := newSecureNetwork(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/0" {
					http.Redirect(w, r, test.location, http.StatusTemporaryRedirect)
				}
			})
			client.WithProfiles(mustProfiles(t, "{"+test.profiles+"}")).WithTokens(tokens{})
			call := object{"url": "https://a.example/0", "body": "x", "headers": object{"Authorization": "mine"}}
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, call)), 200)
			all := server.all()
			got := strings.Join(authorizations(all[len(all)-1]), ", ")
			if len(all) != 2 || got != test.want {
				t.Errorf("%d requests, Authorization %q, want %q", len(all), got, test.want)
			}
		})
	}
	t.Run("plain", func(t *testing.T) {
		client, server := newSecureNetwork(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://b.example/x", http.StatusTemporaryRedirect)
		})
		client.WithProfiles(mustProfiles(t, "{"+authB+"}")).WithTokens(tokens{})
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": "http://c.example/0"}))
		wantFailure(t, o, decision.FailureTargetRefused)
		if o.Detail != "behind a redirect: "+targets.PlainRefusal || len(server.all()) > 0 {
			t.Errorf("detail %q", o.Detail)
		}
	})
}

// coded returns a text in a content coding.
func coded(tb testing.TB, coding, text string) string {
	tb.Helper()
	var b bytes.Buffer
	w := map[string]io.WriteCloser{"gzip": gzip.NewWriter(&b), "deflate": zlib.NewWriter(&b)}[coding]
	if raw, err := flate.NewWriter(&b, 1); coding == "raw" && err == nil {
		w = raw
	}
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// TestAnswerRepeatsSecrets: nothing of the secrets of a call is kept of an answer that repeats them, however the answer
// is coded or spelled.
func TestAnswerRepeatsSecrets(t *testing.T) {
	const (
		oauth   = `"auth":{"oauth2":{"tokenUrl":"https://l.example","clientId":"a/b+c","clientSecret":"$S"}}`
		token   = "token-a/b+c"
		headers = `"headers":{"X-Key":"$LATIN","Authorization":"$BASIC","X-Partner":"$PARTNER"}`
		sign    = `"sign":["$NEW","$OLD"]`
	)
	values := map[string]string{
		"S": "s", "LATIN": "clé-d'accès", "BASIC": "Basic dTpwYXNzd29yZA==", "PARTNER": "partner-4711",
		"NEW": "whsec_" + strings.Repeat("a/b+", 8), "OLD": "whsec_" + strings.Repeat("c/d+", 8),
	}
	inUTF16 := func(text string) string {
		encoded, _ := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(text)
		return encoded
	}
	long := strings.Repeat("0123456789abcdef", 4<<10-1) // 16 bytes are left
	kind := func(value string) http.Header { return http.Header{"Content-Type": {"text/plain; charset=" + value}} }
	coding := func(value string) http.Header { return http.Header{"Content-Encoding": {value}} }
	both := kind("utf-16")
	both.Set("Content-Encoding", "gzip")
	for name, test := range map[string]struct {
		profile string
		header  http.Header
		body    string
		want    string
	}{
		"plain":            {oauth, nil, "Bearer " + token + " is bad", "Bearer *** is bad"},
		"json":             {oauth, nil, `{"got":"token-a\/b\u002bc"}`, `{"got":"***"}`},
		"gzip":             {oauth, coding("X-GZip"), coded(t, "gzip", "<"+token+">"), "<***>"},
		"not_gzip":         {oauth, coding("gzip"), "<" + token + ">", "<***>"},
		"brotli":           {oauth, coding("br"), "\x8b\x05\xff" + token, ""},
		"utf16":            {oauth, kind("utf-16"), inUTF16("é" + token + "!"), "é***!"},
		"not_utf16":        {oauth, kind("utf-16be"), "12" + token + "3", "\u3132\u2a2a\u2a33"},
		"ebcdic":           {oauth, kind("IBM037"), "\xa3\x96\x92\x85\x95\x60\x81\x61\x82\x4e\x83", "***"},
		"utf16_in_gzip":    {oauth, both, coded(t, "gzip", inUTF16(token)), "***"},
		"charset_is_token": {oauth, kind(token), token, "***"},
		"at_the_cut":       {oauth, nil, long + "12345678token-a/b+c", long + "12345678"},
		"behind_the_cut":   {oauth, nil, long + "token-a/b+c" + long, long + "***01234"},
		"gzip_at_the_cut":  {oauth, coding("gzip"), coded(t, "gzip", long+"12345678token-a/b+c"), long + "12345678"},
		"utf16_at_the_cut": {oauth, kind("utf-16"), inUTF16(long[:32<<10-8] + "token-a/b+c"), long[:32<<10-8]},
		"cut_gzip":         {oauth, coding("gzip"), coded(t, "gzip", "the token-a/b+c is")[:24], "the "},
		"signing_key": {
			sign, nil, strings.Repeat("c\\/d+", 8) + " whsec_" + strings.Repeat("a/b+", 8), "*** whsec_***",
		},
		"signing_key_gzip": {sign, both, coded(t, "gzip", inUTF16(strings.Repeat("a/b+", 8))), "***"},
		"header_value":     {headers, nil, "clé-d'accès, partner-4711", "***, ***"},
		"latin1":           {headers, kind("iso-8859-1"), "cl\xe9-d'acc\xe8s", "***"},
		"basic":            {headers, nil, "Basic dTpwYXNzd29yZA== dTpwYXNzd29yZA%3D%3D u:password", "*** *** ***"},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := newSecureNetwork(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				maps.Copy(w.Header(), test.header)
				w.Header().Set("X-Got", r.Header.Get("Authorization")+" token-a%2Fb%2bc")
				w.WriteHeader(map[string]int{"/200": 200, "/422": 422}[r.URL.Path])
				_, _ = io.WriteString(w, test.body)
			})
			profiles, err := targets.Parse([]byte(`{"*.example":{`+test.profile+`}}`), nil,
				func(name string) string { return values[name] })
			if err != nil {
				t.Fatal(err)
			}
			client.WithProfiles(profiles).WithTokens(tokens{})
			for _, path := range []string{"/200", "/422"} {
				call := object{"url": "https://a.example" + path, "headers": object{"accept-encoding": "gzip"}}
				o := client.Do(t.Context(), mustEnvelope(t, call, reported))
				if string(o.Body) != test.want || o.Header.Get("Content-Encoding") != "" {
					t.Errorf("%s: got %.99q of %d bytes, want %.99q", path, o.Body, len(o.Body), test.want)
				}
				got := o.Header.Get("X-Got")
				if test.profile == oauth && got != "Bearer *** ***" || strings.Contains(got, "dTpw") {
					t.Errorf("the header is %q", got)
				}
				excerpt := o.Answer().Excerpt()
				if strings.Contains(excerpt.Text+excerpt.MediaType, "token") {
					t.Errorf("excerpt %+v", excerpt)
				}
			}
			for _, request := range server.all() {
				if coding := request.header["Accept-Encoding"]; len(coding) != 1 || coding[0] != "identity" {
					t.Errorf("asked for %q", coding)
				}
			}
		})
	}
}

// TestAnswerRepeatsSecretsOfRedirects: an answer behind a redirect, or after a 401, may repeat the secrets of all
// requests before it.
func TestAnswerRepeatsSecretsOfRedirects(t *testing.T) {
	client, server := newSecureNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") == tokenA:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/0":
			http.Redirect(w, r, "https://b.example/1", http.StatusTemporaryRedirect)
		case r.URL.Path == "/1":
			http.Redirect(w, r, "https://c.example/2", http.StatusTemporaryRedirect)
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "token-a, token-a2, token-b, theirs")
		}
	})
	profileA := fmt.Sprintf(`"a.example":{`+authA+`,"headers":{"X-Key":"$K"}}`, "")
	client.WithProfiles(mustProfiles(t, "{"+profileA+","+authB+"}"))
	client.WithTokens(tokens{})
	call := object{"url": "https://a.example/0", "headers": object{"accept-Encoding": "gzip"}}
	o := client.Do(t.Context(), mustEnvelope(t, call))
	if string(o.Body) != "***, ***, ***, ***" {
		t.Errorf("got %q", o.Body)
	}
	for _, request := range server.all() {
		if coding := request.header["Accept-Encoding"]; len(coding) != 1 || coding[0] != "identity" {
			t.Errorf("%s: asked for %q", request.uri, coding)
		}
	}
}

// TestSignalOfACodedAnswer: a signal counts wherever it is in a coded answer, also behind what is kept of it.
func TestSignalOfACodedAnswer(t *testing.T) {
	body := `{"Type":"x","more":"` + strings.Repeat("x", 200<<10) + `","IsRetryMeaningful":false}`
	server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, coded(t, "gzip", body))
	})
	if o := call(t, server.URL); o.Signal.IsRetryMeaningful == nil || *o.Signal.IsRetryMeaningful {
		t.Errorf("the signal is %+v", o.Signal)
	}
}

// TestNoToken: a call whose token cannot be had is not made, and fails temporarily.
func TestNoToken(t *testing.T) {
	client, server := newSecureNetwork(t, nil)
	away := &outbound.NoTokenError{Cause: "no token: status 500"}
	client.WithProfiles(mustProfiles(t, "{"+withAuth("")+"}")).WithTokens(tokens{problem: away})
	o := client.Do(t.Context(), mustEnvelope(t, object{"url": "https://a.example"}))
	wantFailure(t, o, decision.FailureAuth)
	if o.Detail != away.Cause || len(server.all()) > 0 {
		t.Errorf("detail %q", o.Detail)
	}
	client.WithTokens(tokens{})
	o = client.Do(t.Context(), mustEnvelope(t, object{"url": "http://a.example"}))
	wantFailure(t, o, decision.FailureTargetRefused)
}

// TestRefusedToken: after a 401 the attempt is made again, once, with another token and the same body.
func TestRefusedToken(t *testing.T) {
	for name, test := range map[string]struct {
		profiles string
		tokens   tokens
		accepted string // the token that the target accepts
		want     int    // the status, or 0
		calls    int
	}{
		"again":     {withAuth(""), tokens{}, "token-a2", 200, 2},
		"again_401": {withAuth(""), tokens{}, "other", 401, 2},
		"kept_by_mi": {
			`"a.example":{"auth":{"managedIdentity":"api://a","clientId":"a"}}`, tokens{}, "token-a2", 401, 1,
		},
		"no_new_token": {withAuth(""), tokens{problemOfReplace: &outbound.NoTokenError{Cause: "x"}}, "other", 0, 1},
		"no_token":     {`"b.example":{}`, tokens{}, "other", 401, 1},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := newSecureNetwork(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+test.accepted {
					w.WriteHeader(http.StatusUnauthorized)
				}
			})
			client.WithProfiles(mustProfiles(t, "{"+test.profiles+"}")).WithTokens(test.tokens)
			o := client.Do(t.Context(), mustEnvelope(t, object{"url": "https://a.example", "body": "the body"}))
			if test.want == 0 {
				wantFailure(t, o, decision.FailureAuth)
			} else {
				wantAnswer(t, o, test.want)
			}
			all := server.all()
			if len(all) != test.calls {
				t.Fatalf("%d calls, want %d", len(all), test.calls)
			}
			for _, call := range all {
				if string(call.body) != "the body" || call.header.Get("X-Async-Caller-Attempt") != "1" {
					t.Errorf("%v with %q", call.header, call.body)
				}
			}
		})
	}
}

// TestTokenThatIsTooNew: a token that a target refuses before it may be replaced is no reason to give up, once. Only
// the message knows that the attempt before it has ended in the same way.
func TestTokenThatIsTooNew(t *testing.T) {
	const end = `"CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IGEuZXhhbXBsZQ0KDQo="}}`
	for name, content := range map[string]string{
		"native": `{"asyncCaller":1,"requestId":"r","call":{"url":"https://a.example"}}`,
		"nexus":  `{"Organization":"o","Environment":"e","RawRequest":{"Id":"r","CallOutUriScheme":"https",` + end,
	} {
		t.Run(name, func(t *testing.T) {
			status := http.StatusUnauthorized
			client, _ := newSecureNetwork(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			profiles := mustProfiles(t, "{"+withAuth("")+"}")
			early := &outbound.NoTokenError{Cause: "too early"}
			client.WithProfiles(profiles).WithTokens(tokens{problemOfReplace: early})
			rules := decision.Rules{Expiration: 168 * time.Hour, Retry: retry.Default(), Profiles: profiles}
			now := time.Now()
			deliver := func(content []byte) (decision.Decision, []byte) {
				t.Helper()
				now = now.Add(time.Hour)
				in, w := rules.Open(content, "id", 64<<10, now), decision.World{Arrived: now, Now: now}
				if !rules.IsDue(&in, w) {
					t.Fatalf("not due: %s, %v", content, in.Malformed)
				}
				o := client.Do(t.Context(), in.Envelope)
				d := rules.Decide(&in, &decision.Verdict{Outcome: &o}, w)
				return d, rules.Compose(in, d, "queue", now).Content
			}
			d, next := deliver([]byte(content))
			if d.Reason != decision.Auth || d.Delay < time.Minute || d.Status != 401 {
				t.Errorf("after a 401: %+v", d)
			}
			d, _ = deliver(next)
			if d.Action != decision.DeadLetter || d.Reason != decision.Rejected || d.State.Attempts != 2 {
				t.Errorf("after two of them: %+v", d)
			}
			status = http.StatusOK
			d, _ = deliver(next)
			if d.Reason != decision.Delivered {
				t.Errorf("after an answer in place of the second: %+v", d)
			}
		})
	}
}

// TestTokenServers: what comes of the answers of token servers. No problem repeats an answer.
func TestTokenServers(t *testing.T) {
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const minute, operator = time.Minute, true
	const isJSON, isText, isForm = "application/json", "text/plain; a=b", "application/x-www-form-urlencoded"
	const abc, none = `{"access_token":"abc"`, "the answer has no bearer token"
	long := `"` + strings.Repeat("x", 64<<10) + `"`
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		life   time.Duration // of the token abc, or a problem
		want   string
		fault  bool
	}{
		"token":          {answer(200, isJSON, abc+`,"token_type":"Bearer","expires_in":60}`), minute, "", false},
		"of_apigee":      {answer(200, isJSON, abc+`,"token_type":"BearerToken","expires_in":60}`), minute, "", false},
		"bearer_words":   {answer(200, isJSON, abc+`,"token_type":"bearer_token"}`), 5 * minute, "", false},
		"json_as_text":   {answer(200, isText, abc+`,"expires_in":"60"}`), minute, "", false},
		"json_as_form":   {answer(200, isForm, "\r\n "+abc+`,"expires_in":60}`), minute, "", false},
		"json_after_bom": {answer(200, isJSON, "\ufeff"+abc+`,"expires_in":60}`), minute, "", false},
		"form_as_text":   {answer(200, isText, "access_token=abc&token_type=bearer&expires_in=60"), minute, "", false},

		"status_500":   {answer(500, isJSON, canary), 0, "status 500", false},
		"status_429":   {answer(429, isJSON, `{"error":"invalid_request"}`), 0, "invalid_request, status 429", false},
		"status_404":   {answer(404, isJSON, canary), 0, "status 404", operator},
		"unknown_code": {answer(503, isJSON, `{"error":"`+canary+`"}`), 0, "status 503", false},
		"invalid_client": {
			answer(401, isJSON, `{"error":"invalid_client","error_description":"`+canary+`"}`), 0,
			"invalid_client, status 401", operator,
		},
		"error_with_200": {answer(200, isText, `{"error":"invalid_scope"}`), 0, "invalid_scope, status 200", operator},
		"text":           {answer(200, isText, canary), 0, none, false},
		"blank_text":     {answer(200, isText, " \n"), 0, none, false},
		"too_long":       {answer(200, isJSON, abc+`,"x":`+long+`}`), 0, none, false},
		"other_type":     {answer(200, isJSON, abc+`,"token_type":"DPoP"}`), 0, none, false},
		"line_break":     {answer(200, isJSON, `{"access_token":"a\r\nX-A: b"}`), 0, none, false},
		"redirect": {
			http.RedirectHandler("https://evil.example/?"+canary, http.StatusTemporaryRedirect).ServeHTTP, 0,
			"status 307", operator,
		},
		"closed": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0,
			"connection closed before the answer", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := newSecureNetwork(t, test.answer)
			c := mustProfiles(t, "{"+withAuth("")+"}").Credentials()["*.example"]
			token, err := credential.NewFetch(client.TokenClient())(t.Context(), c)
			if n := len(server.all()); n != 1 {
				t.Errorf("%d requests", n)
			}
			if test.want == "" {
				off := time.Until(token.End) - test.life
				if token.Value != "abc" || err != nil || off.Abs() > time.Minute/2 {
					t.Errorf("got %d bytes until %v, %v", len(token.Value), token.End, err)
				}
				return
			}
			problem, ok := errors.AsType[*credential.ProblemError](err)
			if !ok || problem.Text != test.want || problem.ByOperator != test.fault {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if cause := credential.Cause(c, err); cause != "no token: "+test.want+" (l.example)" {
				t.Errorf("cause %q", cause)
			}
		})
	}
}

// TestTokenRequest: the client and its secret are in the header or in the body, never in both.
func TestTokenRequest(t *testing.T) {
	for style, want := range map[string]struct{ authorization, form string }{
		"header": {"Basic YTp0aGVpcnM=", "audience=aud&grant_type=client_credentials&resource=theirs&scope=s1+s2&x.y=a%26b%3Dc"},
		"body": {"", "audience=aud&client_id=a&client_secret=theirs&grant_type=client_credentials&resource=theirs" +
			"&scope=s1+s2&x.y=a%26b%3Dc"},
	} {
		client, server := newSecureNetwork(t, nil)
		profiles := mustProfiles(t, `{"a.example":{"auth":{"oauth2":{"tokenUrl":"https://l.example/t","clientId":"a",
			"clientSecret":"$S","scope":"s1 s2","audience":"aud","parameters":{"resource":"$S","x.y":"a&b=c"},
			"style":"`+style+`"}}}}`)
		_, _ = credential.NewFetch(client.TokenClient())(t.Context(), profiles.Credentials()["a.example"])
		got := server.one(t)
		if got.header.Get("Authorization") != want.authorization || string(got.body) != want.form || got.uri != "/t" {
			t.Errorf("%s: %v with %s", style, got.header, got.body)
		}
		if agent := got.header.Get("User-Agent"); agent != "async-caller" {
			t.Errorf("the User-Agent is %q", agent)
		}
	}
}

// TestTokenServerUnderTheRules: the guard and the proxy of calls apply to token servers.
func TestTokenServerUnderTheRules(t *testing.T) {
	c := mustProfiles(t, "{"+withAuth("")+"}").Credentials()["*.example"]
	denied := outbound.New(longTimeout, mustRules(t, "", "l.example"), outbound.Proxy{})
	_, err := credential.NewFetch(denied.TokenClient())(t.Context(), c)
	problem, ok := errors.AsType[*credential.ProblemError](err)
	if !ok || !problem.ByOperator || !strings.Contains(problem.Text, "ASYNC_CALLER_TARGETS_DENY has l.example") {
		t.Errorf("denied: %v", err)
	}
	server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	proxied := outbound.New(longTimeout, mustRules(t, "l.example", ""), mustProxy(t, server.URL))
	t.Cleanup(proxied.Close)
	_, err = credential.NewFetch(proxied.TokenClient())(t.Context(), c)
	if got := server.one(t); got.method != http.MethodConnect || fmt.Sprint(err) != "the proxy answered 418" {
		t.Errorf("through the proxy: %s, %v", got.method, err)
	}
}

// TestSlowTokenServers: a token request may take 10 s.
func TestSlowTokenServers(t *testing.T) {
	for took, want := range map[time.Duration]string{
		9 * time.Second: "<nil>", 11 * time.Second: "no answer in time",
	} {
		synctest.Test(t, func(t *testing.T) {
			client := newPipedClient(t, longTimeout, func(c net.Conn) {
				// With its body: net/http may drop the answer to a request that it cannot write to the end.
				request, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, request.Body)
				advance(took)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+
					"Connection: close\r\n\r\n"+`{"access_token":"abc","expires_in":60}`)
			})
			began := time.Now()
			_, err := credential.NewFetch(client.TokenClient())(t.Context(),
				targets.Credential{Kind: targets.OAuth2, TokenURL: "http://l.example/", InBody: true})
			if fmt.Sprint(err) != want || time.Since(began) > 10*time.Second {
				t.Errorf("%v: %v after %v", took, err, time.Since(began))
			}
			advance(2 * time.Second)
		})
	}
}
