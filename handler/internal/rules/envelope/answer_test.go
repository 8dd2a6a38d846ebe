package envelope_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// deadAnswer returns the answer in the dead letter of an envelope with this latest answer.
func deadAnswer(
	t *testing.T, content string, latest *envelope.Answer,
) (answer *envelope.Excerpt, written envelope.Content) {
	t.Helper()
	e := accept(t, content)
	state := e.State
	state.Latest = latest
	written, err := e.WithState(state).
		DeadLettered(envelope.DeadLetter{At: arrival, Reason: "rejected", Queue: "async-caller", Attempts: 1}, limit)
	if err != nil {
		t.Fatal(err)
	}
	if len(written.Bytes) > limit || !utf8.Valid(written.Bytes) {
		t.Fatalf("%d bytes, or not UTF-8", len(written.Bytes))
	}
	again, err := envelope.Parse(written.Bytes)
	if err != nil || again.DeadLetter == nil || again.DeadLetter.Reason != "rejected" {
		t.Fatalf("%v: not a dead letter: %s", err, written.Bytes)
	}
	return again.DeadLetter.Answer, written
}

// TestDeadLetterAnswer checks what a person can read of the target's answer, alike in both formats.
func TestDeadLetterAnswer(t *testing.T) {
	const KiB = 1 << 10
	long := strings.Repeat("é", KiB)
	for name, test := range map[string]struct {
		contentType, body string
		truncated         bool
		want              envelope.Excerpt
	}{
		"text": {
			"text/plain; charset=utf-8", "no order", false,
			envelope.Excerpt{MediaType: "text/plain", Text: "no order"},
		},
		"json": {
			"application/problem+json", `{"a":"\u001b"}`, false,
			envelope.Excerpt{MediaType: "application/problem+json", Text: `{"a":"\u001b"}`},
		},
		"no_type":         {"", "x", false, envelope.Excerpt{Text: "x"}},
		"invalid_type":    {"\x1b", "x", false, envelope.Excerpt{Text: "x"}},
		"long_type":       {longMediaType, "x", false, envelope.Excerpt{MediaType: longMediaType[:100], Text: "x"}},
		"empty":           {"text/plain", "", false, envelope.Excerpt{MediaType: "text/plain"}},
		"empty_truncated": {"text/plain", "", true, envelope.Excerpt{MediaType: "text/plain", Truncated: true}},
		"latin1": {
			"text/plain; charset=iso-8859-1", "f\xf6r", false,
			envelope.Excerpt{MediaType: "text/plain", Text: "för"},
		},
		"utf16": {
			"text/plain; charset=utf-16", "\xff\xfef\x00\xf6\x00", false,
			envelope.Excerpt{MediaType: "text/plain", Text: "fö"},
		},
		"control": {
			"text/plain", "a\x00\x1b[2J\r\nb", false,
			envelope.Excerpt{MediaType: "text/plain", Text: "a\x00\x1b[2J\r\nb"},
		},
		"not_utf8": {
			"text/plain", "a\xff\xfeb", false,
			envelope.Excerpt{MediaType: "text/plain", Text: "a\ufffdb"},
		},
		"not_in_xml": {
			"text/plain", "a\ufffe\uffffb", false,
			envelope.Excerpt{MediaType: "text/plain", Text: "a\ufffd\ufffdb"},
		},
		"2_kib": {"text/plain", long, false, envelope.Excerpt{MediaType: "text/plain", Text: long}},
		"2_kib_truncated": {
			"text/plain", long, true,
			envelope.Excerpt{MediaType: "text/plain", Text: long, Truncated: true},
		},
		"longer": {
			"text/plain", long + "x", false,
			envelope.Excerpt{MediaType: "text/plain", Text: long, Truncated: true},
		},
		"within_character": {
			"text/plain", "x" + long, false,
			envelope.Excerpt{MediaType: "text/plain", Text: "x" + long[:2*KiB-2], Truncated: true},
		},
		"much_longer": {
			"text/plain", strings.Repeat(long, 32), true,
			envelope.Excerpt{MediaType: "text/plain", Text: long, Truncated: true},
		},
		"longer_utf16": {
			"text/plain; charset=utf-16le", strings.Repeat("e\x00", 3*KiB), false,
			envelope.Excerpt{MediaType: "text/plain", Text: strings.Repeat("e", 2*KiB), Truncated: true},
		},
		"read_within_character": {
			"text/plain", "f\xc3", true,
			envelope.Excerpt{MediaType: "text/plain", Text: "f", Truncated: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.Status = 422
			answer := envelope.Answer{
				Status: 422, Header: http.Header{}, Body: []byte(test.body),
				Truncated: test.truncated,
			}
			if test.contentType != "" {
				answer.Header.Set("Content-Type", test.contentType)
			}
			for format, content := range map[string]string{
				"native": `{"asyncCaller":1,"requestId":"r","call":{"url":"http://a"}}`,
				"nexus":  nexusMessage(plainCall, ""),
			} {
				got, written := deadAnswer(t, content, &answer)
				if got == nil || *got != test.want || written.LeftOut != "" && len(test.body) < 48*KiB {
					t.Errorf("%s: left out %q, answer %+v\nwant %+v", format, written.LeftOut, got, test.want)
				}
			}
		})
	}
}

func TestDeadLetterWithoutAnswer(t *testing.T) {
	for format, content := range map[string]string{
		"native": `{"asyncCaller":1,"requestId":"r","call":{"url":"http://a"}}`,
		"nexus":  nexusMessage(plainCall, ""),
		"earlier_life": `{"asyncCaller":1,"requestId":"r","call":{"url":"http://a"},` +
			`"deadLetter":{"reason":"rejected","answer":{"status":400,"text":"old"}}}`,
	} {
		if got, written := deadAnswer(t, content, nil); got != nil ||
			strings.Contains(strings.ToLower(string(written.Bytes)), `"answer"`) {
			t.Errorf("%s: answer %+v in %s", format, got, written.Bytes)
		}
	}
}

// TestAnswerIsLeftOutFirst checks that the answer has only the room that nothing else needs.
func TestAnswerIsLeftOutFirst(t *testing.T) {
	const trail = `[{"at":"2026-01-31T11:00:00Z","status":503,"tookMs":5},{"at":"2026-01-31T11:30:00Z",` +
		`"status":503,"tookMs":5}]`
	for name, content := range map[string]func(n int) string{
		"native": func(n int) string {
			return string(filled(n, `,"requestId":"r","mine":"m","trail":`+trail))
		},
		"nexus": func(n int) string {
			form := strings.TrimSuffix(nexusMessage(plainCall, "%s"), "}") + `,"Trail":` + trail + `,"mine":"m"}`
			return fmt.Sprintf(form, padding(n-len(form)-len(padding(0))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := envelope.Answer{
				Status: 422, Header: http.Header{"Content-Type": {"text/plain"}},
				Body: []byte(strings.Repeat("\x1b", 3<<10)),
			}
			lengths := map[bool]int{}
			longest := 0
			for size := limit; size > limit-(40<<10); size -= 97 {
				if e, err := envelope.Parse([]byte(content(size))); err != nil ||
					e.Accept(arrival, "message-1", limit) != nil {
					continue
				}
				got, written := deadAnswer(t, content(size), &answer)
				kept := strictjson.FoldNames.Get(written.Bytes, "Trail", "1") != nil &&
					strictjson.FoldNames.Get(written.Bytes, "mine") != nil
				lengths[got != nil]++
				switch {
				case got == nil:
					if !strings.HasPrefix(written.LeftOut, "the answer") {
						t.Errorf("%d bytes: left out %q", size, written.LeftOut)
					}
					continue
				case !kept || !got.Truncated || strings.Trim(got.Text, "\x1b") != "":
					t.Fatalf("%d bytes: the answer has taken the place of something: %s", size, written.Bytes)
				}
				longest = max(longest, len(got.Text))
			}
			if lengths[true] == 0 || lengths[false] == 0 || longest != 2<<10 {
				t.Errorf("with and without an answer: %v; at most %d bytes of it", lengths, longest)
			}
		})
	}
}
