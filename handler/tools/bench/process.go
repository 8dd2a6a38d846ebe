//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"asynccaller/handler/tools/tail"
)

// startLimit is how long a process may take to answer.
const startLimit = 20 * time.Second

// process is a running floor or handler.
type process struct {
	address string
	// started is the time from the start to the first answer.
	started time.Duration

	cmd    *exec.Cmd
	errors tail.Writer
}

// start starts an executable on a free port and returns when it answers. The caller stops it.
func start(ctx context.Context, executable string, args []string, env ...string) (*process, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_ = listener.Close()
	p := &process{address: listener.Addr().String(), cmd: exec.CommandContext(ctx, executable, args...)}
	_, port, _ := net.SplitHostPort(p.address)
	// Nothing else of the environment, so that all runs measure the same.
	p.cmd.Env = append(env, "FUNCTIONS_CUSTOMHANDLER_PORT="+port, "HOME="+os.TempDir())
	p.cmd.Stderr = &p.errors // stdout, to which the handler logs, is the null device
	begin := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.awaitAnswer(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.started = time.Since(begin)
	return p, nil
}

func (p *process) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/", http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		if response, err := transport.RoundTrip(request); err == nil {
			return response.Body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer after the start: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// stop kills the process. If the process had exited already, that is an error with what it printed.
func (p *process) stop() error {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // a process that was killed has not exited
	if p.cmd.ProcessState.Exited() {
		return fmt.Errorf("%s exited: %s", filepath.Base(p.cmd.Path), strings.TrimSpace(p.errors.String()))
	}
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }
