package work

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	queue  = "async-caller"
	poison = "async-caller-poison"
)

// app writes an app folder with the shipped host.json and one queue.
func app(t *testing.T) (dir string) {
	t.Helper()
	const project = "../../../.."
	dir = t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "AC-standard"), 0o700))
	for _, name := range []string{"host.json", "AC-standard/function.json"} {
		source := filepath.Join(project, name)
		if name != "host.json" {
			source = filepath.Join(project, "functions", name)
		}
		content, err := os.ReadFile(source)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// environ are settings without tables, and so without requests to a service.
var environ = []string{"AzureWebJobsStorage=UseDevelopmentStorage=true", "ASYNC_CALLER_TABLES=off"}

// target answers the calls of the workers of a bubble.
type target struct {
	mu    sync.Mutex
	calls map[string]int // by request id
	// answer returns the status for a call; 0 means none.
	answer func(ctx context.Context, id string) int
}

// Do implements [delivery.Caller].
func (g *target) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	g.mu.Lock()
	g.calls[e.RequestID]++
	g.mu.Unlock()
	began := time.Now()
	status := g.answer(ctx, e.RequestID)
	o := decision.Outcome{Status: status, Header: http.Header{}, Took: time.Since(began)}
	if status == 0 {
		o.Failure = decision.FailureInterrupted
	}
	return o
}

// count returns how many calls of an envelope began.
func (g *target) count(id string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[id]
}

// newTarget returns a target that answers 200 after a while.
func newTarget(took time.Duration) *target {
	return &target{calls: map[string]int{}, answer: func(ctx context.Context, _ string) int {
		if !storage.Sleep(ctx, took) {
			return 0
		}
		return http.StatusOK
	}}
}

// running is a worker that runs in a bubble.
type running struct {
	*worker
	leave context.CancelFunc // as SIGTERM
	ended chan error
}

// start starts a worker whose calls go to the target.
func start(t *testing.T, c Config, store storage.Queues, g *target) *running {
	t.Helper()
	c.Store = store
	stopping, interrupt := context.WithCancel(context.Background())
	i := instance.Open(stopping, c.Config, zerolog.Nop())
	i.Deliverer.Caller = g
	ctx, leave := context.WithCancel(context.Background())
	r := &running{
		worker: newWorker(c, i, zerolog.Nop()), leave: leave, ended: make(chan error, 1),
	}
	go func() {
		err := r.run(ctx, interrupt)
		interrupt()
		i.Close() //nolint:contextcheck // after the last delivery
		r.ended <- err
	}()
	return r
}

// stop stops the worker.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.leave()
	must(t, <-r.ended)
}

func readConfig(t *testing.T, dir string) Config {
	t.Helper()
	c, err := ReadConfig(dir, environ, nil)
	must(t, err)
	must(t, c.App.SettingsErr)
	return c
}

func put(t *testing.T, store storage.Putter, id, members string) {
	t.Helper()
	content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":"https://t.example/"}%s}`, id, members)
	_, err := storage.PutCreating(t.Context(), store, queue, storage.Item{Text: storage.Base64.Encode(content)})
	must(t, err)
}

// waiting returns how many messages of each envelope are on a queue.
func waiting(t *testing.T, store *memory.Queues, name string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, m := range store.All(name) {
		content, err := storage.Base64.Decode(m.Text)
		must(t, err)
		var e struct{ RequestID string }
		must(t, json.Unmarshal(content, &e))
		found[e.RequestID]++
	}
	return found
}
