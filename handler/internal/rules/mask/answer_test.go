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
	for name, test := range map[string]struct {
		contentType, body string
		masked            mask.Answer
		revealed          string
	}{
		"text": {
			"text/plain", "no\r\norder",
			mask.Answer{MediaType: "text/plain", BodyKind: mask.BodyText, BodyBytes: 9},
			"no\norder",
		},
		"empty":   {"text/plain", "", mask.Answer{MediaType: "text/plain", BodyKind: mask.BodyNone}, ""},
		"no_type": {"", "x", mask.Answer{BodyKind: mask.BodyText, BodyBytes: 1}, "x"},
		"json": {
			asJSON, `{"error":"x","token":"SECRET"}`,
			mask.Answer{
				MediaType: asJSON, Body: "{\n  \"error\": \"x\",\n  \"token\": \"***\"\n}",
				BodyKind: mask.BodyJSON, BodyBytes: 30,
			},
			"{\n  \"error\": \"x\",\n  \"token\": \"SECRET\"\n}",
		},
		"cut_json": {
			asJSON, `{"token":"SECRET","x":"` + strings.Repeat("y", 3000),
			mask.Answer{MediaType: asJSON, BodyKind: mask.BodyText, BodyBytes: 2048, Truncated: true},
			`{"token":"SECRET","x":"` + strings.Repeat("y", 2048-23),
		},
		"well_formed_html": {
			"text/html; charset=utf-8", "<html>\n<h1>No order</h1>\n</html>",
			mask.Answer{
				MediaType: "text/html", Body: "<html>\n<h1>No order</h1>\n</html>",
				BodyKind: mask.BodyText, BodyBytes: 32,
			},
			"<html>\n<h1>No order</h1>\n</html>",
		},
		"html": {
			"text/html", "<html>\n<h1>No order</h1><hr>\n</html>",
			mask.Answer{MediaType: "text/html", BodyKind: mask.BodyText, BodyBytes: 36},
			"<html>\n<h1>No order</h1><hr>\n</html>",
		},
		"control": {
			"text/plain", "a\x1b[2J\x07 \u202e \u009b and more of the same text",
			mask.Answer{MediaType: "text/plain", BodyKind: mask.BodyText, BodyBytes: 39},
			"a\ufffd[2J\ufffd \ufffd \ufffd and more of the same text",
		},
		"long": {"text/plain", long, mask.Answer{
			MediaType: "text/plain", BodyKind: mask.BodyText,
			BodyBytes: 2048, Truncated: true,
		}, long[:2048]},
		"binary": {
			"image/png", "\x89PNG\x00\x00\x00",
			mask.Answer{MediaType: "image/png", BodyKind: mask.BodyBinary, BodyBytes: 9},
			"00000000  ef bf bd 50 4e 47 00 00  00                       |...PNG...|\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := &envelope.Answer{
				Status: 422, Header: http.Header{"Content-Type": {test.contentType}}, Body: []byte(test.body),
			}
			e := &envelope.Envelope{DeadLetter: &envelope.DeadLetter{Answer: answer.Excerpt()}}
			test.masked.Status = 422
			if diff := cmp.Diff(&test.masked, mask.ShowAnswer(e, mask.Hidden)); diff != "" {
				t.Errorf("masked (-want +got):\n%s", diff)
			}
			if got := mask.ShowAnswer(e, mask.Revealed).Body; got != test.revealed {
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
	want := mask.Answer{Status: 500, MediaType: "text/plain", BodyKind: mask.BodyText, BodyBytes: 11}
	if diff := cmp.Diff(&want, mask.ShowAnswer(e, mask.Hidden)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if got := mask.ShowAnswer(mustParse(t, "{"+request), mask.Hidden); got != nil {
		t.Errorf("answer %+v, want none", got)
	}
}
