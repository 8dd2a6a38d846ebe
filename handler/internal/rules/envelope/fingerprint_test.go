package envelope_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
)

// TestFingerprint: envelopes have the same fingerprint only if the target and the receiver of the callback get the
// same.
func TestFingerprint(t *testing.T) {
	native := func(call, rest string) string {
		return `{"asyncCaller":1,"call":{"url":"https://t.example/a"` + call + `}` + rest + `}`
	}
	nexus := func(callOut, callBack string) string {
		encoded := func(text string) string { return inBase64(strings.ReplaceAll(text, "|", "\r\n")) }
		return fmt.Sprintf(`{"RawRequest":{"Id":"1","CallOut":%q,"CallBack":%q}}`, encoded(callOut), encoded(callBack))
	}
	const callOut, callBack = "GET / HTTP/1.1|Host: t.example||", "POST /cb HTTP/1.1|Host: s.example|X-A: 1||"
	callback := func(members string) string {
		return native("", `,"callback":{"url":"https://s.example"`+members+`}}`)
	}
	base := callback(`,"headers":{"A":"1"`)
	nexusBase := nexus(callOut, callBack)
	for name, test := range map[string]struct {
		one, other string
		same       bool
	}{
		"no_callback":      {base, native("", ""), false},
		"callback_method":  {base, callback(`,"method":"PUT","headers":{"A":"1"`), false},
		"callback_default": {base, callback(`,"method":"POST","headers":{"a":["1"]`), true},
		"callback_header":  {base, callback(`,"headers":{"A":"2"`), false},
		"callback_host":    {base, callback(`,"headers":{"A":"1","Host":"h"`), false},
		"callback_values":  {base, callback(`,"headers":{"A":["1",""]`), false},
		"callback_trace":   {base, callback(`,"headers":{"A":"1","traceparent":"x"`), true},
		"callback_length":  {base, callback(`,"headers":{"A":"1","content-length":"0"`), true},
		"callback_type":    {base, callback(`,"headers":{"A":"1","content-type":"a/b"`), false},
		"header_moved":     {base, native(`,"headers":{"A":"1"}`, `,"callback":{"url":"https://s.example"}`), false},
		"length":           {native("", ""), native(`,"headers":{"Content-Length":"0"}`, ""), true},
		"connection_lists": {
			native(`,"headers":{"X-A":"1"}`, ""), native(`,"headers":{"X-A":"1","Connection":"X-A"}`, ""), false,
		},
		"unknown_member":    {base, callback(`,"x":{},"headers":{"A":"1"`), true},
		"nexus_length":      {nexusBase, nexus("GET / HTTP/1.1|Host: t.example|Content-Length: 0||", callBack), true},
		"nexus_type":        {nexusBase, nexus("GET / HTTP/1.1|Host: t.example|Content-Type: a/b||", callBack), false},
		"nexus_body":        {nexusBase, nexus("GET / HTTP/1.1|Host: t.example|Content-Length: 1||x", callBack), false},
		"nexus_cb_content":  {nexusBase, nexus(callOut, strings.ReplaceAll(callBack, "||", "|Content-Type: a/b||x")), true},
		"nexus_cb_header":   {nexusBase, nexus(callOut, "POST /cb HTTP/1.1|Host: s.example|X-A: 2||"), false},
		"nexus_cb_method":   {nexusBase, nexus(callOut, "PUT /cb HTTP/1.1|Host: s.example|X-A: 1||"), false},
		"nexus_cb_host":     {nexusBase, nexus(callOut, "POST /cb HTTP/1.1|Host: r.example|X-A: 1||"), false},
		"nexus_cb_same":     {nexusBase, nexus(callOut, "POST /cb HTTP/1.1|Host: s.example|x-a:1||"), true},
		"nexus_no_callback": {nexusBase, strings.Split(nexusBase, `,"CallBack"`)[0] + "}}", false},
	} {
		if got := fingerprint(t, test.one) == fingerprint(t, test.other); got != test.same {
			t.Errorf("%s: the same is %t", name, got)
		}
	}
}

// TestFingerprintAfterDotnet: the C# app, which reads a message and writes it again, does not change the fingerprint of
// a Nexus message, and a call that says something else has another one. That of a native envelope is over the sender's
// own text.
func TestFingerprintAfterDotnet(t *testing.T) {
	request := func(target, headers string) string {
		text := strings.ReplaceAll("POST "+target+" HTTP/1.1|Host: t.example|"+headers+"|", "|", "\r\n")
		return `{"RawRequest":{"Id":"1","CallOut":"` + inBase64(text) + `"}}`
	}
	header := func(line string) string { return request("/", line+"|") }
	for name, test := range map[string]struct {
		one, other string
		same       bool
	}{
		"media_type":       {header("Content-Type: application/json;charset=UTF-8"), header("Content-Type: application/json; charset=UTF-8"), true},
		"media_type_quote": {header(`Content-Type: a/b;c="d;e , f"`), header(`Content-Type: a/b; c="d;e , f"`), true},
		"accept":           {header("Accept: text/html;q=0.8,*/*"), header("Accept: text/html; q=0.8, */*"), true},
		"encodings":        {header("Accept-Encoding: gzip;q=1,br;q=0.50"), header("Accept-Encoding: gzip; q=1.0, br; q=0.5"), true},
		"language":         {header("Accept-Language: sv,en;Q=.8"), header("Accept-Language: sv, en; q=0.8"), true},
		"cache":            {header("Cache-Control: Max-Age=0,no-cache"), header("Cache-Control: no-cache, max-age=0"), true},
		"agent":            {header("User-Agent: a/1  (b;c)"), header("User-Agent: a/1 (b;c)"), true},
		"credentials":      {header("Authorization: Bearer  abc=="), header("Authorization: Bearer abc=="), true},
		"etags":            {header(`If-Match: "a,b","c"`), header(`If-Match: "a,b", "c"`), true},
		"referer":          {header("Referer: https://a.example"), header("Referer: https://a.example/"), true},
		"tilde":            {request("/%7ea/%41?x=%7E", ""), request("/~a/A?x=~", ""), true},
		"escapes":          {request("/%c3%a5/%2f", ""), request("/%C3%A5/%2F", ""), true},
		"characters":       {request("/å", ""), request("/%C3%A5", ""), true},
		"dots":             {request("/a/../b/./c?d=/../e", ""), request("/b/c?d=/../e", ""), true},
		"escaped_dots":     {request("/a/%2e%2E/b", ""), request("/b", ""), true},
		"fragment":         {request("/a?b#c", ""), request("/a?b", ""), true},

		"other_charset":  {header("Content-Type: a/b;charset=x"), header("Content-Type: a/b; charset=y"), false},
		"other_quality":  {header("Accept: a/b;q=0.8"), header("Accept: a/b;q=0.7"), false},
		"other_quoted":   {header(`If-Match: "a,b"`), header(`If-Match: "a, b"`), false},
		"other_order":    {header("Accept: a/b, c/d"), header("Accept: c/d, a/b"), false},
		"other_case":     {header("Authorization: Bearer A"), header("Authorization: Bearer a"), false},
		"other_cookies":  {header("Cookie: a=1|Cookie: b=2"), header("Cookie: a=1, b=2"), false},
		"escaped_slash":  {request("/a%2Fb", ""), request("/a/b", ""), false},
		"escaped_amp":    {request("/?a%26b", ""), request("/?a&b", ""), false},
		"double_slash":   {request("/a//b", ""), request("/a/b", ""), false},
		"escape_escaped": {request("/%257e", ""), request("/~", ""), false},
		"native": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/%7e"}}`,
			`{"asyncCaller":1,"call":{"url":"https://t.example/~"}}`, false,
		},
		"native_header": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/","headers":{"Accept":"a/b,c/d"}}}`,
			`{"asyncCaller":1,"call":{"url":"https://t.example/","headers":{"Accept":"a/b, c/d"}}}`, false,
		},
	} {
		if got := fingerprint(t, test.one) == fingerprint(t, test.other); got != test.same {
			t.Errorf("%s: the same is %t", name, got)
		}
	}
}

func fingerprint(t *testing.T, content string) [sha256.Size]byte {
	t.Helper()
	e, err := envelope.Parse([]byte(content))
	if err != nil {
		t.Fatal(content, err)
	}
	return e.Fingerprint()
}
