package message_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
)

// answered returns the dead letter that the handler writes for this answer.
func answered(t *testing.T, contentType, body string) string {
	t.Helper()
	return settled(t, native(""), decision.Outcome{
		Status: 422, Header: http.Header{"Content-Type": {contentType}},
		Body: []byte(body),
	})
}

// TestAnswerKeys checks the keys of answers whose media type matters.
func TestAnswerKeys(t *testing.T) {
	latest := inBase64("HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nno order 17")
	if got := read(inBase64(nexus(`,"LatestResponse":"` + latest + `"`))).Answer; got != "no order {n}" {
		t.Errorf("latest response of a Nexus envelope: group %q", got)
	}
	for name, test := range map[string]struct{ contentType, body, want string }{
		"form":        {"application/x-www-form-urlencoded", "a=b&client_secret=SECRET", "a=b&client_secret=***"},
		"broken_form": {"application/x-www-form-urlencoded", "a=%zz&client_secret=SECRET", "(unreadable answer)"},
		"html":        {"text/html", "<p>Order <b>17</b> not found<br>SECRET", "Order {n} not found"},
		"html_secret": {"text/html", "<p><x:token>SECRET<br>", "(unreadable answer)"},
		"xml":         {"text/xml", "<p>Order 17<br>SECRET", "Order {n}"},
		"cut_json":    {"application/json", `{"x":"` + strings.Repeat("y", 3000), "(unreadable answer)"},
		"cut_text":    {"application/json", `{"x":"` + strings.Repeat("y ", 3000), `{"x":"` + strings.Repeat("y ", 95) + "…"},
		"large_json": {
			"application/json", `{"x":"` + strings.Repeat("y ", 1000) + `"}`,
			`{"x":"` + strings.Repeat("y ", 95) + "…",
		},
		"no_json":   {"application/json", "Internal error", "Internal error"},
		"json_text": {"text/plain", `token: {"a":`, "token: ***"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := message.ByAnswer.Key(read(answered(t, test.contentType, test.body))); got != test.want {
				t.Errorf("key %q, want %q", got, test.want)
			}
		})
	}
}

// TestHostileAnswers: any sender can have written a dead letter.
func TestHostileAnswers(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"null":        {`null`, "(no answer)"},
		"wrong_type":  {`"no order"`, "(empty answer)"},
		"wrong_types": {`{"status":"x","mediaType":5,"text":[],"truncated":0}`, "(empty answer)"},
		"large": {`{"status":-9223372036854775808,"mediaType":"` + strings.Repeat("x", 10_000) + `","text":"` +
			strings.Repeat("<", 25_000) + `"}`, strings.Repeat("<", 197) + "…"},
		"not_kept": {`{"status":503,"text":"","truncated":true}`, "(unreadable answer)"},
		"nested":   {`{"text":"` + strings.Repeat("[", 30_000) + `"}`, "(unreadable answer)"},
		"escapes": {
			`{"mediaType":"\u001b[2J","text":"\u001b]0;x\u0007 is what the target says"}`,
			"\ufffd]{n};x\ufffd is what the target says",
		},
		"only_controls": {`{"text":"\u001b\u001b\u001b"}`, "(binary answer)"},
	} {
		t.Run(name, func(t *testing.T) {
			content := native(`,"deadLetter":{"reason":"rejected","answer":` + test.answer + `}`)
			m := read(inBase64(content))
			if got := message.ByAnswer.Key(m); got != test.want {
				t.Errorf("group %q, want %q", got, test.want)
			}
			e, err := envelope.Parse([]byte(content))
			if err != nil {
				t.Fatal(err)
			}
			shown, err := json.Marshal(mask.ShowAnswer(e, mask.Hidden))
			if err != nil || len(shown) > 128<<10 || text.Printable(string(shown)) != string(shown) {
				t.Errorf("%v: %d bytes, or not printable: %.300q", err, len(shown), shown)
			}
		})
	}
}
