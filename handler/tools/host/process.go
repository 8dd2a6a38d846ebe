package host

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
	"time"
)

// outputDelay is how long the output of a handler that has ended may stay open, held by a process that
// it started.
const outputDelay = time.Second

// process is one run of the handler.
type process struct {
	cmd *exec.Cmd
	// done is closed when the process has ended, is reaped and its output was passed on.
	done chan struct{}
	// condemned is set before the host kills the process for another reason than a stop.
	condemned atomic.Bool
	stderr    tail // of use once done is closed
}

// startProcess starts the handler in a process group of its own, so that the terminal's signals reach
// it through the host alone, and what it starts ends with it. The end of ctx kills it; the caller is
// expected to have seen to that before.
func startProcess(ctx context.Context, c command, env []string, stdout, stderr io.Writer) (*process, error) {
	p := &process{done: make(chan struct{})}
	outLines := &lineWriter{dst: stdout}
	errLines := &lineWriter{dst: stderr, seen: p.stderr.add}
	p.cmd = exec.CommandContext(ctx, c.path, c.args...) //nolint:gosec // host.json says what to run
	p.cmd.Dir, p.cmd.Env = c.dir, env
	p.cmd.Stdout, p.cmd.Stderr = outLines, errLines
	p.cmd.WaitDelay = outputDelay
	p.cmd.SysProcAttr = ownGroup()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start handler %s: %w; run `make build` if it was not built for this machine", c.path, err)
	}
	go func() { // the supervisor waits for done before it goes on
		_ = p.cmd.Wait() // the process state says how it ended
		outLines.flush()
		errLines.flush()
		close(p.done)
	}()
	return p, nil
}

// pid returns the process id.
func (p *process) pid() int { return p.cmd.Process.Pid }

// exitCode returns the exit code, -1 after a signal. Call it after done only.
func (p *process) exitCode() int { return p.cmd.ProcessState.ExitCode() }

// exitText says how the process ended, with the last lines of its stderr. Call it after done only.
func (p *process) exitText() string {
	text := p.cmd.ProcessState.String()
	if len(p.stderr.lines) > 0 {
		text += ": " + p.stderr.String()
	}
	return text
}

// interrupt sends what Ctrl-C in a terminal sends.
func (p *process) interrupt() {
	select {
	case <-p.done: // its id may be somebody else's by now
	default:
		interruptGroup(p.cmd.Process)
	}
}

// kill ends the process and what it started, at once. The caller then waits for done.
func (p *process) kill() {
	select {
	case <-p.done:
	default:
		killGroup(p.cmd.Process)
	}
}
