package envelope

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// samples returns envelopes of about the given size in both formats.
func samples(size int) map[Format][]byte {
	body := bytes.Repeat([]byte("lorem ip"), size/8)
	callOut := fmt.Appendf(nil, "POST /orders HTTP/1.1\r\nHost: t.example\r\nContent-Type: text/plain\r\n\r\n%s",
		body[:len(body)*3/4])
	return map[Format][]byte{
		FormatNative: fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/orders",`+
			`"headers":{"Content-Type":"text/plain"},"body":"%s"},`+
			`"attempts":3,"createdAt":"2026-01-01T00:00:00Z"}`, body),
		FormatNexus: fmt.Appendf(nil, `{"Organization":"acme","Environment":"prd","OriginalRequestId":"r1",`+
			`"Attempts":3,"CreatedAt":"2026-01-01T00:00:00+00:00",`+
			`"RawRequest":{"Id":"r1","CallOut":%q,"CallOutUriScheme":"http"}}`,
			base64.StdEncoding.EncodeToString(callOut)),
	}
}

func eachSample(b *testing.B, run func(b *testing.B, content []byte)) {
	b.Helper()
	for _, size := range []int{1 << 10, 46 << 10} {
		for _, format := range []Format{FormatNative, FormatNexus} {
			content := samples(size)[format]
			b.Run(fmt.Sprintf("%s/%dKiB", format, size>>10), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(content)))
				run(b, content)
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	now := time.Now()
	eachSample(b, func(b *testing.B, content []byte) {
		b.Helper()
		for b.Loop() {
			e, err := Parse(content)
			if err == nil {
				err = e.Accept(now, "id", 48<<10)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkReschedule(b *testing.B) {
	now := time.Now()
	eachSample(b, func(b *testing.B, content []byte) {
		b.Helper()
		e, err := Parse(content)
		if err == nil {
			err = e.Accept(now, "id", 48<<10)
		}
		if err != nil {
			b.Fatal(err)
		}
		state := State{
			Attempts: 4, CreatedAt: now, LatestAttemptAt: now, NextAttemptAt: now,
			Expires: now.Add(time.Hour), Trail: []Attempt{{At: now, Status: 503}},
		}
		for b.Loop() {
			if _, err := e.WithState(state).Successor(48 << 10); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCallback measures a callback with a target's answer.
func BenchmarkCallback(b *testing.B) {
	now := time.Now()
	for format, content := range map[Format]string{
		FormatNative: `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/orders"},` +
			`"callback":{"url":"http://s.example/done"}}`,
		FormatNexus: fmt.Sprintf(`{"OriginalRequestId":"r1","RawRequest":{"Id":"r1","CallOut":%q,"CallBack":%q}}`,
			base64.StdEncoding.EncodeToString([]byte("GET / HTTP/1.1\r\nHost: t.example\r\n\r\n")),
			base64.StdEncoding.EncodeToString([]byte("POST /done HTTP/1.1\r\nHost: s.example\r\nContent-Type: "+
				"text/plain\r\n\r\n"))),
	} {
		b.Run(string(format), func(b *testing.B) {
			b.ReportAllocs()
			e, err := Parse([]byte(content))
			if err == nil {
				err = e.Accept(now, "id", 48<<10)
			}
			if err != nil {
				b.Fatal(err)
			}
			answer := &Answer{
				Status: 200, Header: http.Header{"Content-Type": {"application/json"}},
				Body: bytes.Repeat([]byte(`{"a":1} `), 512),
			}
			report := Report{
				Status: 200, Payload: answer.Text(), MediaType: answer.MediaType(), At: now,
				Deadline: now.Add(time.Hour),
			}
			for b.Loop() {
				if _, err := e.CallbackWith(report, 48<<10); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
