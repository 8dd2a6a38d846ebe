package envelope_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
)

// compressed returns a text in a content coding; raw is deflate without the header and checksum of zlib.
func compressed(t *testing.T, coding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw":
		w, _ = flate.NewWriter(&b, flate.DefaultCompression)
	}
	_, err := io.WriteString(w, text)
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAnswerCoding checks what the sender and a person can read of an answer with a Content-Encoding.
func TestAnswerCoding(t *testing.T) {
	const text = `{"error":"unknown customer"}`
	zipped := compressed(t, "gzip", text)
	damaged := strings.Repeat(text, 1000)
	long := compressed(t, "gzip", damaged)
	bomb := compressed(t, "gzip", strings.Repeat("x", 10<<20))
	const brotli = "\x8b\x0d\x80" + `{"error":"unknown customer"}` + "\x03"
	for name, c := range map[string]struct {
		coding    []string
		body      string
		truncated bool
		want      string
		whole     bool
	}{
		"gzip":                {[]string{"gzip"}, zipped, false, text, true},
		"letter_case":         {[]string{" GZip "}, zipped, false, text, true},
		"two_members":         {[]string{"gzip"}, zipped + zipped, false, text + text, true},
		"deflate":             {[]string{"deflate"}, compressed(t, "deflate", text), false, text, true},
		"deflate_raw":         {[]string{"deflate"}, compressed(t, "raw", text), false, text, true},
		"identity_and_gzip":   {[]string{"identity, gzip"}, zipped, false, text, true},
		"empty_value":         {[]string{""}, text, false, text, true},
		"two_lines":           {[]string{"deflate", "gzip"}, compressed(t, "gzip", compressed(t, "deflate", text)), false, text, true},
		"three_times":         {[]string{"gzip, gzip, gzip"}, compressed(t, "gzip", compressed(t, "gzip", zipped)), false, "", false},
		"said_twice":          {[]string{"gzip, gzip"}, zipped, false, text, true},
		"not_deflated":        {[]string{"deflate"}, text, false, text, true},
		"charset_instead":     {[]string{"utf-8"}, "för", false, "för", true},
		"no_coding_at_all":    {[]string{"none"}, text, false, text, true},
		"brotli":              {[]string{"br"}, brotli, false, "", false},
		"gzip_behind_brotli":  {[]string{"br, gzip"}, compressed(t, "gzip", brotli), false, "", false},
		"brotli_behind_gzip":  {[]string{"gzip, br"}, brotli, false, "", false},
		"not_gzip":            {[]string{"gzip"}, brotli, false, "", false},
		"empty":               {[]string{"gzip"}, "", false, "", true},
		"cut":                 {[]string{"gzip"}, zipped[:len(zipped)-6], true, text, false},
		"cut_without_a_word":  {[]string{"gzip"}, zipped[:len(zipped)-6], false, text, false},
		"cut_in_the_header":   {[]string{"gzip"}, zipped[:4], true, "", false},
		"wrong_checksum":      {[]string{"gzip"}, zipped[:len(zipped)-8] + "12345678", false, text, false},
		"data_behind":         {[]string{"gzip"}, zipped + "x", false, text, false},
		"more_than_a_message": {[]string{"gzip"}, bomb, false, strings.Repeat("x", 64<<10), false},
		"long":                {[]string{"gzip"}, long, false, damaged, true},
		"no_header":           {nil, text, false, text, true},
	} {
		t.Run(name, func(t *testing.T) {
			answer := envelope.Answer{
				Status: 422, Header: http.Header{"Content-Encoding": c.coding}, Body: []byte(c.body),
				Truncated: c.truncated,
			}
			got, whole := answer.Text()
			if got != c.want || whole != c.whole {
				t.Errorf("text %.80q of %d bytes, whole %v; want %.80q, %v", got, len(got), whole, c.want, c.whole)
			}
			x := answer.Excerpt()
			beginning := c.want[:min(len(c.want), 2<<10)]
			if x.Text != beginning || x.Truncated == (c.whole && len(c.want) <= 2<<10) {
				t.Errorf("excerpt %.80q of %d bytes, truncated %v", x.Text, len(x.Text), x.Truncated)
			}
		})
	}
}

// TestCodingsOfALatestResponse: a latest response whose headers have no room keeps all codings of its body.
func TestCodingsOfALatestResponse(t *testing.T) {
	const text = "unknown customer"
	answer := &envelope.Answer{
		Status: 422,
		Header: http.Header{"Content-Encoding": {"deflate", "gzip"}, "X-Long": {strings.Repeat("x", 16<<10)}},
		Body:   []byte(compressed(t, "gzip", compressed(t, "deflate", text))),
	}
	e := accept(t, nexusMessage(plainCall, ""))
	e.Latest = answer
	again, err := envelope.Parse(written(t)(e.Successor(limit)).Bytes)
	if err != nil || again.Latest == nil || again.Latest.Header.Get("X-Long") != "" {
		t.Fatalf("%v: latest response %+v", err, again.Latest)
	}
	if got, whole := again.Latest.Text(); got != text || !whole {
		t.Errorf("text %q, whole %v", got, whole)
	}
}

// FuzzDecode checks that no answer is decoded to more than is asked for, or to something that is not text.
func FuzzDecode(f *testing.F) {
	for _, coding := range []string{"gzip", "deflate", "br", "gzip, deflate", "utf-8", ""} {
		f.Add(coding, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03", false)
		f.Add(coding, "\x78\x9c\xab\x56", true)
		f.Add(coding, "text", true)
	}
	f.Fuzz(func(t *testing.T, coding, body string, truncated bool) {
		answer := envelope.Answer{
			Status: 422, Header: http.Header{"Content-Encoding": {coding}}, Body: []byte(body), Truncated: truncated,
		}
		text, whole := answer.Text()
		if len(text) > 64<<10 && len(text) > len(body) || whole && truncated {
			t.Errorf("%d bytes, whole %v", len(text), whole)
		}
		if x := answer.Excerpt(); len(x.Text) > 2<<10 || truncated && !x.Truncated {
			t.Errorf("an excerpt of %d bytes, truncated %v", len(x.Text), x.Truncated)
		}
	})
}
