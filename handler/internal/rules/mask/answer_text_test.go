package mask_test

import (
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
)

// TestAnswerText: what a target said is readable in one line, whatever it sent, and without secrets.
func TestAnswerText(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, row := range map[string]struct{ mediaType, body, want string }{
		"json": {"application/json", "{\"error\": \"down\",\n \"code\": 7}", `{"error":"down","code":7}`},
		"json_secret": {
			"application/json", `{"error":"down","password":"hunter2"}`, `{"error":"down","password":"***"}`,
		},
		"json_cut": {"application/json", `{"error":{"code":7,"text":"` + long + `"}}`, `{"error":{"code":7}}`},
		"json_cut_secret": {
			"", `{"apiKey":"s3cr3t","list":[1,2,{"a":true,"b":"` + long, `{"apiKey":"***","list":[1,2,{"a":true}]}`,
		},
		"json_cut_name":   {"", `{"a":{}, "b"` + strings.Repeat(" ", 5000), `{"a":{}}`},
		"json_cut_number": {"", `[[1],2` + strings.Repeat("0", 5000), `[[1]]`},
		"json_cut_early":  {"", `["` + long, `[]`},
		"json_broken":     {"", `{"password":"hunter2`, "(unreadable JSON answer)"},
		"xml": {
			"text/xml", "<error>\n <password>hunter2</password> <text>down</text></error>",
			"<error> <password>***</password> <text>down</text></error>",
		},
		"xml_broken": {"text/xml", "<error><password>hunter2", "(unreadable XML answer)"},
		"html": {
			"text/html", "<html><head><title>503 Service Unavailable</title><body><h1>Sorry</h1><br>",
			"503 Service Unavailable Sorry",
		},
		"text":        {"text/plain", "Down for\r\n maintenance \x1b[2J", "Down for maintenance \ufffd[2J"},
		"text_secret": {"text/plain", "cannot connect\npassword=hunter2\nbye", "cannot connect *** bye"},
		"binary":      {"", "\x00\x01\x02\x03", "(binary answer)"},
		"empty":       {"text/plain", " \n", "(empty answer)"},
		"none":        {"", "", "(empty answer)"},
		"long":        {"", long, strings.Repeat("x", mask.MaxAnswerText-len("…")) + "…"},
		"wide":        {"", strings.Repeat("é", 200), strings.Repeat("é", 126) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := &envelope.Answer{
				Status: 503, Header: http.Header{"Content-Type": {row.mediaType}}, Body: []byte(row.body),
			}
			if got := mask.AnswerText(answer); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	encoded := &envelope.Answer{
		Status: 503, Header: http.Header{"Content-Encoding": {"br"}}, Body: []byte("\x8b\x00\x80x\x03"),
	}
	if got := mask.AnswerText(encoded); got != "(unreadable answer)" {
		t.Errorf("an encoded answer: %q", got)
	}
	deep := &envelope.Answer{Status: 503, Body: []byte(strings.Repeat("[", 5000))}
	if got := mask.AnswerText(deep); !strings.HasPrefix(got, "[[[[[") || len(got) > mask.MaxAnswerText {
		t.Errorf("nested arrays: %q", got)
	}
	if got := mask.AnswerText(nil); got != "" {
		t.Errorf("without an answer: %q", got)
	}
}
