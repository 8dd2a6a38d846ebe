// Package functionshost is a local stand-in for the Azure Functions host, for development and tests only. It runs one
// app folder on one machine. It has no keys, no scale controller, no output bindings and no triggers other
// than queues and timers.
//
// It starts the custom handler of host.json as a process, listens to the queues and runs the timers of the
// function.json files, as `func start` does. It behaves as docs/host.md says, and like the newest host where versions
// differ. It is a Development host, and tells the handler so, unless AZURE_FUNCTIONS_ENVIRONMENT says otherwise.
//
// It differs from the real host in these points:
//
//   - A handler that cannot be started is an error at once, instead of a stop after two minutes. One that ends before
//     it was ready is restarted after a second instead of at once.
//   - Messages wait for a handler until the host stops, which it does when a handler failed three times.
//   - If storage cannot be reached, the host keeps polling instead of crashing.
//   - No poll begins after a stop. The real host still takes messages that become visible in the stop's first moments,
//     and cuts off a poll in progress, whose messages are then invisible until their lease ends.
//   - A write to a poison queue does not wake the function that reads this queue.
//   - In text mode, the content of a message does not overwrite its metadata.
//   - %NAME% in the arguments of the handler is refused.
//   - Schedules start afresh with the host, in UTC, and a time that passes during an invocation is skipped. No
//     invocation has a ScheduleStatus, and two of these hosts invoke a timer function twice. Intervals are refused.
package functionshost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/storage"
)

// Defaults of the real host (docs/host.md).
const (
	// DefaultLease and DefaultHandlerErrors are those of [Options].
	DefaultLease         = 10 * time.Minute
	DefaultHandlerErrors = 3
	defaultReadyTimeout  = 30 * time.Second
	defaultStopTimeout   = 10 * time.Second
	// timeoutGrace is the time between an invocation's timeout and the kill of the handler.
	timeoutGrace = 2 * time.Second
)

// Options configures a [Host]. All but Account are required; a zero Log discards the log.
type Options struct {
	// App is the app folder, as [functionapp.Load] returns it.
	App *functionapp.App
	// Store is the storage account of the functions' queues; Account is its name, for the log.
	Store   storage.Queues
	Account string
	// Env is the environment, as `name=value`. The handler gets it together with what the host adds.
	// Without AZURE_FUNCTIONS_ENVIRONMENT, the host is a Development host.
	Env []string
	// Stdout and Stderr receive the handler's output, one line per Write and never two at a time. Errors of the writers
	// are ignored.
	Stdout, Stderr io.Writer
	// Log is the host's own log. It never contains a message's content.
	Log zerolog.Logger
	// Lease is how long a received message stays invisible unless renewed, in whole seconds.
	Lease time.Duration
	// MaxHandlerErrors is the number of handler errors (unexpected exits, not ready in time), each within 30
	// minutes of the one before, at which the host stops. A negative number means no limit.
	MaxHandlerErrors int
}

// Host runs one app folder. Create it with [New].
type Host struct {
	options Options
	counts  counters
	// abandon ends what is left after Run.
	abandon func()
	// Tests shorten these.
	grace, readyTimeout, stopTimeout time.Duration
}

// New returns a host that is not running yet.
func New(options Options) *Host {
	options.Env = append(slices.Clip(options.Env), environmentVariable+"="+kindOf(options.Env))
	return &Host{
		options: options, abandon: func() {},
		grace: timeoutGrace, readyTimeout: defaultReadyTimeout, stopTimeout: defaultStopTimeout,
	}
}

// stats counts messages. The end-to-end tests read them from the log line "host stopped".
type stats struct {
	received, succeeded, failed, poisoned int
	maxDequeueCount                       int64
}

// counters is stats for concurrent use.
type counters struct {
	mu sync.Mutex
	stats
}

func (c *counters) update(change func(*stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

func (c *counters) read() stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Run starts the handler, listens to the queues and runs the timers. When ctx has ended, it stops and returns nil. It
// may be called once.
//
// It returns early, after the same stop, when the real host would give up too: the handler cannot be
// started or fails too often, or storage refuses (see [storage.ErrRefused]).
//
// If invocations are still in flight 10 s after a stop, Run leaves them and the handler behind, because its
// caller is about to exit. A caller that lives on calls [Host.Close].
func (h *Host) Run(ctx context.Context) error {
	if h.options.Lease < time.Second {
		return fmt.Errorf("lease of %v: it must be at least 1s", h.options.Lease)
	}
	cmd, err := resolveCommand(h.options.App)
	if err != nil {
		return err
	}
	clocks, err := clocks(h.options.App.Timers)
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}

	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Invocations in flight outlive the stop, and Run.
	inFlight, cut := context.WithCancel(context.WithoutCancel(ctx))

	handler := h.newHandler(cmd, port)
	timeout := h.options.App.Host.FunctionTimeout
	invoker := &invoker{handler: handler, timeout: timeout, grace: h.grace, log: h.options.Log}
	var supervisor, sources sync.WaitGroup
	h.abandon = func() {
		cut()
		supervisor.Wait()
		sources.Wait()
	}
	idle := make(chan struct{})
	supervisor.Go(func() {
		if err := handler.supervise(inFlight, running.Done(), idle); err != nil {
			stop(err)
		}
	})
	for _, fn := range h.options.App.Functions {
		l := h.newListener(fn, invoker, stop)
		sources.Go(func() { l.run(inFlight, running.Done()) })
	}
	for _, c := range clocks {
		c.invoke, c.log = invoker.invoke, h.options.Log.With().Str("function", c.timer.Name).Logger()
		sources.Go(func() { c.run(inFlight, running.Done()) })
	}
	h.logStart(cmd, port, clocks)

	<-running.Done()
	h.options.Log.Info().Msg("host stopping")
	h.waitFor(&sources)
	if left := invoker.inFlight.Load(); left > 0 {
		h.options.Log.Warn().Int64("in_flight", left).Int64("stop_timeout", logs.Millis(h.stopTimeout)).
			Msg("host ends with invocations in flight: the handler lives on, and the messages stay leased")
	} else { // a poll may still wait for slow storage
		close(idle)
		supervisor.Wait()
	}

	h.logSummary()
	if cause := context.Cause(running); !errors.Is(cause, context.Cause(ctx)) {
		return cause
	}
	return nil
}

// Close kills the handler that Run may have left behind, and leaves its messages leased. Call it after Run. Tests
// need it to leave no process behind; the real host and `async-caller host` just exit.
func (h *Host) Close() { h.abandon() }

// waitFor waits for the sources to end, at most the stop timeout.
func (h *Host) waitFor(sources *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { // ends with the sources; Close waits for them too
		sources.Wait()
		close(done)
	}()
	pause(h.stopTimeout, done)
}

func (h *Host) newHandler(cmd command, port int) *handler {
	return &handler{
		command:      cmd,
		env:          handlerEnv(h.options.Env, cmd.root, port),
		address:      fmt.Sprintf("http://127.0.0.1:%d", port),
		client:       newClient(),
		stdout:       h.options.Stdout,
		stderr:       h.options.Stderr,
		readyTimeout: h.readyTimeout,
		budget:       restartBudget{limit: h.options.MaxHandlerErrors},
		log:          h.options.Log,
		becameReady:  make(chan struct{}),
	}
}

func (h *Host) logStart(cmd command, port int, clocks []*clock) {
	var listening, timers []string
	for _, fn := range h.options.App.Functions {
		listening = append(listening, fn.Name+" <- "+fn.Queue)
	}
	for _, c := range clocks {
		timers = append(timers, c.timer.Name+" <- "+c.timer.Schedule)
	}
	h.options.Log.Info().Str("account", h.options.Account).Str("app", h.options.App.Dir).Str("handler", cmd.path).
		Int("port", port).Strs("listening", listening).Strs("timers", timers).Msg("host started")
}

func (h *Host) logSummary() {
	s := h.counts.read()
	h.options.Log.Info().Int("received", s.received).Int("succeeded", s.succeeded).Int("failed", s.failed).
		Int("poisoned", s.poisoned).Int64("max_dequeue_count", s.maxDequeueCount).Msg("host stopped")
}

// freePort finds a port for the handler. A restarted handler gets the same one. The port is below those that the system
// gives to others who ask for any port: one of them could get it before the handler listens.
func freePort(ctx context.Context) (int, error) {
	const first, ports, tries = 20_000, 10_000, 50
	var err error
	for range tries {
		port := first + rand.IntN(ports) //nolint:gosec // any of them will do
		var listener net.Listener
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a free port for the handler: %w", err)
}
