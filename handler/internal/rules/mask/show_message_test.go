package mask_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/mask"
)

// TestShowContentCallOut checks that the HTTP message in a Nexus envelope is shown in lines, even if it is malformed.
func TestShowContentCallOut(t *testing.T) {
	for name, test := range map[string]struct{ message, want string }{
		"no_body": {"GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a HTTP/1.1|Host: h"},
		"line_feeds_only": {
			"GET /a?b=CANARY HTTP/1.1\nHost: h\nCookie: CANARY\n\na\nCANARY",
			"GET /a?b=*** HTTP/1.1|Host: h|Cookie: ***||a …",
		},
		"absolute_target": {
			"GET https://u:CANARY@h/?a=CANARY HTTP/1.1\r\nHost: h",
			"GET https://***@h/?a=*** HTTP/1.1|Host: h",
		},
		"spaces":        {"GET /?a=CANARY b=CANARY HTTP/1.1\r\nHost:   h  ", "***|Host: h"},
		"status_line":   {"HTTP/1.1 500 token=CANARY\r\nServer: a, b", "HTTP/1.1 500 token=***|Server: a, b"},
		"no_target":     {"POST HTTP/1.1 CANARY\r\nHost: h", "***|Host: h"},
		"after_version": {"GET / HTTP/1.1 token=CANARY\r\nHost: h", "***|Host: h"},
		"no_header":     {"GET / HTTP/1.1\r\nmy password: CANARY", "GET / HTTP/1.1|***"},
		"relative_link": {
			"HTTP/1.1 302 Found\r\nLocation: /cb?code=CANARY",
			"HTTP/1.1 302 Found|Location: /cb?code=***",
		},
		"folded": {
			"GET / HTTP/1.1\r\nAuthorization: Bearer CANARY\r\n  CANARY\r\n\tx: CANARY\r\nA: b",
			"GET / HTTP/1.1|Authorization: Bearer ***|***|***|A: b",
		},
		"no_colon": {"GET / HTTP/1.1\r\nBearer CANARY\r\n: CANARY", "GET / HTTP/1.1|***|***"},
		"json": {
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\r\n{\"token\":\"CANARY\",\"n\":1.0}",
			`POST / HTTP/1.1|Host: h|Content-Type: application/json||{|  "token": "***",|  "n": 1.0|}`,
		},
		"binary": {strings.Repeat("\x00", 100), "***"},
		"long": {
			"POST / HTTP/1.1\r\nA: b\r\n\r\n[" + strings.Repeat("1,", 4_000) + "1]",
			"POST / HTTP/1.1|A: b||[|" + strings.Repeat("  1,|", 3_276) + "  |… (cut)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			content := `{"RawRequest":{"callout":"` + inBase64(test.message) + `"}}`
			got := string(mask.ShowContent([]byte(content), mask.Hidden))
			if diff := cmp.Diff(test.want, strings.Join(linesOf(got), "|")); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// linesOf returns the strings of the innermost list or, if there is no list, the one value.
func linesOf(content string) []string {
	var lines []string
	for line := range strings.Lines(content) {
		line = strings.TrimPrefix(strings.TrimSpace(line), `"callout": `)
		if rest, ok := strings.CutPrefix(line, `"`); ok && !strings.HasPrefix(rest, "RawRequest") {
			line = strings.TrimSuffix(strings.TrimSuffix(rest, ","), `"`)
			lines = append(lines, strings.ReplaceAll(line, `\"`, `"`))
		}
	}
	return lines
}

// TestTextsInJSON checks what is shown of a text in JSON.
func TestTextsInJSON(t *testing.T) {
	for text, want := range map[string]string{
		"the token is gone":                    "the token is gone",
		"the token is CANARY":                  "the token is ***",
		"Unauthorized":                         "Unauthorized",
		"token":                                "token",
		"token:":                               "token:",
		"...":                                  "...",
		" two words ":                          " two words ",
		"[INFO] order 17":                      "[INFO] order 17",
		"[::1]:8080":                           "[::1]:8080",
		"[17]":                                 "[17]",
		"[2026-11-29] order 17":                "[2026-11-29] order 17",
		"{id} not found":                       "{id} not found",
		"a < b":                                "a < b",
		"<https://h/?a=b>; rel=next":           "<https://h/?a=***>; rel=next",
		"see http://h/?a=b.":                   "see http://h/?a=***",
		"see (http://u:p@h/) and a@b.example":  "see (http://***@h/) and a@b.example",
		"or http://h:8080/a?b=c http://i/?d=e": "or http://h:8080/a?b=*** http://i/?d=***",
		"see https://u:p/CANARY@h":             "see ***",
		"a://b":                                "a://b",
		"at u:CANARY@tcp(h:3306)/":             "at ***@tcp(h:3306)/",
		`{"password":"CANARY","a":1}`:          `{"password":"***","a":1}`,
		`{"a": 1}`:                             `{"a": 1}`,
		"Bearer authentication required.":      "Bearer authentication required.",
		"Bearer":                               "Bearer",
		"Bearer CANARY":                        "Bearer ***",
		"https://h/a Bearer CANARY":            "https://h/a ***",
		"https://h/?a=b c&d=CANARY":            "https://h/?a=*** ***",
		"the bearer token CANARY-1 is invalid": "the bearer token ***",
		"Unexpected token < in JSON":           "Unexpected token ***",
		"header=Bearer CANARY":                 "header=Bearer ***",
		"NTLM CANARY":                          "NTLM ***",
		"password=CANARY&b=c":                  "password=***",
		"password = CANARY b":                  "password = ***",
		"password\tCANARY":                     "password\t***",
		"password is-CANARY":                   "password is***",
		"--password CANARY":                    "--password ***",
		"Authorization: Bearer CANARY":         "Authorization: ***",
		`say "token": CANARY, "a": 1`:          `say "token": ***`,
		`say \"token\": \"CANARY`:              `say \"token\": \"***`,
		"Server=h;Pwd=CANARY;Database=d":       "Server=h;Pwd=***",
		"x <o:token>CANARY":                    "x <o:token***",
		`x <token a="b">CANARY`:                "x <token ***",
		`x https:\/\/u:CANARY@h\/`:             "x ***",
		`x https:\\/\\/u:CANARY@h`:             "x ***",
		"x\nCANARY":                            "x …",
		"\n--\nx\r\nCANARY":                    "x …",
		"x\vCANARY":                            "x …",
		"x\u2028CANARY":                        "x …",
		"x: 1\nToken:\n CANARY":                "x: 1 …",
		// Broken JSON: its beginning.
		`{"password":"CANARY","a":1`:                 `{"password":"***"} …`,
		`{"a":"two wo`:                               `{"a":"two "} …`,
		`{"a":"https://u:CANA`:                       "***",
		`{"token":"CAN ARY`:                          `{"token":"***"} …`,
		` { "pass\u0077ord": "CANARY", `:             `{"password":"***"} …`,
		`[{"name":"password","value":"CANARY"}`:      `[{"name":"password","value":"***"}] …`,
		`[{"value":"CANARY","x":1,"name":"pass`:      `[{"value":"***","x":1}] …`,
		`[true, {"name":"password","value":"CANARY"`: `[true,{"name":"password","value":"***"}] …`,
		`{"a":1} CANARY`:                             `{"a":1} …`,
		`{"CANARY`:                                   "***",
		// Markup: its title, or the first line of its text.
		`<a>b<token>CANARY</token>c</a>`: "b …",
		`<a><token>CANARY</token>b</a>`:  "***",
		`<a><token>CANARY</token>`:       "***",
		`<token>CANARY`:                  "***",
		`<a/>`:                           "***",
		"<p>a<br>CANARY":                 "a …",
		"<p>a<wbr>b</p>":                 "a …",
		"<b>pass</b><i>word</i>=CANARY":  "pass*** …",
		"<i>to</i><b>ken</b>=CANARY":     "token=*** …",
	} {
		got := string(mask.ShowContent([]byte("["+quoted(text)+"]"), mask.Hidden))
		if shown := "[\n  " + quotedAsShown(want) + "\n]\n"; got != shown {
			t.Errorf("%q is shown as %s, want %s", text, got, shown)
		}
		got = string(mask.ShowContent([]byte("["+quoted(text)+"]"), mask.Revealed))
		if shown := "[\n  " + quotedAsShown(text) + "\n]\n"; got != shown {
			t.Errorf("%q is revealed as %s, want %s", text, got, shown)
		}
	}
}

// quotedAsShown quotes a text as JSON without escapes for HTML.
func quotedAsShown(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)
	return strings.TrimSuffix(b.String(), "\n")
}

// TestMarkup checks that of XML and HTML the title is shown or, if there is none, the first line of the text.
func TestMarkup(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"element":     {`<a>1<o:Password Type="t">CANARY</o:Password><c>1</c></a>`, "1 …"},
		"nested":      {"<token><b>CANARY</b>\n<token>a</token><error>CANARY</error></token><error>x</error>", "x …"},
		"empty":       {"<token/><b>c</b>", "c …"},
		"void":        {`<input name="token"><p>c</p>`, "c …"},
		"cdata":       {"<password><![CDATA[CANARY</password>]]></password>", "***"},
		"cdata_text":  {"<a><![CDATA[a < b]]></a>", "a < b …"},
		"attribute":   {`<a apiKey='CANARY' n='"1"'>c</a>`, "c …"},
		"pair":        {`<a><item name="size">1</item><item name="password">CANARY</item></a>`, "1 …"},
		"text":        {"<a>password=CANARY</a>", "password=*** …"},
		"entities":    {"<a>password&#x3d;CANARY &lt;</a>", "password=*** …"},
		"lines":       {"<a>a&#10;CANARY</a>", "a …"},
		"link":        {`<a href="https://h/?x=CANARY">https://u:CANARY@h/ &amp; more</a>`, "https://***@h/ & more …"},
		"json":        {`<a>{"token":"CANARY","n":1}</a>`, `{"token":"*** …`},
		"comment":     {"<a><!-- CANARY --><!-- ok > CANARY -->c</a>", "c …"},
		"instruction": {`<?xml version="1.0" encoding="utf-16"?><?x CANARY?><a/>`, "***"},
		"doctype":     {`<!DOCTYPE a [<!ENTITY x "CANARY">]><a>1</a>`, "***"},
		"html":        {"<!DOCTYPE html>\n<p>no order</p>", "no order …"},
		"inline":      {"<p>no <b>order</b> <i>17</i>, <u>sorry</u><p>CANARY", "no order 17, sorry …"},
		"title":       {"<body>CANARY<title>no\norder</title>CANARY", "no order …"},
		"no_title":    {"<title>Error</title><title> </title>no order", "no order …"},
		"in_title":    {"<title>no order</titel><p>c", "no order</titel><p>c …"},
		"script":      {"<script>CANARY</script><style>CANARY</style><textarea>CANARY</textarea>no order", "no order …"},
		"open_tag":    {"<p>c<kyey\npassword=CANARY <o:Token>CANARY</o:Token>CANARY", "c …"},
		"open_end":    {"<p>c</p <token>CANARY", "c …"},
		"open_other":  {"<p>c<!p <token>CANARY", "c …"},
		"cut_tag":     {`<p>c<a b="CANARY`, "c …"},
		"quoted":      {`<p a='>CANARY' b=">CANARY">c`, "c …"},
		"crossed":     {"<a><token>CANARY</a></token>", "***"},
		"entity":      {"<a>a&nbsp;b</a>", "a b …"},
		"not_utf8":    {"<a>a \xe4</a>", "a \ufffd …"},
	} {
		t.Run(name, func(t *testing.T) {
			e := mustParse(t, `{"asyncCaller":1,"call":{"url":"http://t.example","bodyBase64":"`+inBase64(test.body)+
				`"}}`)
			got := mask.ShowCall(e, mask.Hidden)
			if got.Text != test.want || got.Kind != mask.BodyText || got.Bytes != len(test.body) {
				t.Errorf("%s is shown as %d bytes of %s: %s", test.body, got.Bytes, got.Kind, got.Text)
			}
			if got := mask.ShowCall(e, mask.Revealed).Text; got != strings.ToValidUTF8(test.body, "\ufffd") {
				t.Errorf("%s is revealed as %s", test.body, got)
			}
		})
	}
}

// TestShowCallParts covers parts that few calls have.
func TestShowCallParts(t *testing.T) {
	e := mustParse(t, `{"asyncCaller":1,"call":{"url":"http://t.example","method":"purge",`+
		`"headers":{"Host":"other.example:8080","X-B":["1","2"]}}}`)
	want := mask.Call{
		Method: "purge", URL: "http://t.example", Body: mask.Body{Kind: mask.BodyNone},
		Headers: []mask.Header{
			{Name: "Host", Value: "other.example:8080"},
			{Name: "X-B", Value: "1"},
			{Name: "X-B", Value: "2"},
		},
	}
	if diff := cmp.Diff(want, mask.ShowCall(e, mask.Hidden)); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	got := mask.ShowCall(mustParse(t, nexusSecrets), mask.Hidden)
	if got.URL != "https://t.example/orders?code=***" || got.Method != "PUT" || got.Callback != "http://s.example/don"+
		"e?x=***" || got.Text != "hello …" || !got.Partial || got.Kind != mask.BodyText ||
		got.Context != "{\n  \"secret\": \"***\",\n  \"a\": 1\n}" {
		t.Errorf("Nexus call %+v", got)
	}
}
