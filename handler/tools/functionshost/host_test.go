package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/listener"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// patience is how long a test waits for an event in another process.
const patience = 20 * time.Second

// manyAttempts is a high maxDequeueCount, because the host may send several invocations to a process before it notices
// its end.
const manyAttempts = 1000

func TestMain(m *testing.M) {
	if os.Getenv(fakeModeVariable) != "" {
		os.Exit(runFakeHandler(os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT")))
	}
	testscript.Main(withoutLeaks{m}, map[string]func(){"functionshost": main})
}

// withoutLeaks is the tests of the package, after which no goroutine may be left.
type withoutLeaks struct{ *testing.M }

func (m withoutLeaks) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

var testFunction = functionapp.Function{Name: "Fn", Binding: "msg", Queue: "work", DataType: functionapp.DataBinary}

// testApp returns an app with one function. Its handler is this test's executable.
func testApp(t *testing.T) *functionapp.App {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &functionapp.App{
		Dir: t.TempDir(),
		Host: functionapp.Host{
			FunctionTimeout: time.Minute,
			Queues: functionapp.QueueOptions{
				BatchSize:          16,
				NewBatchThreshold:  8,
				MaxPollingInterval: 100 * time.Millisecond,
				MaxDequeueCount:    manyAttempts,
				MessageEncoding:    storage.Base64,
			},
			Handler: functionapp.CustomHandler{Executable: executable},
		},
		Functions: []functionapp.Function{testFunction},
	}
}

// runningHost is a host with the fake handler, and their output.
type runningHost struct {
	*host
	t      *testing.T
	store  *memory.Queues
	output *recorder
	log    *recorder
	stop   context.CancelFunc
	result chan error
}

// startHost runs a host with the fake handler until the test ends, and kills the handler then.
func startHost(t *testing.T, change func(*host)) *runningHost {
	t.Helper()
	r := &runningHost{t: t, store: memory.New(), output: newRecorder(), log: newRecorder(), result: make(chan error, 1)}
	if err := r.store.Create(t.Context(), "work"); err != nil {
		t.Fatal(err)
	}
	o := options{
		App:   testApp(t),
		Store: r.store,
		// Otherwise the race detector delays the exit of every handler by a second.
		Env:    append(os.Environ(), fakeModeVariable+"=1", "GORACE=atexit_sleep_ms=0"),
		Stdout: r.output, Stderr: r.output,
		Log:   zerolog.New(r.log).Level(zerolog.DebugLevel),
		Lease: defaultLease, MaxHandlerErrors: defaultHandlerErrors,
	}
	r.host = newHost(o)
	r.grace = 100 * time.Millisecond
	if change != nil {
		change(r.host)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	var running sync.WaitGroup
	running.Go(func() { r.result <- r.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		r.Close()
		if t.Failed() {
			t.Logf("host's log:\n%s\nhandler's output:\n%s", r.log.text(), r.output.text())
		}
	})
	return r
}

func (r *runningHost) put(content string) {
	r.t.Helper()
	item := storage.Item{Text: storage.Base64.Encode([]byte(content))}
	if _, err := r.store.Put(r.t.Context(), "work", item); err != nil {
		r.t.Fatal(err)
	}
}

// ended waits for Run to return and returns its error.
func (r *runningHost) ended() error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	select {
	case err := <-r.result:
		return err
	case <-ctx.Done():
		r.t.Fatal("the host did not stop")
		return nil
	}
}

// summary waits for Run to return without error.
func (r *runningHost) summary() listener.Stats {
	r.t.Helper()
	if err := r.ended(); err != nil {
		r.t.Fatalf("Run: %v", err)
	}
	return r.counts.Read()
}

// mustHold checks that the queue still has the message, visible or leased. Call it after the host has ended.
func (r *runningHost) mustHold(leased bool) {
	r.t.Helper()
	if left := r.store.All("work"); len(left) != 1 || left[0].NextVisibleAt.After(time.Now()) != leased {
		r.t.Errorf("queue holds %+v, want the message, leased: %v", left, leased)
	}
}

// mustHaveStarted checks how often the handler was started. Call it after the host has ended.
func (r *runningHost) mustHaveStarted(times int) {
	r.t.Helper()
	if got := strings.Count(r.log.text(), `"message":"handler started"`); got != times {
		r.t.Errorf("handler started %d times, want %d", got, times)
	}
}

// recorder is a writer that can wait for a text.
type recorder struct {
	mu      sync.Mutex
	content bytes.Buffer
	changed chan struct{}
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{})} }

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
	return r.content.Write(p)
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.content.String()
}

// waitFor waits until text was written at least count times.
func (r *recorder) waitFor(t *testing.T, text string, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		r.mu.Lock()
		found, changed := strings.Count(r.content.String(), text), r.changed
		r.mu.Unlock()
		if found >= count {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%q was written %d times, want %d", text, found, count)
		}
	}
}
