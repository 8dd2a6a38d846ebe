package envelope_test

import (
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
)

func TestAnswerText(t *testing.T) {
	for name, c := range map[string]struct{ contentType, body, want string }{
		"no_charset":            {"text/plain", "för", "för"},
		"no_content_type":       {"", "för", "för"},
		"utf8":                  {"text/plain; charset=utf-8", "för", "för"},
		"utf8_in_capitals":      {"text/plain; charset=UTF-8", "för", "för"},
		"utf8_mark":             {"text/plain; charset=utf-8", "\xef\xbb\xbfför", "för"},
		"utf8_mark_no_charset":  {"application/json", "\xef\xbb\xbf{}", "{}"},
		"latin1":                {"text/plain; charset=iso-8859-1", "f\xf6r", "för"},
		"latin1_quoted":         {`text/plain; charset="ISO-8859-1"`, "f\xf6r", "för"},
		"latin1_other_params":   {`text/plain; format=flowed; Charset=iso-8859-1`, "f\xf6r", "för"},
		"windows_1252":          {"text/plain; charset=windows-1252", "5 \x80", "5 €"},
		"shift_jis":             {"text/plain; charset=shift_jis", "\x93\xfa\x96\x7b", "日本"},
		"utf16_little_mark":     {"text/plain; charset=utf-16", "\xff\xfef\x00\xf6\x00", "fö"},
		"utf16_big_mark":        {"text/plain; charset=utf-16", "\xfe\xff\x00f\x00\xf6", "fö"},
		"utf16_no_mark":         {"text/plain; charset=utf-16", "f\x00\xf6\x00", "fö"},
		"utf16_only_mark":       {"text/plain", "\xff\xfef\x00\xf6\x00", "fö"},
		"utf16_big_only_mark":   {"text/plain", "\xfe\xff\x00f\x00\xf6", "fö"},
		"utf16be":               {"text/plain; charset=utf-16be", "\x00f\x00\xf6", "fö"},
		"windows_1252_alias":    {"text/plain; charset=cp1252", "5 \x80", "5 €"},
		"gb2312":                {"text/plain; charset=gb2312", "\xb4\xed\xce\xf3", "错误"},
		"gbk_upper_case":        {"text/plain; charset=GBK", "\xb4\xed\xce\xf3", "错误"},
		"korean":                {"text/plain; charset=ks_c_5601-1987", "\xbf\xc0\xb7\xf9", "오류"},
		"thai":                  {"text/plain; charset=tis-620", "\xa2\xe9\xcd", "ข้อ"},
		"thai_quoted":           {`text/plain; charset="dos-874"`, "\xa2\xe9\xcd", "ข้อ"},
		"japanese":              {"text/plain; charset=x-sjis", "\x83G\x83\x89\x81[", "エラー"},
		"latin1_alias":          {"text/plain; charset=iso8859-1", "f\xfc", "fü"},
		"latin2_alias":          {"text/plain; charset=iso88592", "\xb1", "ą"},
		"cyrillic":              {"text/plain; charset=x-mac-ukrainian", "\xe4\xe0", "да"},
		"utf8_alias":            {"text/plain; charset=utf8", "för", "för"},
		"not_decoded_by_whatwg": {"text/plain; charset=iso-2022-cn-ext", "error", "error"},
		"unknown_charset":       {"text/plain; charset=klingon", "för", "för"},
		"empty_charset":         {`text/plain; charset=""`, "för", "för"},
		"empty_body":            {"text/plain; charset=utf-16", "", ""},
		"cut_latin1":            {"text/plain; charset=iso-8859-1", "f\xf6", "fö"},
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

// TestAnswerTextCutInUTF8 checks that a body cut inside a character reaches the sender as text.
func TestAnswerTextCutInUTF8(t *testing.T) {
	answer := envelope.Answer{Status: 200, Body: []byte("f\xc3"), Truncated: true}
	e := accept(t, nexusMessage(plainCall, withCallback))
	payload, _ := answer.Text()
	content, err := e.CallbackWith(envelope.Report{Status: 200, Payload: payload, At: arrival}, limit)
	if err != nil {
		t.Fatal(err)
	}
	if got := reportIn(t, content.Bytes).Payload; got != "f\ufffd" {
		t.Errorf("payload %q", got)
	}
}

// Receivers throw on a media type that .NET cannot parse.
func TestPayloadMediaType(t *testing.T) {
	long := strings.Repeat("x", 100-len("text/"))
	for mediaType, want := range map[string]string{
		"":                                  "application/json",
		"text/plain":                        "text/plain",
		"json":                              "application/json",
		"text/":                             "application/json",
		"/plain":                            "application/json",
		"text/{plain}":                      "application/json",
		"text/plain/x":                      "application/json",
		"text/" + long:                      "text/" + long,
		"text/" + long + "x":                "application/json",
		strings.Repeat("x", 100) + "/plain": "application/json",
		"application/vnd.x+json":            "application/vnd.x+json",
	} {
		for format, content := range map[string]string{
			"native": `{"asyncCaller":1,"requestId":"r","call":{"url":"http://a"},"callback":{"url":"http://b"}}`,
			"nexus":  nexusMessage(plainCall, withCallback),
		} {
			callback, err := accept(t, content).
				CallbackWith(envelope.Report{Status: 200, MediaType: mediaType, At: arrival}, limit)
			if err != nil {
				t.Fatal(err)
			}
			if got := reportIn(t, callback.Bytes).PayloadMediaType; got != want {
				t.Errorf("%s, %q: got %q, want %q", format, mediaType, got, want)
			}
		}
	}
}

func TestAnswerMediaType(t *testing.T) {
	for contentType, want := range map[string]string{
		"":                                       "",
		"text/plain":                             "text/plain",
		"text/plain; charset=utf-8":              "text/plain",
		"application/problem+json;charset=x;a=b": "application/problem+json",
		" text/html ":                            "text/html",
		"text/html;":                             "text/html",
		"?":                                      "",
		"text/plain; charset":                    "text/plain", // as in .NET
	} {
		answer := envelope.Answer{Status: 200, Header: http.Header{"Content-Type": {contentType}}}
		if got := answer.MediaType(); got != want {
			t.Errorf("%q: got %q, want %q", contentType, got, want)
		}
	}
}
