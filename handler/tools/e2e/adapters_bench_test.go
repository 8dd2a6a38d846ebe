package e2e_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/testbed"
)

// BenchmarkAdapters measures what a delivered call costs the worker with one processor, and how many it delivers in a
// second, beside what one costs the handler over HTTP with the same processor. Storage and target are in another
// process. Each operation is a call.
func BenchmarkAdapters(b *testing.B) {
	for name, latency := range map[string]time.Duration{"worker": 0, "worker/latency=10ms": 10 * time.Millisecond} {
		b.Run(name, func(b *testing.B) { benchmarkWorker(b, latency) })
	}
	b.Run("handler", benchmarkHandler)
}

// counted is a target that answers 200, and closes done at the nth call.
func counted(b *testing.B, n int64) (url string, done chan struct{}) {
	b.Helper()
	var calls atomic.Int64
	done = make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls.Add(1) == n {
			close(done)
		}
	}))
	b.Cleanup(server.Close)
	return server.URL, done
}

// latent makes each request to storage take at least as long.
type latent time.Duration

func (l latent) Before(storageproxy.Request) storageproxy.Order {
	return storageproxy.Order{Hold: time.Duration(l)}
}

func (latent) After(storageproxy.Request, storageproxy.Answer) storageproxy.Order {
	return storageproxy.Order{}
}

func benchmarkWorker(b *testing.B, latency time.Duration) {
	b.Helper()
	url, done := counted(b, int64(b.N))
	queues, err := emulator.Start(b.Context(), emulator.Options{})
	must(b, err)
	b.Cleanup(queues.Close)
	store, err := testbed.OpenStore(queues.ConnectionString)
	must(b, err)
	b.Cleanup(store.Close)
	must(b, store.Create(b.Context(), mainQueue))
	for range b.N {
		_, err := store.Put(b.Context(), mainQueue, storage.Item{Text: storage.Base64.Encode([]byte(envelopeTo(url)))})
		must(b, err)
	}
	through := queues.ConnectionString
	if latency > 0 {
		proxy, err := storageproxy.Open(b.Context(), queues.QueueEndpoint, latent(latency))
		must(b, err)
		b.Cleanup(proxy.Close)
		through = proxy.Through(through)
	}
	command := exec.CommandContext(b.Context(), executable, "work", "--app", appOf(b))
	command.Stdout, command.Stderr = io.Discard, os.Stderr
	command.Env = append(os.Environ(), oneProcessor, "ASYNC_CALLER_TABLES=off", connection(through),
		testbed.LoopbackAllowed)
	b.ResetTimer()
	must(b, command.Start())
	<-done
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	must(b, testbed.Await(ctx, func() bool {
		left, err := store.Count(ctx, mainQueue)
		return err == nil && left == 0
	}))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	end(b, command)
}

func benchmarkHandler(b *testing.B) {
	b.Helper()
	url, _ := counted(b, 0)
	h := serveIn(b, appOf(b), io.Discard, oneProcessor, "ASYNC_CALLER_TABLES=off",
		connection("UseDevelopmentStorage=true"))
	b.ResetTimer()
	if n := h.invokeAll(envelopeTo(url), int64(b.N)); n != int64(b.N) {
		b.Fatalf("%d of %d calls", n, b.N)
	}
	b.StopTimer()
	end(b, h.command)
}

const oneProcessor = "GOMAXPROCS=1"

// appOf returns an app folder with the shipped host.json and one queue function.
func appOf(b *testing.B) (dir string) {
	b.Helper()
	dir = b.TempDir()
	const project = "../../.."
	must(b, os.CopyFS(filepath.Join(dir, "AC-standard"), os.DirFS(filepath.Join(project, "functions", "AC-standard"))))
	content, err := os.ReadFile(filepath.Join(project, "host.json"))
	must(b, err)
	must(b, os.WriteFile(filepath.Join(dir, "host.json"), content, 0o600))
	return dir
}

// end ends an instance, and reports its processor time for each call.
func end(b *testing.B, command *exec.Cmd) {
	b.Helper()
	must(b, command.Process.Signal(syscall.SIGTERM))
	_ = command.Wait() // a handler never ends with 0
	spent := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(0, "ns/op")
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
