package outbound_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// inGzip returns a gzipBody.
func inGzip(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // a buffer has no errors
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestGzipBody: a target gets the body, with its length and signed, whether the body was gzip or not, also behind
// redirects and after a refused token.
func TestGzipBody(t *testing.T) {
	var text strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&text, `{"order":%d,"item":"book"},`, i)
	}
	for status, sent := range map[int]string{307: text.String(), 308: text.String(), 303: ""} {
		w := newNetwork(t, status, []string{"/1", "https://a.example/x"})
		w.client.WithProfiles(mustSigning(t, `{"a.example":{"sign":["$NEW"]}}`))
		call := object{"url": "http://a.example/0", "gzipBody": inGzip(text.String())}
		e := mustEnvelope(t, call, object{"asyncCaller": 2})
		wantAnswer(t, w.client.Do(t.Context(), e), 200)
		all := append(w.plain.all(), w.secure.all()...)
		if len(all) != 3 {
			t.Fatalf("%d requests", len(all))
		}
		for _, s := range all {
			want, length := sent, strconv.Itoa(len(sent))
			if s.uri == "/0" {
				want, length = text.String(), strconv.Itoa(text.Len())
			}
			if want == "" {
				length = ""
			}
			if string(s.body) != want || s.header.Get("Content-Length") != length {
				t.Errorf("%d %s: %d bytes, Content-Length %s, want %s", status, s.uri, len(s.body),
					s.header.Get("Content-Length"), length)
			}
		}
		if status != http.StatusSeeOther {
			wantSigned(t, all[2], newSecret)
		}
	}
}
