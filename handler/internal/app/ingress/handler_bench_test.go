package ingress_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/storage/memory"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/rules/guard"
)

// silent is an answer that is discarded.
type silent struct{ header http.Header }

func (s silent) Header() http.Header         { return s.header }
func (s silent) Write(p []byte) (int, error) { return len(p), nil }
func (s silent) WriteHeader(int)             {}

// benchBodies are invocations with an envelope of 1 and of 45 KiB for a target.
func benchBodies(tb testing.TB, target string) map[string]string {
	tb.Helper()
	bodies := map[string]string{}
	for _, size := range []int{1 << 10, 45 << 10} {
		content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"b3c1a0de-5b1f-4c77-9d0e-2f6a4c8e1b90",`+
			`"call":{"url":"%s/orders",`+
			`"headers":{"Content-Type":"text/plain"},"body":%q}}`, target, strings.Repeat("lorem ipsum ", size/12))
		bodies[fmt.Sprintf("%dKiB", size>>10)] = binary(content, goodMetadata)
		bodies[fmt.Sprintf("%dKiB/text", size>>10)] = text(tb, content, goodMetadata)
	}
	return bodies
}

// BenchmarkInvocation measures all work of the handler for a delivered call, except HTTP.
func BenchmarkInvocation(b *testing.B) {
	handler := newSilentApp(b, answers(http.StatusOK))
	for name, body := range benchBodies(b, "https://t.example") {
		b.Run(name, func(b *testing.B) {
			request := invocation(b, function, body)
			b.ReportAllocs()
			for b.Loop() {
				request.Body = io.NopCloser(strings.NewReader(body))
				handler.ServeHTTP(silent{http.Header{}}, request)
			}
		})
	}
}

// BenchmarkHTTP measures the same over HTTP. The result includes what the client and the target cost, which share this
// process.
func BenchmarkHTTP(b *testing.B) {
	const parallel = 24 // for each processor
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request,
	) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer target.Close()
	allow, err := guard.ParseAllow("127.0.0.1")
	if err != nil {
		b.Fatal(err)
	}
	client := outbound.New(time.Minute, guard.Rules{Allow: allow}, outbound.Proxy{})
	defer client.Close()
	server := httptest.NewServer(newSilentApp(b, client.Do))
	defer server.Close()
	server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = parallel * runtime.GOMAXPROCS(0)
	for name, body := range benchBodies(b, target.URL) {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(parallel)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if reply := do(b, server, http.MethodPost, "/"+function,
						strings.NewReader(body)); reply.status != http.StatusOK {
						b.Errorf("answered %d", reply.status)
					}
				}
			})
		})
	}
}

// newSilentApp returns a handler that counts its calls, and does not keep its log.
func newSilentApp(tb testing.TB, called caller) http.Handler {
	tb.Helper()
	a := newApp(tb, called)
	a.path.Log = zerolog.New(io.Discard).With().Timestamp().Logger()
	a.path.Sight = sight.New(&memory.Table{}, "app", "instance", zerolog.Nop())
	return a
}
