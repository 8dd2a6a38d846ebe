// Package host is a local stand-in for the Azure Functions host, for development and tests only: it
// runs one app folder on one machine, has no keys, no scale controller, no output bindings and no
// triggers but queues and timers.
//
// It starts the custom handler of host.json as a process, listens to the queues and follows the
// schedules of the function.json files, as `func start` does, and follows the rules of the Functions host
// contract: the wire format of an invocation, how an answer is judged, when the handler is restarted, how
// a message is polled, leased, completed and moved to the poison queue. Where versions of the real host
// differ, it does as the newest one does:
//
//   - A handler that exits with code 0 is restarted; hosts of before 2026 leave it dead, and every
//     later invocation fails. A handler must never count on the restart.
//   - A message that is read from a `-poison` queue is invoked however often it was dequeued; queue
//     extensions before 5.3.8 skip it without a word.
//
// And it always is a Development host: polls are at most 2 s apart unless host.json asks for another
// interval than the default.
//
// Timers are simpler than in the real host:
//
//   - Schedules begin anew at each start. The real host remembers them in the storage account, in the
//     blobs of azure-webjobs-hosts, and runs at its start, with IsPastDue, what came due meanwhile.
//   - No run is made up for. The real host runs a timer once more, at once, if its time came while a run
//     was under way.
//   - Two of these hosts run a timer twice. The real one holds a lock, a blob too, for all instances.
//   - Times are UTC, whatever WEBSITE_TIME_ZONE says.
//   - The invocation always tells the schedule's state. The real host tells none (null) if the timer runs
//     more than once a minute or useMonitor is false.
//
// It is kinder than the real host in a few points, each of which would only cost a developer time: a
// handler that cannot be started is an error at once instead of a stop after two minutes; a handler
// that ends before it was ever ready is restarted after a second instead of at once; storage that
// cannot be reached is polled until it is back instead of crashing the host; and a message that was
// received but not handed over before a stop is given back at once instead of waiting for its lease to
// end.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
)

// Defaults of the real host.
const (
	defaultLease            = 10 * time.Minute
	defaultReadyTimeout     = 30 * time.Second
	defaultStopTimeout      = 10 * time.Second
	defaultMaxHandlerErrors = 3
	// timeoutGrace is how long an invocation that has timed out may still take before the handler is
	// killed.
	timeoutGrace = 2 * time.Second
)

// Options says what to run. App and Store are required; the rest has defaults.
type Options struct {
	// App is the app folder, as [functionapp.Load] returns it.
	App *functionapp.App
	// Store is the storage account that the functions' queues belong to.
	Store queue.Store
	// Env is the environment, as `name=value`, that the handler gets besides what the host adds, and
	// that %NAME% in host.json refers to.
	Env []string
	// Stdout and Stderr take the handler's output, a line per Write, never two at a time; lines are cut
	// at 64 KiB. Nil drops it, and an error of theirs is ignored.
	Stdout, Stderr io.Writer
	// Log takes what the host itself has to say. It never gets a message's content.
	Log zerolog.Logger
	// Lease is how long a received message stays invisible unless renewed; 0 means 10 minutes, as in
	// the real host. Whole seconds, 1 s or more.
	Lease time.Duration
	// ReadyTimeout is how long a started handler has to answer GET /; 0 means 30 s. A message waits
	// four times as long for a handler before the host stops itself.
	ReadyTimeout time.Duration
	// StopTimeout is how long messages and timer runs in flight may take once the host stops; 0 means
	// 10 s.
	StopTimeout time.Duration
	// MaxHandlerErrors is the number of handler errors (unexpected exits, not ready in time), each
	// within 30 minutes of the one before, at which the host stops itself; 0 means 3, as in the real
	// host, negative means never.
	MaxHandlerErrors int
	// ContentLength sends invocations with a Content-Length, as under `func start`. The zero value sends
	// them chunked, as in Azure.
	ContentLength bool
}

// Host runs one app folder. It is made by [New].
type Host struct {
	options Options
	counts  *counters
	grace   time.Duration
}

// New returns a host that is not running yet.
func New(options Options) *Host {
	orDefault(&options.Lease, defaultLease)
	orDefault(&options.ReadyTimeout, defaultReadyTimeout)
	orDefault(&options.StopTimeout, defaultStopTimeout)
	orDefault(&options.MaxHandlerErrors, defaultMaxHandlerErrors)
	orDefault[io.Writer](&options.Stdout, io.Discard)
	orDefault[io.Writer](&options.Stderr, io.Discard)
	return &Host{options: options, counts: newCounters(options.App), grace: timeoutGrace}
}

func orDefault[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

// Stats returns what has been counted so far. It may be called at any time, also while Run runs and
// after it.
func (h *Host) Stats() Stats { return h.counts.snapshot() }

// Run starts the handler, listens to the queues, runs the timers and returns when ctx has ended and
// everything has stopped; then the error is nil. It may be called once.
//
// It returns early, after the same orderly stop, when the real host would give up too: the handler
// cannot be started, is never ready or fails too often, or storage refuses (see [queue.ErrRefused]).
//
// The stop: no more polls and timer runs; the handler gets the SIGINT that a terminal would give it;
// messages and timer runs in flight get StopTimeout to be answered and completed; then the handler is
// killed and reaped.
func (h *Host) Run(ctx context.Context) error {
	if err := h.check(); err != nil {
		return err
	}
	cmd, err := resolveCommand(h.options.App, h.options.Env)
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}

	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// What is in flight outlives the stop, until cut.
	inFlight, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()

	handler := h.newHandler(cmd, port)
	invoker := h.newInvoker(handler, running.Done(), stop)

	var supervisor, listening sync.WaitGroup
	drained := make(chan struct{})
	supervisor.Go(func() {
		askedToStop := func() bool { return ctx.Err() != nil }
		if err := handler.supervise(inFlight, running.Done(), drained, askedToStop); err != nil {
			stop(err)
		}
	})
	for _, s := range h.newSources(invoker, stop) {
		listening.Go(func() { s.run(inFlight, running.Done()) })
	}
	h.logStart(cmd, port)

	<-running.Done()
	h.options.Log.Info().Msg("host stopping")
	h.waitFor(&listening)
	close(drained)
	supervisor.Wait()
	cut() // what still waits for an answer waits for a handler that is gone
	listening.Wait()

	h.logSummary()
	if cause := context.Cause(running); !errors.Is(cause, context.Cause(ctx)) {
		return cause
	}
	return nil
}

// waitFor gives what is in flight the stop timeout.
func (h *Host) waitFor(listening *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { // ends with the listeners, for whom Run waits in any case
		listening.Wait()
		close(done)
	}()
	limit := time.NewTimer(h.options.StopTimeout)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		h.options.Log.Warn().Dur("stop_timeout", h.options.StopTimeout).
			Msg("messages or timer runs are still in flight: killing the handler")
	}
}

func (h *Host) check() error {
	switch {
	case h.options.App == nil:
		return errors.New("host options: App is missing")
	case h.options.Store == nil:
		return errors.New("host options: Store is missing")
	}
	queues := h.options.App.Host.Queues
	switch {
	case queues.BatchSize < 1 || queues.BatchSize > queue.MaxBatch:
		return fmt.Errorf("host.json extensions.queues.batchSize is %d: it must be 1 to %d", queues.BatchSize, queue.MaxBatch)
	case queues.MaxDequeueCount < 1:
		return fmt.Errorf("host.json extensions.queues.maxDequeueCount is %d: it must be at least 1", queues.MaxDequeueCount)
	case h.options.Lease < time.Second:
		return fmt.Errorf("host options: Lease is %v: storage knows no lease below 1s", h.options.Lease)
	}
	return nil
}

func (h *Host) newHandler(cmd command, port int) *handler {
	output := new(sync.Mutex)
	return &handler{
		command:      cmd,
		env:          handlerEnv(h.options.Env, h.options.App.Dir, port),
		address:      fmt.Sprintf("http://127.0.0.1:%d", port),
		client:       newClient(h.options.App.Host.FunctionTimeout),
		stdout:       &sharedWriter{mu: output, dst: h.options.Stdout},
		stderr:       &sharedWriter{mu: output, dst: h.options.Stderr},
		readyTimeout: h.options.ReadyTimeout,
		budget:       restartBudget{limit: h.options.MaxHandlerErrors},
		started:      h.counts.handlerStarted,
		log:          h.options.Log,
		changed:      make(chan struct{}),
	}
}

func (h *Host) newInvoker(handler *handler, stopping <-chan struct{}, fatal func(error)) *invoker {
	return &invoker{
		handler:       handler,
		timeout:       h.options.App.Host.FunctionTimeout,
		grace:         h.grace,
		contentLength: h.options.ContentLength,
		stopping:      stopping,
		fatal:         fatal,
		log:           h.options.Log,
	}
}

// source is what makes invocations: until stopping is closed, and those under way until ctx has ended.
type source interface {
	run(ctx context.Context, stopping <-chan struct{})
}

func (h *Host) newSources(invoker *invoker, fatal func(error)) (sources []source) {
	for _, l := range h.newListeners(invoker, fatal) {
		sources = append(sources, l)
	}
	for _, timer := range h.options.App.Timers {
		sources = append(sources, &clock{
			timer:  timer,
			invoke: invoker.invokeTimer,
			counts: h.counts,
			log:    h.options.Log.With().Str("function", timer.Name).Logger(),
		})
	}
	return sources
}

func (h *Host) newListeners(invoker *invoker, fatal func(error)) []*listener {
	listeners := make([]*listener, len(h.options.App.Functions))
	rules := newRules(h.options.App.Host.Queues, h.options.Lease, h.options.Env)
	wake := func(queueName string) {
		for _, l := range listeners {
			if l.fn.Queue == queueName {
				l.wakeUp()
			}
		}
	}
	for i, fn := range h.options.App.Functions {
		l := newListener(fn, rules, h.options.Store, invoker.invoke)
		l.counts = h.counts
		l.log = h.options.Log.With().Str("function", fn.Name).Str("queue", fn.Queue).Logger()
		l.random = rand.Float64
		l.fatal = fatal
		l.wrote = wake
		listeners[i] = l
	}
	return listeners
}

// freePort finds a port for the handler: one per host start, kept over restarts of the handler.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("free port for the handler: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("free port for the handler: %w", err)
	}
	return port, nil
}
