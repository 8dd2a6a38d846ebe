package message_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/operate/message"
)

// TestShowContentCallOut checks that the HTTP message in a Nexus envelope is shown in lines, even if it is malformed.
func TestShowContentCallOut(t *testing.T) {
	for name, test := range map[string]struct{ message, want string }{
		"no_body":         {"GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a HTTP/1.1|Host: h"},
		"line_feeds_only": {"GET /a?b=CANARY HTTP/1.1\nHost: h\nCookie: CANARY\n\nbody", "GET /a?b=*** HTTP/1.1|Host: h|Cookie: ***||body"},
		"absolute_target": {"GET https://u:CANARY@h/?a=CANARY HTTP/1.1\r\nHost: h", "GET https://***@h/?a=*** HTTP/1.1|Host: h"},
		"spaces":          {"GET /?a=CANARY b=CANARY HTTP/1.1\r\nHost:   h  ", "GET /?a=*** HTTP/1.1|Host: h"},
		"no_version":      {"GET /?a=CANARY\r\nHost: h", "***|Host: h"},
		"status_line":     {"HTTP/1.1 500 token=CANARY\r\nServer: a, b", "HTTP/1.1 500 token=***|Server: a, b"},
		"link":            {"HTTP/1.1 302 Found\r\nLocation: https://h/?code=CANARY", "HTTP/1.1 302 Found|Location: https://h/?code=***"},
		"relative_link":   {"HTTP/1.1 302 Found\r\nLocation: /cb?code=CANARY", "HTTP/1.1 302 Found|Location: /cb?code=***"},
		"folded": {"GET / HTTP/1.1\r\nAuthorization: Bearer CANARY\r\n  CANARY\r\n\tx: CANARY\r\nA: b", "GET / HTTP/1.1|Authorization: Bearer " +
			"***|***|***|A: b"},
		"no_colon": {"GET / HTTP/1.1\r\nBearer CANARY\r\n: CANARY", "GET / HTTP/1.1|***|***"},
		"json": {
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\r\n{\"token\":\"CANARY\",\"n\":1.0}",
			`POST / HTTP/1.1|Host: h|Content-Type: application/json||{|  "token": "***",|  "n": 1.0|}`,
		},
		"form": {
			"POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\na=b&client_secret=CANARY",
			"POST / HTTP/1.1|Content-Type: application/x-www-form-urlencoded||a=b&client_secret=***",
		},
		"binary_body": {"POST / HTTP/1.1\r\nContent-Type: image/png\r\n\r\n\x89PNG\x00\x00\x00\x00", "POST / HTTP/1.1|Content-Type: image/png||(binary, 8 bytes)"},
		"binary":      {strings.Repeat("\x00", 100), "(binary, 100 bytes)"},
		"control":     {"GET / HTTP/1.1\r\nX-A: \x1b[2J", "GET / HTTP/1.1|X-A: \ufffd[2J"},
		"long":        {"POST / HTTP/1.1\r\nA: b\r\n\r\n" + strings.Repeat("x y ", 5_000), "POST / HTTP/1.1|A: b||" + strings.Repeat("x y ", 4_096) + "|… (cut)"},
	} {
		t.Run(name, func(t *testing.T) {
			content := `{"RawRequest":{"callout":"` + inBase64(test.message) + `"}}`
			got := string(message.ShowContent([]byte(content), message.Masked))
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

// TestShowContentText checks that a value in text is hidden up to its certain end.
func TestShowContentText(t *testing.T) {
	for text, want := range map[string]string{
		"password=a&b=c":                       "password=***&b=c",
		"password = a b":                       "password = *** b",
		"Authorization=Bearer a b":             "Authorization=*** b",
		`password="a b" c=d`:                   "password=*** c=d",
		`password='a "b' c=d`:                  "password=*** c=d",
		`say "token": 5, "a": 1`:               `say "token": ***, "a": 1`,
		`say "token": [1,"]",{"a":2}], "a":1`:  `say "token": ***, "a":1`,
		`say "token": {"a":`:                   `say "token": ***`,
		`say "token": "a\"b", "c"`:             `say "token": ***, "c"`,
		`say "token": "a`:                      `say "token": ***`,
		"token: a, b\nc: d":                    "token: ***\nc: d",
		"the token is gone":                    "the token is gone",
		"token":                                "token",
		"token=":                               "token=",
		"token:\n":                             "token:",
		"<token>a</token><b>c</b>":             "<token>***</token><b>c</b>",
		"<x:token>a":                           "<x:token>***",
		"<token/><b>c</b>":                     "<token/>***</b>", // too much, but never too little
		"</token>a":                            "</token>a",
		"<token><b>a</b>":                      "<token>***</b>",
		"secret=a\\nkey=b c\nd":                "secret=***\nd",
		"see http://h/?a=b.":                   "see http://h/?a=***",
		"see (http://u:p@h/) and a@b.example":  "see (http://***@h/) and a@b.example",
		"a://b":                                "a://b",
		"Server=h;Pwd=a;Database=d":            "Server=h;Pwd=***;Database=d",
		"or http://h:8080/a?b=c http://i/?d=e": "or http://h:8080/a?b=*** http://i/?d=***",
	} {
		if got := strings.TrimSuffix(string(message.ShowContent([]byte(text), message.Masked)), "\n"); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
		if got := string(message.ShowContent([]byte(text), message.Revealed)); got != strings.TrimSuffix(text, "\n")+"\n" {
			t.Errorf("%q is revealed as %q", text, got)
		}
	}
}

// TestShowCallParts covers parts that few calls have.
func TestShowCallParts(t *testing.T) {
	e := mustParse(t, `{"asyncCaller":1,"call":{"url":"http://t.example","method":"purge","headers":{"Host":"other.example:8080","X-B":["1","2"]}}}`)
	want := message.Call{
		Method: "purge", URL: "http://t.example", BodyKind: message.BodyNone,
		Headers: []message.Header{{Name: "Host", Value: "other.example:8080"}, {Name: "X-B", Value: "1"}, {Name: "X-B", Value: "2"}},
	}
	if diff := cmp.Diff(want, message.ShowCall(e, message.Masked)); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	got := message.ShowCall(mustParse(t, nexusSecrets), message.Masked)
	if got.URL != "https://t.example/orders?code=***" || got.Method != "PUT" || got.Callback != "http://s.example/don"+
		"e?x=***" || got.Body != "hello\npassword=***" ||
		got.Context != "{\n  \"secret\": \"***\",\n  \"a\": 1\n}" {
		t.Errorf("Nexus call %+v", got)
	}
}
