package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"asynccaller/handler/tools/tail"
)

const (
	// startLimit is how long a process may take to answer, stopLimit to end.
	startLimit = 30 * time.Second
	stopLimit  = 20 * time.Second
	// lookEvery is how exactly the time to the first answer is measured.
	lookEvery = time.Millisecond
)

// program is what can be started: the floor or the product.
type program struct {
	name       string
	executable string
	args, env  []string
}

// process is a program that runs.
type process struct {
	program
	address string
	// started is the time from the start to the first answer.
	started time.Duration

	cmd    *exec.Cmd
	cancel context.CancelFunc
	// interrupted is the error of the run's context: a run that is over ends its processes too.
	interrupted func() error
	ended       chan struct{}
	talk        tail.Writer
}

// start starts the program on a port of its own and returns when it answers. Stop it when done.
func (p program) start(ctx context.Context) (*process, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	r := &process{program: p, address: net.JoinHostPort("127.0.0.1", port), interrupted: ctx.Err, ended: make(chan struct{})}
	ctx, r.cancel = context.WithCancel(ctx)
	r.cmd = exec.CommandContext(ctx, p.executable, p.args...)
	// Nothing of this shell's settings: two runs must measure the same.
	r.cmd.Env = append([]string{"FUNCTIONS_CUSTOMHANDLER_PORT=" + port, "HOME=" + os.TempDir()}, p.env...)
	r.cmd.Stderr = &r.talk // stdout, where the product logs, goes to the null device
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(syscall.SIGTERM) }
	r.cmd.WaitDelay = stopLimit
	begin := time.Now()
	if err := r.cmd.Start(); err != nil {
		r.cancel()
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // what it ends with is of no use: the product never ends with 0
	}()
	if err := r.awaitAnswer(ctx); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	r.started = time.Since(begin)
	return r, nil
}

// freePort is a port that nobody listened on a moment ago.
func freePort(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}

func (r *process) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for !answers(ctx, client, r.address) {
		select {
		case <-r.ended:
			return fmt.Errorf("%s ended before it answered", r.name)
		case <-ctx.Done():
			return fmt.Errorf("%s gave no answer: %w", r.name, ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

func answers(ctx context.Context, client *http.Client, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}

// stop ends the process and waits for it. It is an error when the process had ended by itself, and tells
// what it said.
func (r *process) stop() error {
	alone := false
	select {
	case <-r.ended:
		alone = true
	default:
	}
	r.cancel()
	<-r.ended
	if alone && r.interrupted() == nil {
		return fmt.Errorf("%s ended by itself: %s: %s", r.name, r.cmd.ProcessState, strings.TrimSpace(r.talk.String()))
	}
	return nil
}

// id is the process id, as /proc names it.
func (r *process) id() string { return strconv.Itoa(r.cmd.Process.Pid) }
