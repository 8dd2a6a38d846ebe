package ingress

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"asynccaller/handler/internal/deliver/delivery"
)

// hostBody returns an invocation as the host sends it, with an envelope of about the given size.
func hostBody(tb testing.TB, size int, text bool) []byte {
	tb.Helper()
	content := fmt.Appendf(
		nil,
		`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/orders","body":"%s"}}`,
		bytes.Repeat([]byte("lorem ip"), size/8),
	)
	data := base64.StdEncoding.EncodeToString(content)
	if text {
		inner, err := json.Marshal(string(content))
		if err != nil {
			tb.Fatal(err)
		}
		data = string(inner)
	}
	value, err := json.Marshal(data)
	if err != nil {
		tb.Fatal(err)
	}
	return fmt.Appendf(nil,
		`{"Data":{"message":%s},"Metadata":{"DequeueCount":"1","ExpirationTime":"2026-11-27T22:18:01+00:00",`+
			`"Id":"\"ac42afd5-35e5-4258-928c-16de063c24b1\"","InsertionTime":"2026-11-20T22:18:01+00:00",`+
			`"NextVisibleTime":"2026-11-20T22:28:05+00:00",`+
			`"PopReceipt":"\"AgAAAAMAAAAAAAAAAgtnj8x+1QE=\"","sys":{"MethodName":"AC-standard",`+
			`"UtcNow":"2026-11-20T22:18:05.1234567Z","RandGuid":"24ad4c06-24ad`+
			`-4e5b-8294-3da9714877e9"}}}`, value)
}

func BenchmarkReadMessage(b *testing.B) {
	for _, size := range []int{1 << 10, 47 << 10} {
		for _, text := range []bool{false, true} {
			body := hostBody(b, size, text)
			b.Run(fmt.Sprintf("%dKiB/text=%v", size>>10, text), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if err := readMessage(new(delivery.Message), bytes.NewReader(body), "message"); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkAnswer writes the answer for a settled message.
func BenchmarkAnswer(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		answer{code: http.StatusOK}.write(httptest.NewRecorder())
	}
}
