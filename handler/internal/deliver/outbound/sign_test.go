package outbound_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

// The secrets of the tests: their texts are the same in the variable and at the target.
const (
	newSecret   = "whsec_bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LTMyLWJ5"
	oldSecret   = "whsec_b2xkLW9sZC1vbGQtb2xkLW9sZC0yNCEh"
	otherSecret = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXItMjQhIQ=="
)

func mustSigning(tb testing.TB, content string) targets.Profiles {
	tb.Helper()
	profiles, err := targets.Parse([]byte(content), nil, func(name string) string {
		return map[string]string{"NEW": newSecret, "OLD": oldSecret, "OTHER": otherSecret}[name]
	})
	if err != nil {
		tb.Fatal(err)
	}
	return profiles
}

// verify verifies a request as a target does, by the library of Standard Webhooks.
func verify(tb testing.TB, secret string, header http.Header, body []byte) error {
	tb.Helper()
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return webhook.Verify(body, header)
}

// wantSigned checks that a request has been signed with these secrets, and no others, and that the signature is only
// for its body, id and time.
func wantSigned(tb testing.TB, s seen, secrets ...string) {
	tb.Helper()
	for _, secret := range []string{newSecret, oldSecret, otherSecret} {
		err := verify(tb, secret, s.header, s.body)
		if want := slices.Contains(secrets, secret); want != (err == nil) {
			tb.Errorf("%s %s: %s verifies: %v, want %t; headers %v", s.method, s.uri, secret, err, want, s.header)
		}
	}
	if n := len(strings.Fields(s.header.Get("Webhook-Signature"))); n != len(secrets) {
		tb.Errorf("%d signatures, want %d", n, len(secrets))
	}
	for i := range s.body {
		if i > 3 && i < len(s.body)-3 && i%4096 != 0 {
			continue
		}
		changed := slices.Clone(s.body)
		changed[i] ^= 1
		if verify(tb, secrets[0], s.header, changed) == nil {
			tb.Errorf("verified with byte %d changed", i)
		}
	}
	if verify(tb, secrets[0], s.header, append(slices.Clone(s.body), '.')) == nil {
		tb.Error("verified with a byte added")
	}
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp"} {
		header := s.header.Clone()
		header.Set(name, strings.Replace(header.Get(name), "1", "2", 1)+"0")
		if verify(tb, secrets[0], header, s.body) == nil {
			tb.Errorf("verified with another %s", name)
		}
	}
}

// webhookHeaders returns the lines of a request that belong to a signature, without their values.
func webhookHeaders(s seen) (names []string) {
	for name, values := range s.header {
		if targets.IsWebhookHeader(name) {
			names = append(names, fmt.Sprint(name, " ", len(values)))
		}
	}
	return slices.Sorted(slices.Values(names))
}

// TestSignatures: the library of a target verifies what was sent, whatever the call has.
func TestSignatures(t *testing.T) {
	const both = `{"*.example":{"sign":["$NEW","$OLD"]}}`
	for name, test := range map[string]struct {
		call object
		more object
	}{
		"no_body":    {call: object{}},
		"get":        {call: object{"method": "GET", "body": "x"}},
		"zero_bytes": {call: object{"method": "POST", "body": ""}},
		"binary":     {call: object{"bodyBase64": "AP8KDS4u"}},
		"json":       {call: object{"json": object{"a": "<é>"}}},
		"48_KiB":     {call: object{"body": strings.Repeat("0123456789.abcde", 3<<10)}},
		"gzip": {
			call: object{"gzipBody": inGzip(strings.Repeat("0123456789.abcde", 40<<10))},
			more: object{"asyncCaller": 2},
		},
		"empty_gzip": {call: object{"gzipBody": inGzip("")}, more: object{"asyncCaller": 2}},
		"retry":      {call: object{"body": "x"}, more: object{"attempts": 3}},
		"callback": {
			call: object{"method": "POST", "json": object{"Id": "r"}}, more: object{"requestId": "r.callback"},
		},
		"user_info": {call: object{"url": "https://u:p@a.example", "body": "x"}},
		"own_headers": {call: object{"body": "x", "headers": object{
			"webhook-id": "mine", "WEBHOOK-SIGNATURE": "v1,mine", "Webhook_Timestamp": "1",
			"WebHook-More": []string{"1", "2"},
			"webhook":      "kept",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := newSecureNetwork(t, nil)
			client.WithProfiles(mustSigning(t, both))
			call := object{"url": "https://a.example/0"}
			maps.Copy(call, test.call)
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, call, test.more)), 200)
			got := server.one(t)
			wantSigned(t, got, newSecret, oldSecret)
			want := []string{"Webhook-Id 1", "Webhook-Signature 1", "Webhook-Timestamp 1"}
			if names := webhookHeaders(got); !slices.Equal(names, want) {
				t.Errorf("got %q", names)
			}
			if test.more == nil && (name == "own_headers") != (got.header.Get("Webhook") == "kept") {
				t.Error("a header that is none of a signature was dropped")
			}
		})
	}
}

// TestSignatureSpelling: the names are sent as the specification spells them.
func TestSignatureSpelling(t *testing.T) {
	server := newAnswer(t, noContent)
	client := newClient(t, longTimeout).WithProfiles(mustSigning(t, `{"127.0.0.1":{"sign":["$NEW","$OLD"]}}`))
	wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()})), 204)
	head := <-server.heads
	for _, line := range []string{
		`webhook-id: msg_[0-9a-f]{32}`, `webhook-timestamp: [0-9]{10}`,
		`webhook-signature: v1,[A-Za-z0-9+/]{43}= v1,[A-Za-z0-9+/]{43}=`,
	} {
		if !regexp.MustCompile("\r\n" + line + "\r\n").MatchString(head) {
			t.Errorf("no line %s in %q", line, head)
		}
	}
}

// TestWebhookID: it is the same for all attempts, and another one for each other call.
func TestWebhookID(t *testing.T) {
	client, server := newSecureNetwork(t, nil)
	client.WithProfiles(mustSigning(t, `{"*.example":{"sign":["$NEW"]}}`))
	id := func(requestID string, attempts int, tenant envelope.Tenant) string {
		more := object{"requestId": requestID, "attempts": attempts}
		e := mustEnvelope(t, object{"url": "https://a.example"}, more)
		e.Tenant = tenant
		wantAnswer(t, client.Do(t.Context(), e), 200)
		all := server.all()
		return all[len(all)-1].header.Get("Webhook-Id")
	}
	first, again := id("r1", 0, envelope.Tenant{}), id("r1", 7, envelope.Tenant{})
	if again != first {
		t.Errorf("the id of another attempt is %s, and not %s", again, first)
	}
	seen := map[string]bool{first: true}
	for _, other := range []string{
		id("r2", 0, envelope.Tenant{}), id("r1.callback", 0, envelope.Tenant{}),
		id("r1", 0, envelope.Tenant{Organization: "a b"}), id("r1", 0, envelope.Tenant{Environment: "a b"}),
		id("r1", 0, envelope.Tenant{Organization: "a", Environment: "b"}),
		id("r1", 0, envelope.Tenant{Organization: `a" "b`}),
	} {
		if seen[other] || len(other) != len(first) {
			t.Errorf("the id of another call is %s", other)
		}
		seen[other] = true
	}
}

// TestUnsignedCalls: a call that the profile's headers could leave is not signed, and has no signature of its sender.
func TestUnsignedCalls(t *testing.T) {
	headers := object{"Webhook-Signature": "v1,mine", "webhook_id": "mine"}
	for name, test := range map[string]struct {
		call object
		want int
	}{
		"trace":          {object{"method": "TRACE", "headers": headers}, 0},
		"unknown_method": {object{"method": "PURGE", "headers": headers}, 0},
		"other_host_header": {
			object{"headers": object{"Host": "b.example", "webhook-signature": "v1,mine"}}, 0,
		},
		"other_target": {object{"url": "https://c.example", "headers": headers}, 2},
	} {
		client, server := newSecureNetwork(t, nil)
		client.WithProfiles(mustSigning(t, `{"a.example":{"sign":["$NEW"]}}`))
		call := object{"url": "https://a.example/0"}
		maps.Copy(call, test.call)
		wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, call)), 200)
		if got := webhookHeaders(server.one(t)); len(got) != test.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// TestSignaturesBehindRedirects: a signature stays with the targets of its profile, and fits the body that is sent. No
// target with signatures gets those of a sender from elsewhere.
func TestSignaturesBehindRedirects(t *testing.T) {
	const (
		start  = "http://a.example/0"
		signed = `{"a.example":{"sign":["$NEW","$OLD"]},"b.example":{"sign":["$OTHER"]},` +
			`"old.example":{"to":"https://a.example"}}`
		onlyTLS = `{"a.example:443":{"sign":["$NEW"]}}`
	)
	both := []string{newSecret, oldSecret}
	for name, test := range map[string]struct {
		profiles, first string
		status          int
		locations       []string
		secrets         []string
	}{
		"same_host":       {signed, start, 307, []string{"/1", "/x"}, both},
		"see_other":       {signed, start, 303, []string{"/x"}, both},
		"upgrade":         {signed, start, 302, []string{"https://a.example/x"}, both},
		"moved":           {signed, "https://a.example/0", 308, []string{"https://old.example/x"}, both},
		"other_host":      {signed, start, 308, []string{"http://c.example/x"}, nil},
		"other_port":      {signed, start, 308, []string{"http://a.example:8080/x"}, nil},
		"signed_too":      {signed, start, 307, []string{"http://b.example/x"}, nil},
		"detour":          {signed, start, 307, []string{"//b.example/1", "//a.example/2", "/x"}, nil},
		"from_unsigned":   {signed, "http://c.example/0", 307, []string{"http://a.example/x"}, nil},
		"from_other_port": {onlyTLS, start, 307, []string{"https://a.example/x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t, test.status, test.locations)
			w.client.WithProfiles(mustSigning(t, test.profiles))
			headers := object{"webhook-id": "mine", "Webhook-Signature": "v1,mine", "WEBHOOK_TIMESTAMP": "1"}
			call := object{"url": test.first, "method": "PUT", "body": "text", "headers": headers}
			wantAnswer(t, w.client.Do(t.Context(), mustEnvelope(t, call)), 200)
			all := append(w.plain.all(), w.secure.all()...)
			last := slices.IndexFunc(all, func(s seen) bool { return s.uri == "/x" })
			if len(all) != len(test.locations)+1 || last < 0 {
				t.Fatalf("%d requests", len(all))
			}
			body := "text"
			if test.status == http.StatusSeeOther {
				body = ""
			}
			names := webhookHeaders(all[last])
			switch {
			case string(all[last].body) != body:
				t.Errorf("the body is %q", all[last].body)
			case test.secrets != nil:
				wantSigned(t, all[last], test.secrets...)
			case len(names) > 0:
				t.Errorf("got %q", names)
			}
		})
	}
}

// TestSignatureAfterARefusedToken: the second request of the attempt has the same body, and is signed as well.
func TestSignatureAfterARefusedToken(t *testing.T) {
	client, server := newSecureNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == tokenA {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	const file = `{"a.example":{"sign":["$NEW"],"auth":{"oauth2":{"tokenUrl":"https://l.example","clientId":"a",` +
		`"clientSecret":"$OLD"}}}}`
	client.WithProfiles(mustSigning(t, file)).WithTokens(tokens{})
	wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": "https://a.example", "body": "x"})), 200)
	all := server.all()
	if len(all) != 2 {
		t.Fatalf("%d requests", len(all))
	}
	for _, s := range all {
		wantSigned(t, s, newSecret)
	}
}
