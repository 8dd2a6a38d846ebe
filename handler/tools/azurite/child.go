package azurite

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"asynccaller/handler/tools/tail"
)

// child is a started process.
type child struct {
	cmd     *exec.Cmd
	printed tail.Writer
	ended   chan struct{} // closed when the process has ended
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &c.printed, &c.printed
	cmd.SysProcAttr = childAttributes()
	// Another process that holds the output open does not delay the end of Wait.
	cmd.WaitDelay = time.Second
	started := make(chan error)
	go c.run(started)
	return c, <-started
}

// run starts the process and waits for its end. On Linux the child gets a signal when the thread that started
// it ends, which is to happen at the end of this process, so the thread must live as long as the child.
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = c.cmd.Wait() // the process state has the result
	close(c.ended)
}

// stop interrupts the process and waits for its end. It kills a process that takes longer than the grace or, as on
// Windows, that cannot be interrupted: then Azurite loses the data of the last seconds.
func (c *child) stop(grace time.Duration) (err error) {
	if c.cmd.Process.Signal(os.Interrupt) == nil {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.ended:
			return nil
		case <-timer.C:
			err = fmt.Errorf("killed it: still running after %s", grace)
		}
	}
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
	return err
}
