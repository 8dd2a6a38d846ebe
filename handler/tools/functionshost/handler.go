package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
)

const (
	// pingInterval is the time between two pings of a handler that is not ready yet.
	pingInterval = 25 * time.Millisecond
	// restartPause limits the restarts of a handler that ends before it is ready.
	restartPause = time.Second
	// killDelay is how long the real host takes to kill an idle handler: enough for the handler's last log lines.
	killDelay = 70 * time.Millisecond
	// outputDelay is how long another process may hold the output of an ended handler open.
	outputDelay = time.Second
	// errorWindow is how long a handler error counts.
	errorWindow = 30 * time.Minute
	// intentionalRestart is the exit code with which a handler asks for a restart.
	intentionalRestart = 200
)

// handler is the custom handler: one process at a time, restarted when it ends (docs/host.md, "Readiness",
// "Exits of the handler" and "Stop of the host").
type handler struct {
	command        command
	env            []string
	address        string // http://127.0.0.1:port
	client         *http.Client
	stdout, stderr io.Writer
	readyTimeout   time.Duration
	budget         restartBudget
	log            zerolog.Logger

	mu          sync.Mutex
	ready       *process      // nil while no process is ready
	becameReady chan struct{} // closed and replaced when a process becomes ready
}

// supervise keeps the handler running until stopping is closed, and kills it once idle is closed; it never sends
// another signal. It returns when the process has ended. The end of ctx kills the process too. An error means that the
// host must stop.
func (h *handler) supervise(ctx context.Context, stopping, idle <-chan struct{}) error {
	for !closed(stopping) {
		proc, err := h.startProcess(ctx)
		if err != nil {
			return err
		}
		h.log.Info().Int("pid", proc.pid()).Msg("handler started")
		wasReady := h.watch(ctx, proc, idle)
		if closed(stopping) {
			// If it ended by itself, what is sent to it from now on fails: the real host does not notice.
			pause(killDelay, proc.done)
			proc.kill()
			<-proc.done
			h.client.CloseIdleConnections()
			h.log.Info().Str("exit", proc.cmd.ProcessState.String()).Msg("handler stopped")
			return nil
		}
		h.retire(proc)
		if err := h.judgeEnding(proc); err != nil {
			return err
		}
		if !wasReady {
			pause(restartPause, stopping)
		}
	}
	return nil
}

// watch sends invocations to the process once it is ready, and returns when it has ended or idle is closed. A stop of
// the host changes nothing: messages in flight may still wait for the process to be ready.
func (h *handler) watch(ctx context.Context, proc *process, idle <-chan struct{}) (wasReady bool) {
	starting, cancel := context.WithTimeout(ctx, h.readyTimeout)
	defer cancel()
	go func() { // ends with the context
		select {
		case <-proc.done:
		case <-idle:
		case <-starting.Done():
		}
		cancel()
	}()
	begin := time.Now()
	if h.ping(starting) {
		h.setReady(proc)
		h.log.Info().Int("pid", proc.pid()).Int64(logs.Took, logs.Millis(time.Since(begin))).Msg("handler ready")
		select {
		case <-proc.done:
		case <-idle:
		}
		return true
	}
	if errors.Is(starting.Err(), context.DeadlineExceeded) {
		proc.fault = fmt.Sprintf("no answer to GET / within %v", h.readyTimeout)
		proc.kill()
		<-proc.done
	}
	return false
}

// ping polls GET / until the handler answers, whatever the answer, and reports whether it did before the
// context ended. The real host gives each ping the timeout of an invocation.
func (h *handler) ping(ctx context.Context) bool {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.address+"/", http.NoBody)
		if err != nil {
			return false
		}
		// One round trip, because a redirect is an answer too.
		response, err := h.client.Transport.RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
			return true
		}
		if !pause(pingInterval, ctx.Done()) {
			return false
		}
	}
}

// judgeEnding logs how the process ended. It returns an error if the handler must not be restarted
// (docs/host.md, "Exits of the handler").
func (h *handler) judgeEnding(proc *process) error {
	text, exitCode := proc.exitText(), proc.cmd.ProcessState.ExitCode() // -1 after a signal
	if exitCode == 0 || exitCode == intentionalRestart || proc.replaced.Load() {
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

// restartBudget counts handler errors. It forgets them when the next error comes more than errorWindow later.
type restartBudget struct {
	limit  int // negative: none
	errors int
	latest time.Time
}

// spend counts an error and reports whether the handler may be restarted.
func (b *restartBudget) spend(now time.Time) bool {
	if !b.latest.IsZero() && now.Sub(b.latest) > errorWindow {
		b.errors = 0
	}
	b.errors++
	b.latest = now
	return b.limit < 0 || b.errors < b.limit
}

// await returns a process that is ready for an invocation, or nil when ctx ends. A stop of the host does not end the
// wait, as in the real host.
func (h *handler) await(ctx context.Context) *process {
	for {
		h.mu.Lock()
		proc, becameReady := h.ready, h.becameReady
		h.mu.Unlock()
		if proc != nil {
			return proc
		}
		select {
		case <-becameReady:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *handler) setReady(proc *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = proc
	close(h.becameReady)
	h.becameReady = make(chan struct{})
}

// retire sends no more invocations to the process.
func (h *handler) retire(proc *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready == proc {
		h.ready = nil
	}
	h.client.CloseIdleConnections()
}

// replace kills the process after a function timeout. All its invocations fail, and a new process starts.
func (h *handler) replace(proc *process) {
	proc.replaced.Store(true)
	h.retire(proc)
	proc.kill()
}

// process is a process of the handler.
type process struct {
	cmd *exec.Cmd
	// done is closed when the process has ended and its output was passed on.
	done     chan struct{}
	replaced atomic.Bool // killed after a function timeout, which is no error of the handler
	fault    string      // why the supervisor killed it, if it did
	stderr   *lineWriter // read it after done is closed
}

// startProcess starts the handler in the host's process group: Ctrl-C at a terminal reaches it directly, as with
// `func start`.
func (h *handler) startProcess(ctx context.Context) (*process, error) {
	output := new(sync.Mutex)
	stdout := &lineWriter{mu: output, dst: h.stdout}
	p := &process{done: make(chan struct{}), stderr: &lineWriter{mu: output, dst: h.stderr}}
	p.cmd = exec.CommandContext(ctx, h.command.path, h.command.args...) //nolint:gosec // the command is host.json's
	p.cmd.Dir, p.cmd.Env = h.command.dir, h.env
	p.cmd.Stdout, p.cmd.Stderr = stdout, p.stderr
	p.cmd.WaitDelay = outputDelay
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start handler %s: %w; if it was not built for this machine, run `make build`",
			h.command.path, err)
	}
	go func() { // the supervisor waits for done
		_ = p.cmd.Wait() // the process state has the result
		stdout.flush()
		p.stderr.flush()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// exitText describes how the process ended, with the last lines of its stderr. Call it after done is closed.
func (p *process) exitText() string {
	if p.fault != "" {
		return p.fault
	}
	text := p.cmd.ProcessState.String()
	if len(p.stderr.last) > 0 {
		text += ": " + strings.Join(p.stderr.last, "; ")
	}
	return text
}

// kill ends the process at once.
func (p *process) kill() {
	if !closed(p.done) {
		_ = p.cmd.Process.Kill() // the only possible error is that it has just ended
	}
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
