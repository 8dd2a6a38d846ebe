package mask_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
)

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func quoted(text string) string {
	q, _ := json.Marshal(text)
	return string(q)
}

func mustParse(t *testing.T, content string) *envelope.Envelope {
	t.Helper()
	e, err := envelope.Parse([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// nativeSecrets is an envelope with secrets in all members that can hold one.
const nativeSecrets = `{"asyncCaller":1,"requestId":"order-42",` +
	`"call":{"url":"https://user:CANARY@t.example/orders/1?code=CANARY&n=CANARY",` +
	`"headers":{"authorization":"Bearer ` +
	`CANARY","Accept":["a","b"],"Cookie":"CANARY","X-Link":"https://l.example/?x=CANARY"},` +
	`"json":{"n":1.50,"big":12345678901234567890,"Password":"CANARY","list":[{"apiKey":["CANARY"],` +
	`"link":"http://h/?sig=CANARY"}],"empty":{}}},` +
	`"callback":{"url":"https://s.example/cb?code=CANARY","headers":{"X-Api-Key":"CANARY"}},` +
	`"context":{"sessionId":"CANARY","ok":true}}`

var nexusSecrets = `{"Organization":"acme","Attempts":1,"LatestResponse":"` +
	inBase64("HTTP/1.1 400 No\r\nSet-Cookie: CANARY\r\nContent-Type: "+
		"application/json\r\n\r\n{\"token\":\"CANARY\",\"message\":\"no such order\"}") +
	`","RawRequest":{"Id":"order-42","Title":"PUT https://t.example/orders?code=CANARY (order-42)","Context":"` +
	inBase64(`{"secret":"CANARY","a":1}`) +
	`","CallOut":"` +
	inBase64("PUT /orders?code=CANARY HTTP/1.1\r\nHost: t.example\r\nAuthorization: Basic CANARY\r\nContent-Type: "+
		"text/plain\r\n\r\nhello\npassword=CANARY") +
	`","CallOutUriScheme":"https","CallBack":"` + inBase64("POST /done?x=CANARY HTTP/1.1\r\nHost: s.example\r\n\r\n") +
	`"}}`

func TestShowCall(t *testing.T) {
	got := mask.ShowCall(mustParse(t, nativeSecrets), mask.Hidden)
	want := mask.Call{
		Method: "POST", URL: "https://***@t.example/orders/1?code=***&n=***",
		Headers: []mask.Header{
			{Name: "Accept", Value: "a"},
			{Name: "Accept", Value: "b"},
			{Name: "authorization", Value: "Bearer ***", Masked: true},
			{Name: "Content-Type", Value: "application/json"},
			{Name: "Cookie", Value: "***", Masked: true},
			{Name: "X-Link", Value: "https://l.example/?x=***", Masked: true},
		},
		Body: mask.Body{
			Text: `{
  "n": 1.50,
  "big": 12345678901234567890,
  "Password": "***",
  "list": [
    {
      "apiKey": "***",
      "link": "http://h/?sig=***"
    }
  ],
  "empty": {}
}`,
			Kind: mask.BodyJSON, Bytes: 142,
		},
		Callback: "https://s.example/cb?code=***",
		Context:  "{\n  \"sessionId\": \"***\",\n  \"ok\": true\n}",
	}
	want.Bytes = mustParse(t, nativeSecrets).Call.Body.Len()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	revealed := mask.ShowCall(mustParse(t, nativeSecrets), mask.Revealed)
	if revealed.URL != "https://user:CANARY@t.example/orders/1?code=CANARY&"+
		"n=CANARY" || revealed.Headers[2] != (mask.Header{Name: "authorization", Value: "Bearer CANARY"}) ||
		!strings.Contains(revealed.Text, `"Password": "CANARY"`) || !strings.Contains(revealed.Context, "CANARY") ||
		strings.Contains(revealed.Text, "***") {
		t.Errorf("revealed: %+v", revealed)
	}
}

func TestShowCallBodies(t *testing.T) {
	for name, test := range map[string]struct {
		contentType, body string
		want              string
		kind              mask.BodyKind
	}{
		"none":   {"text/plain", "", "", mask.BodyNone},
		"text":   {"text/plain", "Dear Ms Å, your token", "Dear Ms Å, your token", mask.BodyText},
		"binary": {"image/png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00", "", mask.BodyBinary},
		"json": {
			"application/problem+json; charset=utf-8", ` [1, {"a":"b"}] `,
			"[\n  1,\n  {\n    \"a\": \"b\"\n  }\n]", mask.BodyJSON,
		},
		"json_as_text": {"text/plain", `{"token":1,"ok":2}`, "{\n  \"token\": \"***\",\n  \"ok\": 2\n}", mask.BodyJSON},
		"broken_json": {
			"application/json", `{"a":1,"token":"x","b":2,}`,
			"{\n  \"a\": 1,\n  \"token\": \"***\",\n  \"b\": 2\n} …", mask.BodyText,
		},
		"nothing_secret": {
			"application/json", `{"token":null,"auth":true,"key":"","keys":[]}`,
			"{\n  \"token\": null,\n  \"auth\": true,\n  \"key\": \"\",\n  \"keys\": []\n}", mask.BodyJSON,
		},
		"form": {
			"application/x-www-form-urlencoded",
			"grant_type=x&client%5Fsecret=a%20b&u=https%3A%2F%2Fh%2F%3Fq%3Ds&empty=", "grant_type=x&" +
				"client%5Fsecret=***&u=https://h/?q=***&empty=", mask.BodyText,
		},
		"json_in_json": {
			"application/json", `{"event":"{\"password\":\"x\",\"a\":1}"}`,
			`{` + "\n" + `  "event": "{\"password\":\"***\",\"a\":1}"` + "\n}", mask.BodyJSON,
		},
		"form_text": {
			"application/x-www-form-urlencoded", "a=say+token%3Dx&b+c&d=%22&password%3Dx&e={%22key%22:1}",
			`a=say token=***&b+c&d=%22&password=***&e={"key":"***"}`, mask.BodyText,
		},
		"broken_form": {"application/x-www-form-urlencoded", "a=b&password=%zz", "***", mask.BodyText},
		"broken_xml":  {"text/xml", "<a>no control \x1b</a>", "no control \ufffd …", mask.BodyText},
		"bidi":        {"text/xml", "<a>a\u202eb</a>\r\n", "a\ufffdb …", mask.BodyText},
	} {
		t.Run(name, func(t *testing.T) {
			e := mustParse(t, `{"asyncCaller":1,"call":{"url":"http://t.example",`+
				`"headers":{"Content-Type":"`+test.contentType+`"},"bodyBase64":"`+inBase64(test.body)+`"}}`)
			got := mask.ShowCall(e, mask.Hidden)
			if got.Text != test.want || got.Kind != test.kind || got.Bytes != len(test.body) || got.Truncated {
				t.Errorf("got %s, %d bytes: %s", got.Kind, got.Bytes, got.Text)
			}
		})
	}
}

func TestShowCallCut(t *testing.T) {
	call := func(body string) *envelope.Envelope {
		return mustParse(t, `{"asyncCaller":1,"call":{"url":"http://t.example","bodyBase64":"`+inBase64(body)+`"}}`)
	}
	for name, body := range map[string]string{
		"json": `[` + strings.Repeat(`{"a":1},`, 3_000) + `2]`,
		"deep": strings.Repeat("[", 3_000) + strings.Repeat("]", 3_000),
	} {
		got := mask.ShowCall(call(body), mask.Hidden)
		if len(got.Text) > 16<<10 || !utf8.ValidString(got.Text) || !got.Truncated || got.Bytes != len(body) {
			t.Errorf("%s: %d bytes of %d, truncated: %t", name, len(got.Text), got.Bytes, got.Truncated)
		}
	}
	binary := mask.ShowCall(call(strings.Repeat("\x00", 5000)), mask.Revealed).Text
	if !strings.HasPrefix(binary, "00000000  00 00") || len(binary) > 4000 {
		t.Errorf("a revealed binary body is %q", binary)
	}
}

func TestShowContent(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"nexus": {nexusSecrets, `{
  "Organization": "acme",
  "Attempts": 1,
  "LatestResponse": [
    "HTTP/1.1 400 No",
    "Set-Cookie: ***",
    "Content-Type: application/json",
    "",
    "{",
    "  \"token\": \"***\",",
    "  \"message\": \"no such order\"",
    "}"
  ],
  "RawRequest": {
    "Id": "order-42",
    "Title": "PUT https://t.example/orders?code=*** (order-42)",
    "Context": {
      "secret": "***",
      "a": 1
    },
    "CallOut": [
      "PUT /orders?code=*** HTTP/1.1",
      "Host: t.example",
      "Authorization: Basic ***",
      "Content-Type: text/plain",
      "",
      "hello …"
    ],
    "CallOutUriScheme": "https",
    "CallBack": [
      "POST /done?x=*** HTTP/1.1",
      "Host: s.example"
    ]
  }
}
`},
		"native_bodies": {`{"call":{"headers":{"content-type":"application/json"},"body":"{\"pin\":1}","bodyBase64":"AAECAw=="}}`, `{
  "call": {
    "headers": {
      "content-type": "application/json"
    },
    "body": [
      "{",
      "  \"pin\": \"***\"",
      "}"
    ],
    "bodyBase64": "(not shown without --reveal: binary, 4 bytes)"
  }
}
`},
		"nexus_malformed": {`{"RawRequest":{"CallOut":"CANARY!","Context":"` + inBase64("no JSON, token=CANARY") +
			`","CallBack":"` +
			inBase64("POST /\nX-A: 1\nAuthorization: a\n CANARY\nbearer CANARY") + `"},"LatestResponse":1}`, `{
  "RawRequest": {
    "CallOut": "***",
    "Context": "no JSON, token=***",
    "CallBack": [
      "***",
      "X-A: 1",
      "Authorization: ***",
      "***",
      "***"
    ]
  },
  "LatestResponse": 1
}
`},
		"invalid_base64": {
			`{"RawRequest":{"Context":"` + inBase64(`{"token":"CANARY"}`)[1:] + `"}}`,
			"{\n  \"RawRequest\": {\n    \"Context\": \"***\"\n  }\n}\n",
		},
		"empty": {"", ""},
		"text":  {"hello\x00\r\nCANARY", "hello\ufffd …\n"},
		"xml":   {"<a>\r\na<token>CANARY</token></a>", "a …\n"},
		"broken_json": {
			`{"call":{"url":"https://h/?a=1\u0026code=CANARY","headers":{"Cookie" : "CANARY\"CANARY"}},` +
				`"CallOut":"` + inBase64("CANARY"),
			"{\n  \"call\": {\n    \"url\": \"https://h/?a=***&code=***\",\n    \"headers\": {\n" +
				"      \"Cookie\": \"***\"\n    }\n  }\n} …\n",
		},
		"slashes": {`{"u":"https:\/\/u:CANARY@h\/?code=CANARY"}`, "{\n  \"u\": \"https://***@h/?code=***\"\n}\n"},
		"terminal": {
			`{"a\u001b":"\u001b[2J` + "\u202e\U000e0001" + `"}`,
			"{\n  \"a\\u001b\": \"\\u001b[2J\\u202e\\udb40\\udc01\"\n}\n",
		},
		"binary": {strings.Repeat("\x00\x01\x02\x03", 100), "(not shown without --reveal: binary, 400 bytes)\n"},
		"scalar": {`"token=CANARY"`, "\"token=***\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want,
				string(mask.ShowContent([]byte(test.content), mask.Hidden))); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if strings.Contains(test.content, "CANARY") &&
				!strings.Contains(string(mask.ShowContent([]byte(test.content), mask.Revealed)), "CANARY") {
				t.Error("what is revealed does not show")
			}
		})
	}
}

// TestShowContentBounded checks that indentation does not blow up a message.
func TestShowContentBounded(t *testing.T) {
	for name, content := range map[string]string{
		"deep":       strings.Repeat(`{"a":[`, 2_000) + strings.Repeat(`]}`, 2_000),
		"wide_below": strings.Repeat("[", 90) + strings.Repeat("1,", 20_000) + "1" + strings.Repeat("]", 90),
		"xml":        "<a>" + strings.Repeat("x y ", 70_000) + "</a>",
		"text":       strings.Repeat("x y ", 70_000),
	} {
		got := mask.ShowContent([]byte(content), mask.Hidden)
		if len(got) > 300<<10 || !bytes.HasSuffix(got, []byte("\n")) {
			t.Errorf("%s: %d bytes", name, len(got))
		}
		if cut := bytes.HasSuffix(got, []byte("… (cut)\n")); cut != (name == "wide_below") {
			t.Errorf("%s: says that it is cut: %t", name, cut)
		}
	}
}

func mustBePrintable(t *testing.T, text string) {
	t.Helper()
	bad := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
	if !utf8.ValidString(text) || strings.ContainsFunc(text, bad) {
		t.Errorf("%q is not printable", text)
	}
}
