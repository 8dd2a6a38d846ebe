package ingress_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/ingress"
)

// silent is an answer that is discarded.
type silent struct{ header http.Header }

func (s silent) Header() http.Header         { return s.header }
func (s silent) Write(p []byte) (int, error) { return len(p), nil }
func (s silent) WriteHeader(int)             {}

// BenchmarkInvocation measures all work of the handler for a delivered call, except HTTP.
func BenchmarkInvocation(b *testing.B) {
	functions := []functionapp.Function{{Name: function, Binding: "msg", Queue: mainQueue, DataType: functionapp.DataBinary}}
	deliverer := newApp(b, answers(http.StatusOK)).deliverer
	deliverer.Log = zerolog.New(io.Discard).With().Timestamp().Logger()
	handler := ingress.Handler(functions, nil, deliverer, deliverer.Log)
	for _, size := range []int{1 << 10, 45 << 10} {
		content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"b3c1a0de-5b1f-4c77-9d0e-2f6a4c8e1b90","call":{"url":"https://t.example/orders",`+
			`"headers":{"Content-Type":"text/plain"},"body":%q}}`, strings.Repeat("lorem ipsum ", size/12))
		text := binary(content, goodMetadata)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://127.0.0.1:7071/"+function, strings.NewReader(text))
			request.Header.Set("Content-Type", "application/json; charset=utf-8")
			request.Header.Set("X-Azure-Functions-InvocationId", invocationID)
			b.ReportAllocs()
			for b.Loop() {
				request.Body = io.NopCloser(strings.NewReader(text))
				handler.ServeHTTP(silent{http.Header{}}, request)
			}
		})
	}
}
