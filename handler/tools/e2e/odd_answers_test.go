package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOddAnswers checks answers that real servers and proxies give: what they mean for the message, and what the sender
// or an operator can read of them.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	const chunks = "\r\n5\r\nhello\r\n0\r\n\r\n"
	zipped := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := io.WriteString(w, text)
		if err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	answered := func(status, headers, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			status, headers, len(body), body)
	}
	const (
		once     = "finish delivered"
		reported = "callback delivered"
		rejected = "dead_letter rejected"
		status   = "reschedule temporary_status"
		broken   = "reschedule connection"
	)
	const twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"
	scenarios := map[string]struct {
		raw      string // the first answer; the second is 200
		callback bool
		settled  []string
		detail   string // of the first settlement
		text     string // of the dead letter or, with a callback, of its payload
	}{
		"chunked_twice": {raw: "HTTP/1.1 200 OK\r\n" + twice + chunks, settled: []string{once}},
		"chunked_twice_told": {
			raw: "HTTP/1.1 200 OK\r\n" + twice + chunks, callback: true, settled: []string{reported}, text: "hello",
		},
		"chunked_twice_422": {raw: "HTTP/1.1 422 X\r\n" + twice + chunks, settled: []string{rejected}, text: "hello"},
		"identity": {
			raw:     "HTTP/1.1 422 X\r\nTransfer-Encoding: identity\r\n\r\nhello",
			settled: []string{rejected}, text: "hello",
		},
		"gzip_chunked": {
			raw: fmt.Sprintf("HTTP/1.1 422 X\r\nTransfer-Encoding: gzip, chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
				len(zipped("hello")), zipped("hello")), settled: []string{rejected}, text: "hello",
		},
		"two_lengths": {
			raw: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", settled: []string{once},
		},
		"two_lengths_told": {
			raw:      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
			callback: true, settled: []string{broken, reported}, detail: "two different lengths", text: "ok",
		},
		"negative_length": {
			raw:     "HTTP/1.1 422 X\r\nContent-Length: -1\r\n\r\nhello",
			settled: []string{broken, once}, detail: "its Content-Length is invalid",
		},
		"broken_chunks": {
			raw:      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
			callback: true, settled: []string{broken, reported}, detail: "its chunks are broken", text: "ok",
		},
		"header_lines": {
			raw:     "HTTP/1.1 200 OK\r\n" + strings.Repeat("Set-Cookie: c=1\r\n", 300) + "\r\n",
			settled: []string{broken, once}, detail: "the answer has too many header lines",
		},
		"gzip": {
			raw:     answered("422 X", "Content-Encoding: gzip\r\n", zipped("unknown customer")),
			settled: []string{rejected}, text: "unknown customer",
		},
		"gzip_told": {
			raw:      answered("200 OK", "Content-Encoding: gzip\r\n", zipped("done")),
			callback: true, settled: []string{reported}, text: "done",
		},
		"gzip_signal": {
			raw: answered("503 X", "Content-Type: application/problem+json\r\nContent-Encoding: gzip\r\n",
				zipped(`{"retryable":false}`)), settled: []string{rejected}, text: `{"retryable":false}`,
		},
		"charset": {
			raw:     answered("422 X", "Content-Type: text/plain; charset=gb2312\r\n", "\xb4\xed\xce\xf3"),
			settled: []string{rejected}, text: "错误",
		},
		"forbidden":     {raw: answered("403 X", "", "no"), settled: []string{rejected}, text: "no"},
		"limited":       {raw: answered("403 X", "Retry-After: 1\r\n", "no"), settled: []string{status, once}},
		"limit_reached": {raw: answered("403 X", "X-RateLimit-Remaining: 0\r\n", "no"), settled: []string{status, once}},
		"bad_for_now":   {raw: answered("400 X", "Retry-After: 0.5s\r\n", "no"), settled: []string{status, once}},
		"profile_retry": {raw: answered("499 X", "", "no"), settled: []string{status, once}},
		"profile_reject": {
			raw: answered("404 X", "", "gone"), settled: []string{rejected}, text: "gone",
		},
	}
	f := newFixture(t, options{})
	queues := f.stageAll()
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"),
		[]byte(`{"*":{"breaker":"off","statuses":{"retry":[409,499],"reject":[404]}}}`), 0o600))
	p := newPartner(t)
	f.start(inAFewSeconds)
	for name, s := range scenarios {
		p.script("/"+name, answer{raw: s.raw}, answer{status: 200, body: "ok"})
		callback := ""
		if s.callback {
			p.script("/callback/"+name, answer{status: 200})
			callback = fmt.Sprintf(`,"callback":{"url":"%s/callback/%s"}`, p.URL, name)
		}
		f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":"%s/%s","body":"x"}%s}`,
			name, p.URL, name, callback))
	}
	f.awaitAllEmpty(queues)
	texts := map[any]string{}
	for _, letter := range f.deadLetters() {
		texts[letter["requestId"]] = textAt(letter, "deadLetter", "answer", "text")
	}
	for name, s := range scenarios {
		f.await(name, func() bool { return len(f.reasons(name)) >= len(s.settled) })
		if got := f.reasons(name); !slices.Equal(got, s.settled) {
			t.Errorf("%s: settled as %q, want %q", name, got, s.settled)
		}
		if calls := len(p.received("/" + name)); calls != len(s.settled) {
			t.Errorf("%s: %d calls", name, calls)
		}
		text := texts[name]
		for _, callback := range p.received("/callback/" + name) {
			var body struct{ Payload string }
			f.must(json.Unmarshal([]byte(callback.body), &body))
			text = body.Payload
		}
		if text != s.text {
			t.Errorf("%s: the text is %q, want %q", name, text, s.text)
		}
	}
	for _, line := range f.host.Lines("settled") {
		s := scenarios[fmt.Sprint(line["request_id"])]
		isFirst := line["action"] == "reschedule"
		if isFirst && !strings.Contains(fmt.Sprint(line["detail"]), s.detail) {
			t.Errorf("%v: detail %q, want %q", line["request_id"], line["detail"], s.detail)
		}
	}
}

// textAt returns the text at a path of names, or "".
func textAt(value any, names ...string) string {
	for _, name := range names {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	text, _ := value.(string)
	return text
}
