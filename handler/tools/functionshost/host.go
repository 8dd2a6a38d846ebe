package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/listener"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/freeport"
)

// Defaults of the real host (docs/host.md).
const (
	// defaultLease and defaultHandlerErrors are those of [options].
	defaultLease         = 10 * time.Minute
	defaultHandlerErrors = 3
	defaultReadyTimeout  = 30 * time.Second
	defaultStopTimeout   = 10 * time.Second
	// longestPoll is the default for maxPollingInterval. A Development host replaces it by developmentPoll.
	longestPoll     = time.Minute
	developmentPoll = 2 * time.Second
	// poisonTTL is how long a message lives on the poison queue: the service's default, because the host sets
	// no time-to-live.
	poisonTTL = 7 * 24 * time.Hour
	// timeoutGrace is the time between an invocation's timeout and the kill of the handler.
	timeoutGrace = 2 * time.Second
)

// options configures a [host]. All but Account are required; a zero Log discards the log.
type options struct {
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
	// HTTPAddress is where HTTP functions are served, and Key their function key; empty lets everybody post.
	HTTPAddress, Key string
	// MaxHandlerErrors is the number of handler errors (unexpected exits, not ready in time), each within 30
	// minutes of the one before, at which the host stops. A negative number means no limit.
	MaxHandlerErrors int
}

// host runs one app folder. Create it with [newHost].
type host struct {
	options options
	counts  listener.Counts
	// abandon ends what is left after Run.
	abandon func()
	// Tests shorten these.
	grace, readyTimeout, stopTimeout time.Duration
}

// newHost returns a host that is not running yet.
func newHost(o options) *host {
	o.Env = append(slices.Clip(o.Env), environmentVariable+"="+kindOf(o.Env))
	return &host{
		options: o, abandon: func() {},
		grace: timeoutGrace, readyTimeout: defaultReadyTimeout, stopTimeout: defaultStopTimeout,
	}
}

// Run starts the handler, listens to the queues and runs the timers. When ctx has ended, it stops and returns nil. It
// may be called once.
//
// It returns early, after the same stop, when the real host would give up too: the handler cannot be
// started or fails too often, or storage refuses (see [storage.ErrRefused]).
//
// If invocations are still in flight 10 s after a stop, Run leaves them and the handler behind, because its
// caller is about to exit. A caller that lives on calls [host.Close].
func (h *host) Run(ctx context.Context) error {
	if h.options.Lease < time.Second {
		return fmt.Errorf("lease of %v: it must be at least 1s", h.options.Lease)
	}
	cmd, err := resolveCommand(h.options.App)
	if err != nil {
		return err
	}
	port, err := freeport.Find(ctx) // a restarted handler gets the same one
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
	clocks, err := newClocks(h.options.App.Timers, invoker.invoke, h.options.Log)
	if err != nil {
		return err
	}
	waitForPosts, err := h.serveHTTP(running, inFlight, invoker)
	if err != nil {
		return err
	}
	sources.Go(waitForPosts)
	idle := make(chan struct{})
	supervisor.Go(func() {
		if err := handler.supervise(inFlight, running.Done(), idle); err != nil {
			stop(err)
		}
	})
	for _, fn := range h.options.App.Functions {
		l := h.newListener(fn, invoker, stop)
		sources.Go(func() { l.Run(running, inFlight) })
	}
	for _, c := range clocks {
		sources.Go(func() { c.Run(running, inFlight) })
	}
	h.logStart(cmd, port)

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
// need it to leave no process behind; this program and the real host just exit.
func (h *host) Close() { h.abandon() }

// waitFor waits for the sources to end, at most the stop timeout.
func (h *host) waitFor(sources *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { // ends with the sources; Close waits for them too
		sources.Wait()
		close(done)
	}()
	pause(h.stopTimeout, done)
}

func (h *host) newHandler(cmd command, port int) *handler {
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

func (h *host) logStart(cmd command, port int) {
	var listening, timers []string
	for _, fn := range h.options.App.Functions {
		listening = append(listening, fn.Name+" <- "+fn.Queue)
	}
	for _, timer := range h.options.App.Timers {
		timers = append(timers, timer.Name+" <- "+timer.Schedule)
	}
	h.options.Log.Info().Str("account", h.options.Account).Str("app", h.options.App.Dir).Str("handler", cmd.path).
		Int("port", port).Strs("listening", listening).Strs("timers", timers).Msg("host started")
}

// logSummary logs the counts, which the end-to-end tests read.
func (h *host) logSummary() {
	h.options.Log.Info().EmbedObject(h.counts.Read()).Msg("host stopped")
}

func (h *host) newListener(fn functionapp.Function, i *invoker, stop func(error)) *listener.Listener {
	return listener.New(listener.Options{
		Function: fn,
		Queues:   withDefaultPolling(h.options.App.Host.Queues, kindOf(h.options.Env)),
		Store:    h.options.Store,
		Invoke: func(ctx context.Context, msg storage.Message, content []byte) listener.Result {
			return i.invoke(ctx, messageInvocation(fn, msg, content, time.Now(), uuid.NewString()))
		},
		Lease:       h.options.Lease,
		RenewsLease: true,
		PoisonTTL:   poisonTTL,
		Counts:      &h.counts,
		Refused:     func(err error) { stop(fmt.Errorf("%w; the real host crashes then", err)) },
		Log:         h.options.Log,
	})
}

// withDefaultPolling fills in the host's default for maxPollingInterval. A Development host also shortens an interval
// in host.json that equals the default.
func withDefaultPolling(o functionapp.QueueOptions, kind string) functionapp.QueueOptions {
	o.MaxPollingInterval = cmp.Or(o.MaxPollingInterval, longestPoll)
	if o.MaxPollingInterval == longestPoll && strings.EqualFold(kind, development) {
		o.MaxPollingInterval = developmentPoll
	}
	return o
}

// checkTimers reports the timers whose schedule is invalid. Each problem names the file.
func checkTimers(app *functionapp.App) error {
	if app == nil {
		return nil
	}
	_, err := newClocks(app.Timers, nil, zerolog.Nop())
	return err
}

// newClocks returns a clock for each timer. The error joins all problems.
func newClocks(
	timers []functionapp.Timer, invoke func(context.Context, invocation) listener.Result, log zerolog.Logger,
) ([]*listener.Clock, error) {
	var all []*listener.Clock
	var problems []error
	for _, timer := range timers {
		clock, err := listener.NewClock(timer, func(ctx context.Context, _, _ time.Time) listener.Result {
			return invoke(ctx, timerInvocation(timer, time.Now(), uuid.NewString()))
		}, log)
		if err != nil {
			problems = append(problems, fmt.Errorf("%w; the local host runs no intervals", err))
		}
		all = append(all, clock)
	}
	return all, errors.Join(problems...)
}
