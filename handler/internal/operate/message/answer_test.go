package message_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/strictjson"
)

// answered returns the dead letter that the handler writes for this answer.
func answered(t *testing.T, contentType, body string) string {
	t.Helper()
	return settled(t, native(""), decision.Outcome{
		Status: 422, Header: http.Header{"Content-Type": {contentType}},
		Body: []byte(body),
	})
}

func showAnswer(t *testing.T, text string, secrets message.Secrets) *message.Answer {
	t.Helper()
	e, err := envelope.Parse(rules().Content(text))
	if err != nil {
		t.Fatal(err)
	}
	return message.ShowAnswer(e, secrets)
}

func TestShowAnswer(t *testing.T) {
	const asJSON = "application/json"
	long := strings.Repeat("word ", 500)
	for name, test := range map[string]struct {
		contentType, body string
		masked            message.Answer
		revealed          string
	}{
		"text": {
			"text/plain", "no\r\norder",
			message.Answer{MediaType: "text/plain", BodyKind: message.BodyText, BodyBytes: 9},
			"no\norder",
		},
		"empty":   {"text/plain", "", message.Answer{MediaType: "text/plain", BodyKind: message.BodyNone}, ""},
		"no_type": {"", "x", message.Answer{BodyKind: message.BodyText, BodyBytes: 1}, "x"},
		"json": {
			asJSON, `{"error":"x","token":"SECRET"}`,
			message.Answer{
				MediaType: asJSON, Body: "{\n  \"error\": \"x\",\n  \"token\": \"***\"\n}",
				BodyKind: message.BodyJSON, BodyBytes: 30,
			},
			"{\n  \"error\": \"x\",\n  \"token\": \"SECRET\"\n}",
		},
		"cut_json": {
			asJSON, `{"token":"SECRET","x":"` + strings.Repeat("y", 3000),
			message.Answer{MediaType: asJSON, BodyKind: message.BodyText, BodyBytes: 2048, Truncated: true},
			`{"token":"SECRET","x":"` + strings.Repeat("y", 2048-23),
		},
		"well_formed_html": {
			"text/html; charset=utf-8", "<html>\n<h1>No order</h1>\n</html>",
			message.Answer{
				MediaType: "text/html", Body: "<html>\n<h1>No order</h1>\n</html>",
				BodyKind: message.BodyText, BodyBytes: 32,
			},
			"<html>\n<h1>No order</h1>\n</html>",
		},
		"html": {
			"text/html", "<html>\n<h1>No order</h1><hr>\n</html>",
			message.Answer{MediaType: "text/html", BodyKind: message.BodyText, BodyBytes: 36},
			"<html>\n<h1>No order</h1><hr>\n</html>",
		},
		"control": {
			"text/plain", "a\x1b[2J\x07 \u202e \u009b and more of the same text",
			message.Answer{MediaType: "text/plain", BodyKind: message.BodyText, BodyBytes: 39},
			"a\ufffd[2J\ufffd \ufffd \ufffd and more of the same text",
		},
		"long": {"text/plain", long, message.Answer{
			MediaType: "text/plain", BodyKind: message.BodyText,
			BodyBytes: 2048, Truncated: true,
		}, long[:2048]},
		"binary": {
			"image/png", "\x89PNG\x00\x00\x00",
			message.Answer{MediaType: "image/png", BodyKind: message.BodyBinary, BodyBytes: 9},
			"00000000  ef bf bd 50 4e 47 00 00  00                       |...PNG...|\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := answered(t, test.contentType, test.body)
			test.masked.Status = 422
			if diff := cmp.Diff(&test.masked, showAnswer(t, text, message.Masked)); diff != "" {
				t.Errorf("masked (-want +got):\n%s", diff)
			}
			if got := showAnswer(t, text, message.Revealed).Body; got != test.revealed {
				t.Errorf("revealed %q\nwant %q", got, test.revealed)
			}
		})
	}
}

// TestShowAnswerNexus checks that a Nexus envelope without a dead letter of ours shows the target's latest response.
func TestShowAnswerNexus(t *testing.T) {
	latest := inBase64("HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nno order 17")
	text := inBase64(nexus(`,"LatestResponse":"` + latest + `"`))
	want := message.Answer{Status: 500, MediaType: "text/plain", BodyKind: message.BodyText, BodyBytes: 11}
	if diff := cmp.Diff(&want, showAnswer(t, text, message.Masked)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if got := read(text).Answer; got != "no order {n}" {
		t.Errorf("group %q", got)
	}
	if got := showAnswer(t, inBase64(nexus("")), message.Masked); got != nil {
		t.Errorf("answer %+v, want none", got)
	}
}

// TestAnswerKeys checks the keys of answers whose media type matters.
func TestAnswerKeys(t *testing.T) {
	for name, test := range map[string]struct{ contentType, body, want string }{
		"form":        {"application/x-www-form-urlencoded", "a=b&client_secret=SECRET", "a=b&client_secret=***"},
		"broken_form": {"application/x-www-form-urlencoded", "a=%zz&client_secret=SECRET", "***"},
		"html":        {"text/html", "<p>Order 17<br>not found", "Order {n} not found"},
		"html_secret": {"text/html", "<p><x:token>SECRET<br>", "(unreadable XML answer)"},
		"xml":         {"text/xml", "<p>SECRET<br>", "(unreadable XML answer)"},
		"cut_json":    {"application/json", `{"x":"` + strings.Repeat("y", 3000), "(unreadable JSON answer)"},
		"large_json": {
			"application/json", `{"x":"` + strings.Repeat("y ", 1000) + `"}`,
			`{"x":"` + strings.Repeat("y ", 95) + "…",
		},
		"no_json":   {"application/json", "Internal error", "Internal error"},
		"json_text": {"text/plain", `token: {"a":`, "***"},
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
		"nested":   {`{"text":"` + strings.Repeat("[", 30_000) + `"}`, "(unreadable JSON answer)"},
		"escapes": {
			`{"mediaType":"\u001b[2J","text":"\u001b]0;x\u0007 is what the target says"}`,
			"\ufffd]{n};x\ufffd is what the target says",
		},
		"only_controls": {`{"text":"\u001b\u001b\u001b"}`, "(binary answer)"},
	} {
		t.Run(name, func(t *testing.T) {
			text := inBase64(native(`,"deadLetter":{"reason":"rejected","answer":` + test.answer + `}`))
			m := read(text)
			if got := message.ByAnswer.Key(m); got != test.want {
				t.Errorf("group %q, want %q", got, test.want)
			}
			shown, err := json.Marshal(showAnswer(t, text, message.Masked))
			if err != nil || len(shown) > 128<<10 || strictjson.ReplaceUnprintable(string(shown)) != string(shown) {
				t.Errorf("%v: %d bytes, or not printable: %.300q", err, len(shown), shown)
			}
		})
	}
}

// BenchmarkReadAnswer measures the largest answer, beside none.
func BenchmarkReadAnswer(b *testing.B) {
	for name, answer := range map[string]string{
		"none": `null`, "short": `{"text":"{\"error\":\"order 17 not found\"}"}`,
		"long": `{"text":"` + strings.Repeat(`{\"error\":\"order 17 not found\"}, `, 50) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			text := inBase64(native(`,"deadLetter":{"reason":"rejected","answer":` + answer + `}`))
			for b.Loop() {
				read(text)
			}
		})
	}
}
