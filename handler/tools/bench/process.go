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
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/tools/tail"
)

// startLimit is how long a process may take to answer.
const startLimit = 30 * time.Second

// process is a running floor or handler.
type process struct {
	address string
	// started is the time from the start to the first answer.
	started time.Duration

	cmd    *exec.Cmd
	ended  chan struct{}
	errors tail.Writer
}

// start starts an executable on a free port and returns when it answers. The caller stops it.
func start(ctx context.Context, executable string, args []string, env ...string) (*process, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	p := &process{address: listener.Addr().String(), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, executable, args...)
	// Nothing else of the environment, so that all runs measure the same.
	p.cmd.Env = append(env, "FUNCTIONS_CUSTOMHANDLER_PORT="+strconv.Itoa(port), "HOME="+os.TempDir())
	p.cmd.Stderr = &p.errors // stdout, to which the handler logs, is the null device
	begin := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // it is always killed
	}()
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
			_ = response.Body.Close()
			return nil
		}
		select {
		case <-p.ended:
			return errors.New("no answer after the start")
		case <-ctx.Done():
			return fmt.Errorf("no answer after the start: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// stop kills the process. If the process had ended already, that is an error with what it printed.
func (p *process) stop() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself: %s", filepath.Base(p.cmd.Path), strings.TrimSpace(p.errors.String()))
	default:
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }
