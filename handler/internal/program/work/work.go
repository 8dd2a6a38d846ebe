// Package work runs the worker: the process that makes the calls of an app without the Functions host. It receives the
// messages of the app's queues itself, and runs its timer functions.
package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/app/listener"
	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

const (
	// Lease is how long a message that was received stays invisible. It is never renewed: a message has one receipt, by
	// which it can be settled and deleted, until its lease ends.
	Lease = 6 * time.Minute
	// LongestCall is how long a call may take, so that the delete of its message ends before the lease even if all
	// else takes as long as it may: the receive, a token, the history before and after the call, the line of a limit,
	// settling and the delete.
	LongestCall = Lease - (listener.RequestTimeout + credential.Timeout + 2*history.AnswerTime + limit.LongestWait +
		settle.Timeout + listener.CompletionTimeout)
)

const (
	// busyPolling and idlePolling are the usual longest times between two polls of a queue. Eleven queues that are
	// idle cost a million transactions a month.
	busyPolling = 2 * time.Second
	idlePolling = 30 * time.Second
	// graceMargin is what a stop waits beside the longest call, so that no call is interrupted.
	graceMargin = 5 * time.Second
	// settleGrace is how long a stop waits until interrupted calls are rescheduled.
	settleGrace = settle.Timeout + listener.CompletionTimeout
	// memoryShare is the share of the memory above which the garbage collector works as hard as needed.
	memoryShare = 0.8
)

// Config is the configuration of the worker.
type Config struct {
	instance.Config
	// Functions are those whose queues it serves.
	Functions []functionapp.Function
	// Grace is how long a stop waits for the calls in flight before it interrupts them.
	Grace time.Duration
	// HealthPort is the port on which the worker says whether it is ready; empty means none.
	HealthPort string

	timers []functionapp.Timer
	// busyPolling and idlePolling are the longest times between two polls of a queue.
	busyPolling, idlePolling time.Duration
}

// PollEvery sets the longest time between two polls of a queue, also of an idle one, for an account without a price.
func (c *Config) PollEvery(longest time.Duration) {
	c.busyPolling, c.idlePolling = longest, longest
	c.App.Settings.Rules.Notice = longest + decision.HostNotice
}

// ReadConfig reads and validates an app folder and the settings. Problems with the settings alone are no error. It
// serves the named queues, or all.
func ReadConfig(dir string, environ, queues []string) (c Config, err error) {
	app := config.ReadApp(dir, environ, config.Worker)
	if err := errors.Join(app.LocalErr, app.FunctionsErr, app.ConnectionErr); err != nil {
		return c, err
	}
	app.Settings.Rules.Notice = idlePolling + decision.HostNotice
	longest, source := app.Settings.LongestCall()
	if longest > LongestCall {
		app.SettingsErr = errors.Join(app.SettingsErr, fmt.Errorf("%s is %v: a worker allows at most %v, because its "+
			"lease on a message of %v is not renewed", source, longest, LongestCall, Lease))
	}
	c = Config{
		Config: instance.Config{App: app, Adapter: heartbeat.Worker}, Grace: longest + graceMargin,
		busyPolling: busyPolling, idlePolling: idlePolling,
	}
	c.Functions, c.timers = app.Functions.Running(app.Environ)
	if len(queues) == 0 {
		return c, nil
	}
	var known []string
	for _, f := range c.Functions {
		known = append(known, f.Queue)
	}
	for _, queue := range queues {
		if !slices.Contains(known, queue) {
			return c, fmt.Errorf("no function that runs reads queue %q: the queues are %s",
				queue, strings.Join(known, ", "))
		}
	}
	c.Queues = queues
	c.Functions = slices.DeleteFunc(c.Functions, func(f functionapp.Function) bool {
		return !slices.Contains(queues, f.Queue)
	})
	return c, nil
}

// worker is a worker that runs.
type worker struct {
	Config
	instance *instance.Instance
	health   health
	counts   listener.Counts
	log      zerolog.Logger
}

func newWorker(c Config, i *instance.Instance, log zerolog.Logger) *worker {
	return &worker{Config: c, instance: i, health: health{isIdle: i.WhyNoCalls() != ""}, log: log}
}

// Run makes the calls of the app until ctx ends, and logs to output. Then it waits for the calls in flight, at most the
// grace, and interrupts the others, whose messages are visible again within seconds.
func Run(ctx context.Context, c Config, output io.Writer) error {
	instance.TuneMemory(config.Getenv(c.App.Environ), memoryShare)
	log, lines := instance.OpenLog(c.Config, output)
	defer lines.Close()
	stopping, interrupt := context.WithCancel(context.WithoutCancel(ctx))
	i := instance.Open(stopping, c.Config, log)
	defer i.Close() //nolint:contextcheck // after the last delivery
	var background sync.WaitGroup
	background.Go(func() { i.Run(stopping) })
	defer background.Wait()
	defer interrupt()
	return newWorker(c, i, log).run(ctx, interrupt)
}

// run makes the calls until ctx ends, and then stops. Interrupt interrupts the calls in flight.
func (w *worker) run(ctx context.Context, interrupt func()) error {
	clocks, err := w.clocks()
	if err != nil {
		return err
	}
	endHealth, err := w.serveHealth(ctx)
	if err != nil {
		return err
	}
	defer endHealth()

	var sources sync.WaitGroup
	inFlight, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var queues []string
	if !w.InHoldMode() {
		places := listener.NewPlaces(targets.MaxCalls, storage.MaxBatch)
		for _, f := range w.Functions {
			queues = append(queues, f.Queue)
			sources.Go(func() { w.newListener(f, places).Run(ctx, inFlight) })
		}
	}
	for _, clock := range clocks {
		sources.Go(func() { clock.Run(ctx, ctx) }) // a task that is cut short goes on at its next time
	}
	if !w.health.isIdle { // otherwise a line says why
		w.log.Info().Str(logs.Account, w.App.Connection.Account()).Strs("queues", queues).Int("timers", len(clocks)).
			Str("version", w.Version).Msg("ready for calls")
	}
	if w.App.Name() == functionapp.LocalName {
		w.log.Warn().Str("app", functionapp.LocalName).
			Msg("the app has no name: set ASYNC_CALLER_APP, because apps of one name count limits together")
	}
	for _, p := range w.App.Functions.Posts {
		w.log.Warn().Str(logs.Function, p.Name).Msg("a worker takes no posts: only the Functions host does")
	}
	<-ctx.Done()
	return w.stop(&sources, interrupt)
}

// stop waits until the messages in flight are completed.
func (w *worker) stop(sources *sync.WaitGroup, interrupt func()) error {
	done := make(chan struct{})
	go func() {
		sources.Wait()
		close(done)
	}()
	w.log.Info().Int64("grace", logs.Millis(w.Grace)).
		Msg("stopping: waiting for the calls in flight; a second signal ends at once")
	if !waitFor(done, w.Grace) {
		w.log.Info().Msg("interrupting the calls that are left")
		interrupt()
		if !waitFor(done, settleGrace) {
			return fmt.Errorf("stop: some messages were not settled within %v: they are visible again when their "+
				"leases end", settleGrace)
		}
	}
	w.log.Info().EmbedObject(w.counts.Read()).Msg("worker stopped")
	return nil
}

// waitFor reports whether done is closed within a time.
func waitFor(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (w *worker) newListener(f functionapp.Function, places *listener.Places) *listener.Listener {
	queues := w.App.Functions.Host.Queues
	queues.MaxPollingInterval = w.busyPolling
	return listener.New(listener.Options{
		Function: f, Queues: queues, IdlePolling: w.idlePolling, Store: w.Store,
		Invoke: func(ctx context.Context, msg storage.Message, content []byte) listener.Result {
			return w.deliver(ctx, f, msg, content)
		},
		Lease: Lease, Places: places, Poisoned: w.instance.RecordPoison, Counts: &w.counts, Polled: w.health.polled,
		Log: w.log,
	})
}

// deliver delivers a message. A panic makes one delivery fail, not the worker; a message that always panics is moved
// to the poison queue.
func (w *worker) deliver(
	ctx context.Context, f functionapp.Function, msg storage.Message, content []byte,
) (out listener.Result) {
	m := delivery.Message{
		Message:  decision.Message{Function: f.Name, Queue: f.Queue, ID: msg.ID, DequeueCount: msg.DequeueCount},
		IsRouted: f.IsRouted(), Content: content,
		Lease: settle.Lease{
			ID: msg.ID, PopReceipt: msg.PopReceipt, DequeueCount: msg.DequeueCount,
			InsertedAt: msg.InsertedAt, ExpiresAt: msg.ExpiresAt,
		},
	}
	defer func() {
		if cause := recover(); cause != nil {
			w.log.Error().EmbedObject(&logs.Message{Message: m.Message}).EmbedObject(logs.Panic{Cause: cause}).
				Msg("panic: the message is delivered again")
			out = listener.Failed
		}
	}()
	result := w.instance.Deliverer.Deliver(ctx, m)
	switch {
	case !result.MayDelete():
		return listener.Failed
	case result.Reschedule == settle.RescheduleUpdate:
		return listener.Kept
	}
	return listener.Succeeded
}

// clocks returns a clock for each timer function. The error joins the problems with their schedules.
func (w *worker) clocks() (all []*listener.Clock, err error) {
	for _, timer := range w.timers {
		task, isKnown := w.instance.Tasks[timer.Name]
		if !isKnown {
			w.log.Warn().Str(logs.Function, timer.Name).Msg("no such timer function: remove its folder")
			continue
		}
		clock, problem := listener.NewClock(timer, func(ctx context.Context, due, next time.Time) listener.Result {
			return w.runTask(ctx, timer.Name, task, due, next)
		}, w.log)
		err = errors.Join(err, problem)
		all = append(all, clock)
	}
	return all, err
}

// runTask runs the task of a timer function, unless another worker of the app does.
func (w *worker) runTask(
	ctx context.Context, name string, task ingress.Task, due, next time.Time,
) (out listener.Result) {
	log := w.log.With().Str(logs.Function, name).Logger()
	defer func() {
		if cause := recover(); cause != nil {
			log.Error().EmbedObject(logs.Panic{Cause: cause}).Msg("panic: it runs again at its next time")
			out = listener.Failed
		}
	}()
	if w.instance.Turns.Take(ctx, name, due, next) && ingress.RunTask(ctx, task, log) != nil {
		return listener.Failed
	}
	return listener.Succeeded
}
