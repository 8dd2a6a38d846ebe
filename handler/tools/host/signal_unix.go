//go:build unix

package host

import (
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func interruptGroup(p *os.Process) { signalGroup(p, syscall.SIGINT) }

func killGroup(p *os.Process) { signalGroup(p, syscall.SIGKILL) }

// signalGroup signals the process and its descendants. The only error that can come is that they are
// gone already.
func signalGroup(p *os.Process, s syscall.Signal) { _ = syscall.Kill(-p.Pid, s) }
