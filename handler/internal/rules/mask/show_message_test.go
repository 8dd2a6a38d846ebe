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
			"GET /a?b=CANARY HTTP/1.1\nHost: h\nCookie: CANARY\n\nCANARY",
			"GET /a?b=*** HTTP/1.1|Host: h|Cookie: ***||(not shown without --reveal: text, 6 bytes)",
		},
		"absolute_target": {
			"GET https://u:CANARY@h/?a=CANARY HTTP/1.1\r\nHost: h",
			"GET https://***@h/?a=*** HTTP/1.1|Host: h",
		},
		"spaces":        {"GET /?a=CANARY b=CANARY HTTP/1.1\r\nHost:   h  ", "GET /?a=*** HTTP/1.1|Host: h"},
		"no_version":    {"GET /?a=CANARY\r\nHost: h", "***|Host: h"},
		"status_line":   {"HTTP/1.1 500 token=CANARY\r\nServer: a, b", "HTTP/1.1 500 ***|Server: a, b"},
		"no_target":     {"POST HTTP/1.1 CANARY\r\nHost: h", "***|Host: h"},
		"after_version": {"GET / HTTP/1.1 token=CANARY\r\nHost: h", "GET / ***|Host: h"},
		"no_header":     {"GET / HTTP/1.1\r\nmy password: CANARY", "GET / HTTP/1.1|***"},
		"link": {
			"HTTP/1.1 302 Found\r\nLocation: https://h/?code=CANARY",
			"HTTP/1.1 302 Found|Location: https://h/?code=***",
		},
		"relative_link": {
			"HTTP/1.1 302 Found\r\nLocation: /cb?code=CANARY",
			"HTTP/1.1 302 Found|Location: /cb?code=***",
		},
		"folded": {
			"GET / HTTP/1.1\r\nAuthorization: Bearer CANARY\r\n  CANARY\r\n\tx: CANARY\r\nA: b",
			"GET / HTTP/1.1|Authorization: Bearer " +
				"***|***|***|A: b",
		},
		"no_colon": {"GET / HTTP/1.1\r\nBearer CANARY\r\n: CANARY", "GET / HTTP/1.1|***|***"},
		"json": {
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\r\n{\"token\":\"CANARY\",\"n\":1.0}",
			`POST / HTTP/1.1|Host: h|Content-Type: application/json||{|  "token": "***",|  "n": 1.0|}`,
		},
		"form": {
			"POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\na=b&client_secret=CANARY",
			"POST / HTTP/1.1|Content-Type: application/x-www-form-urlencoded||a=b&client_secret=***",
		},
		"binary_body": {
			"POST / HTTP/1.1\r\nContent-Type: image/png\r\n\r\n\x89PNG\x00\x00\x00\x00",
			"POST / HTTP/1.1|Content-Type: image/png||(not shown without --reveal: binary, 8 bytes)",
		},
		"binary":  {strings.Repeat("\x00", 100), "(not shown without --reveal: binary, 100 bytes)"},
		"control": {"GET / HTTP/1.1\r\nX-A: \x1b[2J", "GET / HTTP/1.1|X-A: \ufffd[2J"},
		"long": {
			"POST / HTTP/1.1\r\nA: b\r\n\r\n<a>" + strings.Repeat("x y ", 5_000) + "</a>",
			"POST / HTTP/1.1|A: b||<a>" + strings.Repeat("x y ", 4_095) + "x|… (cut)",
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

// TestTextsInJSON checks that a text in JSON is masked if it parses, and hidden if it names a secret or is broken.
func TestTextsInJSON(t *testing.T) {
	for text, want := range map[string]string{
		"the token is gone":                     "the token is gone",
		"Unauthorized":                          "Unauthorized",
		"token":                                 "token",
		"token:":                                "token:",
		"[INFO] order 17":                       "[INFO] order 17",
		"[::1]:8080":                            "[::1]:8080",
		"{id} not found":                        "{id} not found",
		"a < b":                                 "a < b",
		"<https://h/?a=b>; rel=next":            "<https://h/?a=***>; rel=next",
		"see http://h/?a=b.":                    "see http://h/?a=***",
		"see (http://u:p@h/) and a@b.example":   "see (http://***@h/) and a@b.example",
		"or http://h:8080/a?b=c http://i/?d=e":  "or http://h:8080/a?b=*** http://i/?d=***",
		"see https://u:p/CANARY@h":              "see ***",
		"a://b":                                 "a://b",
		`{"password":"CANARY","a":1}`:           `{"password":"***","a":1}`,
		`<a><token>CANARY</token>b</a>`:         `<a><token>***</token>b</a>`,
		"Bearer CANARY":                         "Bearer ***",
		"the header was 'bearer CANARY'.":       "the header was 'bearer ***'.",
		"got \tBearer\n CANARY, Basic CANARY==": "got \tBearer\n ***, Basic ***",
		"https://h/a Bearer CANARY":             "https://h/a Bearer ***",
		"sent [Bearer CANARY]":                  "sent [Bearer ***]",
		"header=Bearer CANARY":                  "header=Bearer ***",
		"DPoP CANARY0123456789.a":               "DPoP ***",
		"NTLM TlRMTVNTUAABCANARY==":             "NTLM ***",
		"the bearer token CANARY-1 is invalid":  "the bearer token *** is invalid",
		"The bearer token is invalid":           "The bearer token is invalid",
		"Bearer authentication required.":       "Bearer authentication required.",
		"Basic plan, Basic 17, BASIC AUTH":      "Basic plan, Basic 17, BASIC AUTH",
		"Unexpected token < in JSON, token 4":   "Unexpected token < in JSON, token 4",
		"Bearer":                                "Bearer",
		// From here on it is unknown where the secret ends.
		"password=CANARY&b=c":                        "***",
		"password = CANARY b":                        "***",
		"x: 1\nToken:\n CANARY":                      "***",
		"Authorization: Bearer CANARY":               "***",
		`say "token": CANARY, "a": 1`:                "***",
		`say \"token\": \"CANARY`:                    "***",
		"Server=h;Pwd=CANARY;Database=d":             "***",
		"x <o:token>CANARY":                          "***",
		`x <token a="b">CANARY`:                      "***",
		`x https:\/\/u:CANARY@h\/`:                   "***",
		`{"password":"CANARY","a":1`:                 "***",
		` { "pass\u0077ord": "CANARY", `:             "***",
		`[{"name":"password","value":"CANARY"}`:      "***",
		`[true, {"name":"password","value":"CANARY"`: "***",
		`<a><token>CANARY</token>`:                   "***",
		`<token>CANARY`:                              "***",
		`<?xml version="1.0"?><a>CANARY`:             "***",
		`<!-- <a> --><b>CANARY</a>`:                  "***",
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

// TestXML checks that XML is masked by its parts, and that XML that is not well-formed is not shown.
func TestXML(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"element": {
			`<a><o:Password Type="t">CANARY</o:Password><b>1</b></a>`,
			`<a><o:Password Type="t">***</o:Password><b>1</b></a>`,
		},
		"nested":     {"<token><b>CANARY</b>\n<token>CANARY</token>CANARY</token>", "<token>***</token>"},
		"empty":      {"<token/><token></token><b>c</b>", "<token/><token></token><b>c</b>"},
		"cdata":      {"<password><![CDATA[CANARY</password>]]></password>", "<password>***</password>"},
		"attribute":  {`<a apiKey='CANARY' n='"1"'/>`, `<a apiKey="***" n="&#34;1&#34;"/>`},
		"credential": {`<a Authorization="Bearer CANARY">x</a>`, `<a Authorization="Bearer ***">x</a>`},
		"pair": {
			`<a><add name="password" value="CANARY"/><add name="size" value="1"/></a>`,
			`<a><add name="password" value="***"/><add name="size" value="1"/></a>`,
		},
		"pair_text": {`<item name="password">CANARY</item>`, `<item name="password">***</item>`},
		"text":      {"<a>password=CANARY</a>", "<a>***</a>"},
		"entities":  {"<a>password&#x3d;CANARY &lt;</a>", "<a>***</a>"},
		"link": {
			`<a href="https://h/?x=CANARY">https://u:CANARY@h/ &amp; more</a>`,
			`<a href="https://h/?x=***">https://***@h/ &amp; more</a>`,
		},
		"json":    {`<a>{"token":"CANARY","n":1}</a>`, `<a>{&#34;token&#34;:&#34;***&#34;,&#34;n&#34;:1}</a>`},
		"comment": {"<a><!-- token=CANARY --><!-- ok --></a>", "<a><!--***--><!-- ok --></a>"},
		"instruction": {
			`<?xml version="1.0" encoding="utf-16"?><?x CANARY?><a/>`,
			`<?xml version="1.0" encoding="utf-16"?><?x ***?><a/>`,
		},
		"doctype":   {`<!DOCTYPE a [<!ENTITY x "CANARY">]><a>1</a>`, `<!***><a>1</a>`},
		"html":      {"<!DOCTYPE html>\n<p>no order</p>", "<!DOCTYPE html>\n<p>no order</p>"},
		"after":     {"<a/>\ntoken: CANARY", "<a/>***"},
		"cut":       {"<a><token>CANARY</token>", ""},
		"cut_tag":   {`<a b="CANARY`, ""},
		"crossed":   {"<a><token>CANARY</a></token>", ""},
		"no_start":  {"</a>CANARY", ""},
		"unquoted":  {"<a token=CANARY>1</a>", ""},
		"ampersand": {"<a>CANARY & more</a>", ""},
		"entity":    {"<a>CANARY&nbsp;</a>", ""},
		"not_utf8":  {"<a>CANARY \xe4</a>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := mustParse(t, `{"asyncCaller":1,"call":{"url":"http://t.example","bodyBase64":"`+inBase64(test.body)+
				`"}}`)
			got := mask.ShowCall(e, mask.Hidden)
			if got.Body != test.want || got.BodyKind != mask.BodyText || got.BodyBytes != len(test.body) {
				t.Errorf("%s is shown as %d bytes of %s: %s", test.body, got.BodyBytes, got.BodyKind, got.Body)
			}
			if got := mask.ShowCall(e, mask.Revealed).Body; got != strings.ToValidUTF8(test.body, "\ufffd") {
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
		Method: "purge", URL: "http://t.example", BodyKind: mask.BodyNone,
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
		"e?x=***" || got.Body != "" || got.BodyKind != mask.BodyText ||
		got.Context != "{\n  \"secret\": \"***\",\n  \"a\": 1\n}" {
		t.Errorf("Nexus call %+v", got)
	}
}
