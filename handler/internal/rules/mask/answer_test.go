package mask_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
)

func TestShowAnswer(t *testing.T) {
	const asJSON = "application/json"
	long := strings.Repeat("word ", 500)
	cut := strings.TrimSpace(long[:1020])
	for name, test := range map[string]struct {
		contentType, body string
		masked            mask.Body
		isCut             bool
		revealed          string
	}{
		"text": {
			"text/plain", "no\r\norder",
			mask.Body{Text: "no …", Kind: mask.BodyText, Bytes: 9, Partial: true},
			false,
			"no\norder",
		},
		"empty": {"text/plain", "", mask.Body{Kind: mask.BodyNone}, false, ""},
		"json": {
			asJSON, `{"error":"x","token":"SECRET"}`,
			mask.Body{Text: "{\n  \"error\": \"x\",\n  \"token\": \"***\"\n}", Kind: mask.BodyJSON, Bytes: 30},
			false,
			"{\n  \"error\": \"x\",\n  \"token\": \"SECRET\"\n}",
		},
		"cut_json": {
			asJSON, `{"token":"SECRET","x":"` + strings.Repeat("y", 3000),
			mask.Body{Text: "{\n  \"token\": \"***\"\n} …", Kind: mask.BodyText, Bytes: 2048, Partial: true},
			true,
			`{"token":"SECRET","x":"` + strings.Repeat("y", 2048-23),
		},
		"control": {
			"text/plain", "a\x1b[2J\x07 \u202e \u009b and more of the same text",
			mask.Body{Text: "a\ufffd[2J\ufffd \ufffd \ufffd and more of the same text", Kind: mask.BodyText, Bytes: 39},
			false, "a\ufffd[2J\ufffd \ufffd \ufffd and more of the same text",
		},
		"long": {
			"text/plain", long,
			mask.Body{Text: cut + " …", Kind: mask.BodyText, Bytes: 2048, Partial: true},
			true,
			long[:2048],
		},
		"binary": {
			"image/png", "\x89PNG\x00\x00\x00",
			mask.Body{Kind: mask.BodyBinary, Bytes: 9},
			false,
			"00000000  ef bf bd 50 4e 47 00 00  00                       |...PNG...|\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := &envelope.Answer{
				Status: 422, Header: http.Header{"Content-Type": {test.contentType}}, Body: []byte(test.body),
			}
			e := &envelope.Envelope{DeadLetter: &envelope.DeadLetter{Answer: answer.Excerpt()}}
			test.masked.Truncated = test.isCut
			mediaType, _, _ := strings.Cut(test.contentType, ";")
			want := &mask.Answer{Status: 422, MediaType: mediaType, Body: test.masked}
			if diff := cmp.Diff(want, mask.ShowAnswer(e, mask.Hidden)); diff != "" {
				t.Errorf("masked (-want +got):\n%s", diff)
			}
			if got := mask.ShowAnswer(e, mask.Revealed).Text; got != test.revealed {
				t.Errorf("revealed %q\nwant %q", got, test.revealed)
			}
		})
	}
}

// TestShowAnswerNexus checks that a Nexus envelope without a dead letter of ours shows the target's latest response.
func TestShowAnswerNexus(t *testing.T) {
	latest := inBase64("HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nno order 17")
	request := `"RawRequest":{"Id":"order-42","CallOut":"` +
		inBase64("GET / HTTP/1.1\r\nHost: t.example\r\n\r\n") + `"}}`
	e := mustParse(t, `{"LatestResponse":"`+latest+`",`+request)
	want := mask.Answer{
		Status: 500, MediaType: "text/plain",
		Body: mask.Body{Text: "no order 17", Kind: mask.BodyText, Bytes: 11},
	}
	if diff := cmp.Diff(&want, mask.ShowAnswer(e, mask.Hidden)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if got := mask.ShowAnswer(mustParse(t, "{"+request), mask.Hidden); got != nil {
		t.Errorf("answer %+v, want none", got)
	}
}

// TestAnswerLine: what a target said is readable in one line, whatever it sent, and without secrets.
func TestAnswerLine(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, row := range map[string]struct{ mediaType, body, want string }{
		"json":     {"application/json", "{\"error\": \"down\",\n \"code\": 7}", `{"error":"down","code":7}`},
		"json_cut": {"application/json", `{"error":{"code":7,"text":"` + long + `"}}`, `{"error":{"code":7}}`},
		"json_cut_secret": {
			"", `{"apiKey":"s3cr3t","list":[1,2,{"a":true,"b":"` + long, `{"apiKey":"***","list":[1,2,{"a":true}]}`,
		},
		"json_cut_name":   {"", `{"a":{}, "b"` + strings.Repeat(" ", 5000), `{"a":{}}`},
		"json_cut_number": {"", `[[1],2` + strings.Repeat("0", 5000), `[[1]]`},
		"json_cut_early":  {"", `["` + long, "(unreadable answer)"},
		"json_broken":     {"", `{"password":"hunter2`, "(unreadable answer)"},
		"html": {
			"text/html", "<html><head><title>503 Service Unavailable</title><body><h1>Sorry</h1><br>",
			"503 Service Unavailable",
		},
		"text":   {"text/plain", "\r\n Down for \x1b[2J\r\n maintenance", "Down for \ufffd[2J"},
		"binary": {"", "\x00\x01\x02\x03", "(binary answer)"},
		"empty":  {"text/plain", " \n", "(empty answer)"},
		"none":   {"", "", "(empty answer)"},
		"long":   {"", long, "(unreadable answer)"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := &envelope.Answer{
				Status: 503, Header: http.Header{"Content-Type": {row.mediaType}}, Body: []byte(row.body),
			}
			if got := mask.AnswerLine(answer.Excerpt()); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	for coding, body := range map[string]string{"br": "\x8b\x00\x80x\x03", "identity": strings.Repeat("[", 5000)} {
		header := http.Header{"Content-Encoding": {coding}}
		answer := &envelope.Answer{Status: 503, Header: header, Body: []byte(body)}
		if got := mask.AnswerLine(answer.Excerpt()); got != "(unreadable answer)" {
			t.Errorf("%s, %.9q: %q", coding, body, got)
		}
	}
	if got := mask.AnswerLine(nil); got != "" {
		t.Errorf("without an answer: %q", got)
	}
}
