package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// pingInterval is the wait between two questions whether the handler is ready.
	pingInterval = 25 * time.Millisecond
	// readyRounds times the ready timeout is how long a message waits for a handler: the first start
	// and three restarts.
	readyRounds = 4
	// restartPause keeps a handler that dies before it is ready from spinning.
	restartPause = time.Second
	// exitDelay is how long a handler that was interrupted has to end by itself once nothing is in
	// flight any more.
	exitDelay = time.Second
)

var (
	errNoHandler = errors.New("the host is stopping and no handler is ready")
	errInitTime  = errors.New("Initialization timed out and host is shutting down") //nolint:staticcheck // the real host's words
)

// handler is the custom handler: one process at a time, started again when it ends. Sections C.2 to C.5
// of the Functions host contract.
type handler struct {
	command        command
	env            []string
	address        string // http://127.0.0.1:port
	client         *http.Client
	stdout, stderr io.Writer
	readyTimeout   time.Duration
	budget         restartBudget
	started        func() // called at every start
	log            zerolog.Logger

	mu      sync.Mutex
	ready   *process      // nil while there is none that is ready
	over    bool          // there will be no other
	changed chan struct{} // closed and replaced when ready or over change
}

// supervise keeps the handler running until stopping is closed, then until drained is closed, and
// returns when the process has ended. askedToStop tells a stop that was asked for, which a terminal
// would have signalled to the handler too, from one that the host decided on. The context must not end
// before supervise returns. An error means that the host must stop.
func (h *handler) supervise(ctx context.Context, stopping, drained <-chan struct{}, askedToStop func() bool) error {
	defer h.setOver()
	for !closed(stopping) {
		proc, err := startProcess(ctx, h.command, h.env, h.stdout, h.stderr)
		if err != nil {
			return err
		}
		h.started()
		h.log.Info().Int("pid", proc.pid()).Msg("handler started")
		how, wasReady := h.tend(ctx, proc, stopping, drained, askedToStop)
		h.client.CloseIdleConnections()
		if how == hostStopped {
			h.log.Info().Str("exit", proc.cmd.ProcessState.String()).Msg("handler stopped")
			return nil
		}
		if err := h.judgeEnding(proc, how); err != nil {
			return err
		}
		if !wasReady {
			pause(restartPause, stopping)
		}
	}
	return nil
}

// tend looks after one process until it has ended, and tells how it ended and whether it ever was ready.
func (h *handler) tend(ctx context.Context, proc *process, stopping, drained <-chan struct{}, askedToStop func() bool) (how ending, wasReady bool) {
	ctx, cancel := context.WithCancel(ctx)
	var pinging sync.WaitGroup
	defer pinging.Wait()
	defer cancel()
	answered := make(chan error, 1)
	begin := time.Now()
	pinging.Go(func() { answered <- h.ping(ctx) })

	for {
		select {
		case err := <-answered:
			if err != nil {
				proc.kill()
				<-proc.done
				if closed(stopping) {
					return hostStopped, false
				}
				return neverReady, false
			}
			wasReady, answered = true, nil
			h.setReady(proc)
			h.log.Info().Int("pid", proc.pid()).Dur("took", time.Since(begin)).Msg("handler ready")
		case <-proc.done:
			h.dismiss(proc)
			switch {
			case closed(stopping):
				return hostStopped, wasReady
			case proc.condemned.Load():
				return condemned, wasReady
			}
			return exited, wasReady
		case <-stopping:
			h.windDown(proc, drained, askedToStop())
			return hostStopped, wasReady
		}
	}
}

// windDown lets the handler answer what is in flight and then ends it.
func (h *handler) windDown(proc *process, drained <-chan struct{}, interrupt bool) {
	if interrupt {
		proc.interrupt()
	}
	select {
	case <-drained:
	case <-proc.done:
	}
	h.dismiss(proc)
	if interrupt {
		pause(exitDelay, proc.done)
	}
	proc.kill()
	<-proc.done
}

// judgeEnding logs how the process ended and returns an error if it must not be restarted.
func (h *handler) judgeEnding(proc *process, how ending) error {
	text := proc.exitText()
	if how == neverReady {
		text = fmt.Sprintf("no answer to GET / within %v", h.readyTimeout)
	}
	if !how.isError(proc.exitCode()) {
		h.log.Warn().Int("pid", proc.pid()).Str("exit", text).Msg("handler ended, restarting")
		return nil
	}
	mayRestart := h.budget.spend(time.Now())
	h.log.Error().Int("pid", proc.pid()).Str("exit", text).Int("errors", h.budget.errors).
		Bool("restart", mayRestart).Msg("handler failed")
	if !mayRestart {
		return fmt.Errorf("handler %s: Exceeded http worker restart retry count: %d errors, the latest: %s",
			h.command.path, h.budget.errors, text)
	}
	return nil
}

// ping asks until the handler answers, whatever it answers. The real host's questions may each take as
// long as an invocation; here the ready timeout bounds them all.
func (h *handler) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.readyTimeout)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.address+"/", http.NoBody)
		if err != nil {
			return fmt.Errorf("ask the handler whether it is ready: %w", err)
		}
		// One round trip: a redirect is an answer too.
		response, err := h.client.Transport.RoundTrip(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswerBytes))
			_ = response.Body.Close()
			return nil
		}
		if !pause(pingInterval, ctx.Done()) {
			return fmt.Errorf("ask the handler whether it is ready: %w", ctx.Err())
		}
	}
}

// await returns the process to send an invocation to, once one is ready. It gives up when the host is
// stopping, or with errInitTime when none was ready for too long.
func (h *handler) await(stopping <-chan struct{}) (*process, error) {
	limit := time.NewTimer(readyRounds * h.readyTimeout)
	defer limit.Stop()
	for {
		h.mu.Lock()
		proc, over, changed := h.ready, h.over, h.changed
		h.mu.Unlock()
		switch {
		case proc != nil:
			return proc, nil
		case over:
			return nil, errNoHandler
		}
		select {
		case <-changed:
		case <-stopping:
			return nil, errNoHandler
		case <-limit.C:
			return nil, errInitTime
		}
	}
}

// condemn has the process killed and another one started, which counts as no error. All invocations
// that it is working on fail.
func (h *handler) condemn(proc *process) {
	proc.condemned.Store(true)
	h.dismiss(proc)
	proc.kill()
}

func (h *handler) setReady(proc *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if proc.condemned.Load() {
		return
	}
	h.ready = proc
	h.announce()
}

// dismiss sends no more invocations to the process.
func (h *handler) dismiss(proc *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready == proc {
		h.ready = nil
		h.announce()
	}
}

func (h *handler) setOver() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready, h.over = nil, true
	h.announce()
}

// announce wakes those who wait for a change. The caller holds mu.
func (h *handler) announce() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// pause waits and reports whether it waited to the end, rather than for the signal.
func pause(d time.Duration, signal <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-signal:
		return false
	}
}

func closed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}
