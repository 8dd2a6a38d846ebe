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
	"strings"
	"sync"
	"syscall"
	"time"
)

// HostOptions says how to run the local host.
type HostOptions struct {
	// Executable is async-caller; AppDir the app folder.
	Executable, AppDir string
	// ConnectionString is the storage account.
	ConnectionString string
	// Env is added to this process's environment.
	Env []string
	// Args are added to those of `async-caller host`.
	Args []string
	// Out takes what host and handler print; nil keeps it for Output only.
	Out io.Writer
	// Forget keeps nothing of it, for runs that print too much: Lines and Output stay empty.
	Forget bool
}

// loopbackAllowed is what local.settings.json says too: the targets are on this machine.
const loopbackAllowed = "ASYNC_CALLER_TARGETS_ALLOW=127.0.0.0/8,::1,*"

// Host is `async-caller host` running as a process of its own.
type Host struct {
	command *exec.Cmd
	output  *lineLog
	done    chan struct{}
	err     error
}

// StartHost starts the local host. It does not wait until the handler is ready: messages do.
func StartHost(ctx context.Context, o HostOptions) (*Host, error) {
	args := append([]string{"host", "--app", o.AppDir}, o.Args...)
	h := &Host{
		// Not CommandContext: a host that is killed leaves its handler behind. Stop ends both.
		command: exec.Command(o.Executable, args...), //nolint:noctx // the executable that was just built
		output:  newLineLog(o.Out, o.Forget),
		done:    make(chan struct{}),
	}
	h.command.Env = append(os.Environ(), "AzureWebJobsStorage="+o.ConnectionString, loopbackAllowed)
	h.command.Env = append(h.command.Env, o.Env...)
	h.command.Stdout, h.command.Stderr = h.output, h.output
	// In a group of its own, so that Ctrl-C at the terminal reaches it once, through Stop.
	h.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := h.command.Start(); err != nil {
		return nil, fmt.Errorf("starting the local host: %w", err)
	}
	go func() {
		h.err = h.command.Wait()
		close(h.done)
	}()
	return h, nil
}

// Done is closed when the host has ended.
func (h *Host) Done() <-chan struct{} { return h.done }

// Interrupt sends what Ctrl-C does.
func (h *Host) Interrupt() error { return h.command.Process.Signal(os.Interrupt) }

// Terminate sends what `kill` and a service manager do.
func (h *Host) Terminate() error { return h.command.Process.Signal(syscall.SIGTERM) }

// Kill ends the host like a power cut. Its handler lives on until its pipes break.
func (h *Host) Kill() error { return h.command.Process.Kill() }

// Stop interrupts the host and waits for its end, or kills it when it takes longer than the grace.
func (h *Host) Stop(grace time.Duration) error {
	_ = h.Interrupt() // it may have ended already
	select {
	case <-h.done:
		return h.err
	case <-time.After(grace):
	}
	_ = h.Kill()
	<-h.done
	return fmt.Errorf("the local host did not stop within %v", grace)
}

// Lines are the JSON log lines of host and handler so far whose message begins with the given text.
func (h *Host) Lines(message string) []map[string]any { return h.output.find(message) }

// Output is everything that host and handler have printed.
func (h *Host) Output() string { return h.output.String() }

// HandlerPID is the process id of the latest handler that was started, or 0.
func (h *Host) HandlerPID() int {
	started := h.Lines("handler ready")
	if len(started) == 0 {
		return 0
	}
	pid, _ := started[len(started)-1]["pid"].(float64)
	return int(pid)
}

// KillHandler ends the handler like a crash.
func (h *Host) KillHandler() error {
	pid := h.HandlerPID()
	if pid == 0 {
		return errors.New("no handler is ready")
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// lineLog keeps output and passes it on.
type lineLog struct {
	mu   sync.Mutex
	text bytes.Buffer
	out  io.Writer
	// forget passes on without keeping.
	forget bool
}

func newLineLog(out io.Writer, forget bool) *lineLog {
	if out == nil {
		out = io.Discard
	}
	return &lineLog{out: out, forget: forget}
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.forget {
		l.text.Write(p)
	}
	return l.out.Write(p)
}

func (l *lineLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lineLog) find(message string) (found []map[string]any) {
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil {
			continue
		}
		if text, _ := fields["message"].(string); strings.HasPrefix(text, message) {
			found = append(found, fields)
		}
	}
	return found
}
