package azurite

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"time"

	"asynccaller/handler/tools/tail"
)

// child is a started process. One goroutine owns it: it starts the process, waits for it and ends with it.
type child struct {
	process *os.Process
	printed *tail.Writer
	// ended is closed when the process has ended; err is set before.
	ended chan struct{}
	err   error
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{printed: new(tail.Writer), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = c.printed, c.printed
	cmd.SysProcAttr = childAttributes()
	// Whoever else may hold the output open does not keep Wait from returning.
	cmd.WaitDelay = time.Second
	started := make(chan error, 1)
	go c.run(cmd, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

func (c *child) run(cmd *exec.Cmd, started chan<- error) {
	// On Linux the child gets a signal when the thread that started it ends, which is meant to be: when
	// this process ends. So the thread must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	c.process = cmd.Process
	started <- err
	if err != nil {
		return
	}
	c.err = cmd.Wait()
	close(c.ended)
}

// stop ends the process, at first gently, and waits for the end.
func (c *child) stop(grace time.Duration) error {
	if err := c.process.Signal(stopSignal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return c.kill(err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.ended:
		return nil
	case <-timer.C:
		return c.kill(fmt.Errorf("still running after %s", grace))
	}
}

func (c *child) kill(reason error) error {
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(reason, err)
	}
	<-c.ended
	return fmt.Errorf("killed it: %w", reason)
}

// exitError tells how the process ended; call it after ended is closed.
func (c *child) exitError() error {
	if c.err == nil {
		return errors.New("exit status 0")
	}
	return c.err
}

func (c *child) output() string { return c.printed.String() }

// probeClient asks whether a server answers, whoever has signed its certificate. It keeps no connection
// open, so that nothing of it is left over when the server stops.
func probeClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // asks whether it answers, tells it nothing
	}}
}
