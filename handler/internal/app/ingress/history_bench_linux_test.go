package ingress_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage/azure"
)

// BenchmarkHistory measures the processor time of a delivered call with each value of the history, except HTTP with the
// target. It includes what a table service costs that only answers, in this process.
func BenchmarkHistory(b *testing.B) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("x-ms-request-id", "1")
		w.Header().Set("x-ms-version", r.Header.Get("x-ms-version"))
		switch r.Method {
		case http.MethodGet:
			w.Header().Set("x-ms-error-code", "ResourceNotFound")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"odata.error":{"code":"ResourceNotFound"}}`)
		case http.MethodPost: // a transaction
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: "+
				"application/http\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\r\n--c--\r\n--b--\r\n")
		default:
			w.Header().Set("ETag", "W/\"datetime'2026-11-27T12%3A00%3A00.0000000Z'\"")
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer service.Close()
	tables, err := azure.OpenTables(azure.Connection{
		AccountName: "account", AccountKey: "a2V5", TableEndpoint: service.URL + "/account",
	})
	if err != nil {
		b.Fatal(err)
	}
	defer tables.Close()
	for _, keep := range []targets.History{targets.HistoryOff, targets.HistoryOutcomes, targets.HistoryCheck} {
		b.Run(fmt.Sprint(keep), func(b *testing.B) {
			a := newApp(b, answers(http.StatusOK))
			a.path.Log = zerolog.New(io.Discard)
			a.path.KeepHistory = keep
			if keep != targets.HistoryOff {
				a.path.History = history.New(tables, 90*24*time.Hour, zerolog.Nop())
			}
			body := benchBodies(b, "https://t.example")["1KiB"]
			request := invocation(b, function, body)
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				request.Body = io.NopCloser(strings.NewReader(body))
				a.ServeHTTP(silent{http.Header{}}, request)
			}
			a.path.History.Close(time.Minute)
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns the time that this process has used.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
