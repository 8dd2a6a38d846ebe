//go:build unix

package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// HostOptions configures the host.
type HostOptions struct {
	// Func starts the Functions host of Core Tools in place of the local host, and Worker the worker, which is the
	// executable of the app folder. They have no Args.
	Func, Worker bool
	// Executable is the local host, as [BuildHost] builds it; AppDir is the app folder.
	Executable, AppDir string
	// ConnectionString is that of the storage account.
	ConnectionString string
	// Environ is the environment, nil for that of this process. Env is added to it.
	Environ, Env []string
	// Args are added to those of the local host.
	Args []string
	// Out receives the output of host and handler; nil keeps it for Output only.
	Out io.Writer
	// Forget keeps no output, for long runs: Lines and Output return nothing.
	Forget bool
}

// LoopbackAllowed is the setting of local.settings.json: the targets are on this machine.
const LoopbackAllowed = "ASYNC_CALLER_TARGETS_ALLOW=127.0.0.0/8,::1,*"

// Host is the local host, `func start`, or the worker, in its own process.
type Host struct {
	command  *exec.Cmd
	isWorker bool
	output   *output
	killed   atomic.Bool
	done     chan struct{}
	err      error // read it after done is closed
}

// StartHost starts the host. It does not wait until the handler is ready, because messages do.
func StartHost(ctx context.Context, o HostOptions) (*Host, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	args := append([]string{"--app", o.AppDir}, o.Args...)
	h := &Host{
		// Not CommandContext, because a killed host leaves its handler behind. Stop ends both.
		command: exec.Command(o.Executable, args...), //nolint:noctx // see above
		output:  &output{forward: o.Out, forget: o.Forget},
		done:    make(chan struct{}),
	}
	environ := o.Environ
	if environ == nil {
		environ = os.Environ()
	}
	h.command.Env = append(slices.Clip(environ), "AzureWebJobsStorage="+o.ConnectionString, LoopbackAllowed)
	if o.Func {
		if err := h.useFunc(ctx, o.AppDir); err != nil {
			return nil, err
		}
	}
	if o.Worker {
		worker := exec.Command(filepath.Join(o.AppDir, "async-caller"), "work", //nolint:noctx // as above
			"--app", o.AppDir, "--grace", "3s")
		worker.Env = h.command.Env
		h.command, h.isWorker = worker, true
	}
	h.command.Env = append(h.command.Env, o.Env...)
	h.command.Stdout, h.command.Stderr = h.output, h.output
	// In its own group, with the handler, so that Ctrl-C at the terminal reaches them only through Interrupt.
	h.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := h.command.Start(); err != nil {
		return nil, fmt.Errorf("start the host: %w", err)
	}
	go func() {
		if err := h.command.Wait(); !h.killed.Load() {
			h.err = err
		}
		close(h.done)
	}()
	return h, nil
}

// Done returns a channel that is closed when the host has ended.
func (h *Host) Done() <-chan struct{} { return h.done }

// Ended reports whether the host has ended.
func (h *Host) Ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// Interrupt sends the signal of Ctrl-C at a terminal: the handler gets it too.
func (h *Host) Interrupt() error { return syscall.Kill(-h.command.Process.Pid, syscall.SIGINT) }

// Terminate sends the signal of `kill` and of service managers. The handler does not get it.
func (h *Host) Terminate() error { return h.command.Process.Signal(syscall.SIGTERM) }

// Kill ends the host at once, like a crash. Its handler lives on until it notices.
func (h *Host) Kill() error {
	h.killed.Store(true)
	err := h.command.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) { // a worker is also its own handler
		return nil
	}
	return err
}

// Stop interrupts host and handler, waits for the end of the host and returns its error, unless it was killed. It kills
// a host that takes longer than the grace.
func (h *Host) Stop(grace time.Duration) error {
	_ = h.Interrupt() // it may have ended already
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-h.done:
		return h.err
	case <-timer.C:
	}
	_ = h.Kill()
	<-h.done
	return fmt.Errorf("the host did not stop within %v", grace)
}

// Output returns what host and handler have printed so far.
func (h *Host) Output() string { return h.output.String() }

// Lines returns the JSON log lines of host and handler whose message begins with the given text. Of `func start`, these
// are only the handler's.
func (h *Host) Lines(message string) (found []map[string]any) {
	for line := range strings.Lines(h.Output()) {
		var fields map[string]any
		if json.Unmarshal([]byte(funcTime.ReplaceAllString(line, "")), &fields) != nil {
			continue
		}
		if text, _ := fields["message"].(string); strings.HasPrefix(text, message) {
			found = append(found, fields)
		}
	}
	return found
}

// HandlerPID returns the process id of the latest handler that was ready, or of the worker, or 0.
func (h *Host) HandlerPID() int {
	ready := h.Lines("handler ready")
	if h.isWorker && len(h.Lines("ready for calls")) > 0 {
		return h.command.Process.Pid
	}
	if len(ready) == 0 {
		return 0
	}
	pid, _ := ready[len(ready)-1]["pid"].(float64)
	return int(pid)
}

// KillHandler ends the handler like a crash.
func (h *Host) KillHandler() error { return h.signalHandler(syscall.SIGKILL) }

// InterruptHandler tells the handler, and not the host, to stop.
func (h *Host) InterruptHandler() error { return h.signalHandler(syscall.SIGINT) }

func (h *Host) signalHandler(signal syscall.Signal) error {
	pid := h.HandlerPID()
	if pid == 0 {
		return errors.New("no handler is ready")
	}
	return syscall.Kill(pid, signal)
}

// output keeps text and forwards it.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	forward io.Writer // may be nil
	forget  bool      // keep nothing
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.forget {
		o.text.Write(p)
	}
	if o.forward != nil {
		_, _ = o.forward.Write(p) // the host goes on without the reader
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
