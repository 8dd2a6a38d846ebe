package envelope_test

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"asynccaller/handler/internal/rules/envelope"
)

// deadAnswer returns the answer in the dead letter of an envelope with this latest answer.
func deadAnswer(
	t *testing.T, content string, latest *envelope.Answer,
) (answer *envelope.Excerpt, letter envelope.Content) {
	t.Helper()
	e := accept(t, content)
	e.Latest = latest
	why := envelope.DeadLetter{At: arrival, Reason: "rejected", Queue: "async-caller", Attempts: 1}
	letter = written(t)(e.DeadLettered(why, limit))
	if len(letter.Bytes) > limit || !utf8.Valid(letter.Bytes) {
		t.Fatalf("%d bytes, or not UTF-8", len(letter.Bytes))
	}
	again, err := envelope.Parse(letter.Bytes)
	if err != nil || again.DeadLetter == nil || again.DeadLetter.Reason != "rejected" {
		t.Fatalf("%v: not a dead letter: %s", err, letter.Bytes)
	}
	return again.DeadLetter.Answer, letter
}

// TestDeadLetterAnswer checks what a person can read of the target's answer, alike in both formats. What the text of an
// answer is, is in TestAnswerText.
func TestDeadLetterAnswer(t *testing.T) {
	const KiB, plain = 1 << 10, "text/plain"
	long := strings.Repeat("é", KiB)
	excerpt := func(text string, truncated bool) envelope.Excerpt {
		return envelope.Excerpt{MediaType: plain, Text: text, Truncated: truncated}
	}
	for name, c := range map[string]struct {
		contentType, body string
		truncated         bool
		want              envelope.Excerpt
	}{
		"text":         {plain + "; charset=utf-8", "no", false, excerpt("no", false)},
		"no_type":      {"", "x", false, envelope.Excerpt{Text: "x"}},
		"invalid_type": {"\x1b", "x", false, envelope.Excerpt{Text: "x"}},
		"long_type": {
			longMediaType, "x", false, envelope.Excerpt{MediaType: longMediaType[:100], Text: "x"},
		},
		"empty":                 {plain, "", false, excerpt("", false)},
		"empty_truncated":       {plain, "", true, excerpt("", true)},
		"control":               {plain, "a\x00\x1b[2J\r\nb", false, excerpt("a\x00\x1b[2J\r\nb", false)},
		"not_utf8":              {plain, "a\xff\xfeb", false, excerpt("a\ufffdb", false)},
		"not_in_xml":            {plain, "a\ufffe\uffffb", false, excerpt("a\ufffd\ufffdb", false)},
		"2_kib":                 {plain, long, false, excerpt(long, false)},
		"2_kib_truncated":       {plain, long, true, excerpt(long, true)},
		"longer":                {plain, long + "x", false, excerpt(long, true)},
		"within_character":      {plain, "x" + long, false, excerpt("x"+long[:2*KiB-2], true)},
		"much_longer":           {plain, strings.Repeat(long, 32), true, excerpt(long, true)},
		"read_within_character": {plain, "f\xc3", true, excerpt("f", true)},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Status = 422
			answer := envelope.Answer{
				Status: 422, Header: http.Header{}, Body: []byte(c.body), Truncated: c.truncated,
			}
			if c.contentType != "" {
				answer.Header.Set("Content-Type", c.contentType)
			}
			for format, message := range formats {
				got, letter := deadAnswer(t, message(""), &answer)
				if got == nil || *got != c.want || letter.LeftOut != "" && len(c.body) < 48*KiB {
					t.Errorf("%s: left out %q, answer %+v\nwant %+v", format, letter.LeftOut, got, c.want)
				}
			}
		})
	}
}

func TestDeadLetterWithoutAnswer(t *testing.T) {
	const earlier = `,"deadLetter":{"reason":"rejected","answer":{"status":400,"text":"old"}}`
	for format, message := range formats {
		for _, members := range []string{"", earlier} {
			got, letter := deadAnswer(t, message(members), nil)
			if got != nil || strings.Contains(strings.ToLower(string(letter.Bytes)), `"answer"`) {
				t.Errorf("%s: answer %+v in %s", format, got, letter.Bytes)
			}
		}
	}
}

func TestAnswerText(t *testing.T) {
	for name, c := range map[string]struct{ contentType, body, want string }{
		"no_charset":            {"text/plain", "för", "för"},
		"no_content_type":       {"", "för", "för"},
		"utf8_in_capitals":      {"text/plain; charset=UTF-8", "för", "för"},
		"utf8_mark":             {"text/plain; charset=utf-8", "\xef\xbb\xbfför", "för"},
		"utf8_mark_no_charset":  {"application/json", "\xef\xbb\xbf{}", "{}"},
		"latin1_quoted":         {`text/plain; charset="ISO-8859-1"`, "f\xf6r", "för"},
		"latin1_other_params":   {`text/plain; format=flowed; Charset=iso-8859-1`, "f\xf6r", "för"},
		"windows_1252":          {"text/plain; charset=windows-1252", "5 \x80", "5 €"},
		"shift_jis":             {"text/plain; charset=shift_jis", "\x93\xfa\x96\x7b", "日本"},
		"utf16_little_mark":     {"text/plain; charset=utf-16", "\xff\xfef\x00\xf6\x00", "fö"},
		"utf16_no_mark":         {"text/plain; charset=utf-16", "f\x00\xf6\x00", "fö"},
		"utf16_only_mark":       {"text/plain", "\xff\xfef\x00\xf6\x00", "fö"},
		"utf16_big_only_mark":   {"text/plain", "\xfe\xff\x00f\x00\xf6", "fö"},
		"utf16be":               {"text/plain; charset=utf-16be", "\x00f\x00\xf6", "fö"},
		"gbk_upper_case":        {"text/plain; charset=GBK", "\xb4\xed\xce\xf3", "错误"},
		"thai_quoted":           {`text/plain; charset="dos-874"`, "\xa2\xe9\xcd", "ข้อ"},
		"latin1_alias":          {"text/plain; charset=iso8859-1", "f\xfc", "fü"},
		"cyrillic":              {"text/plain; charset=x-mac-ukrainian", "\xe4\xe0", "да"},
		"not_decoded_by_whatwg": {"text/plain; charset=iso-2022-cn-ext", "error", "error"},
		"unknown_charset":       {"text/plain; charset=klingon", "för", "för"},
		"empty_charset":         {`text/plain; charset=""`, "för", "för"},
		"empty_body":            {"text/plain; charset=utf-16", "", ""},
		"cut_shift_jis":         {"text/plain; charset=shift_jis", "\x93\xfa\x96", "日\ufffd"},
		"cut_utf16":             {"text/plain; charset=utf-16", "\xff\xfef\x00\xf6", "f\ufffd"},
		"half_a_pair_in_utf16":  {"text/plain; charset=utf-16", "f\x00\x3d\xd8", "f\ufffd"},
		"unreadable_media_type": {"text/plain; charset=iso-8859-1; x", "för", "för"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := envelope.Answer{Status: 200, Header: http.Header{}, Body: []byte(c.body)}
			if c.contentType != "" {
				answer.Header.Set("Content-Type", c.contentType)
			}
			if got, whole := answer.Text(); got != c.want || !whole {
				t.Errorf("got %q, whole %v, want %q", got, whole, c.want)
			}
		})
	}
}

// TestPayloadMediaType: receivers throw on a media type that .NET cannot parse.
func TestPayloadMediaType(t *testing.T) {
	const asJSON = "application/json"
	long := "text/" + strings.Repeat("x", 100-len("text/"))
	for mediaType, want := range map[string]string{
		"": asJSON, "text/plain": "text/plain", "json": asJSON, "text/": asJSON, "/plain": asJSON,
		"text/{plain}": asJSON, "text/plain/x": asJSON, long: long, long + "x": asJSON,
		strings.Repeat("x", 100) + "/plain": asJSON,
		"application/vnd.x+json":            "application/vnd.x+json",
	} {
		for format, content := range map[string]string{
			"native": formats["native"](`,"callback":{"url":"http://b"}`),
			"nexus":  nexusMessage(plainCall, withCallback),
		} {
			report := envelope.Report{Status: 200, MediaType: mediaType, At: arrival}
			callback := written(t)(accept(t, content).CallbackWith(report, limit))
			if got := reportIn(t, callback.Bytes).PayloadMediaType; got != want {
				t.Errorf("%s, %q: got %q, want %q", format, mediaType, got, want)
			}
		}
	}
}

func TestAnswerMediaType(t *testing.T) {
	for contentType, want := range map[string]string{
		"": "", "text/plain; charset=utf-8": "text/plain", " text/html ": "text/html", "text/html;": "text/html",
		"?":                                      "",
		"application/problem+json;charset=x;a=b": "application/problem+json",
		"text/plain; charset":                    "text/plain", // as in .NET
	} {
		answer := envelope.Answer{Status: 200, Header: http.Header{"Content-Type": {contentType}}}
		if got := answer.MediaType(); got != want {
			t.Errorf("%q: got %q, want %q", contentType, got, want)
		}
	}
}
