package envelope_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"asynccaller/handler/internal/envelope"
)

// TestFingerprint: envelopes have the same fingerprint only if the target and the receiver of the callback get the
// same.
func TestFingerprint(t *testing.T) {
	native := func(call, rest string) string {
		return `{"asyncCaller":1,"call":{"url":"https://t.example/a"` + call + `}` + rest + `}`
	}
	nexus := func(callOut, callBack string) string {
		encoded := func(text string) string {
			return base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(text, "|", "\r\n")))
		}
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
		"nexus_no_callback": {nexusBase, strings.Split(nexusBase, `,"CallBack"`)[0] + "}}", false},
	} {
		one, err := envelope.Parse([]byte(test.one))
		if err != nil {
			t.Fatal(name, err)
		}
		other, err := envelope.Parse([]byte(test.other))
		if err != nil {
			t.Fatal(name, err)
		}
		if got := one.Fingerprint() == other.Fingerprint(); got != test.same {
			t.Errorf("%s: the same is %t", name, got)
		}
	}
}
