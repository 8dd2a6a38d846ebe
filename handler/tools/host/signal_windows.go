package host

import (
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// interruptGroup does nothing, because Windows has no SIGINT. The handler is killed after its invocations are
// answered.
func interruptGroup(*os.Process) {}

// killGroup kills the handler alone. An error means that it has ended.
func killGroup(p *os.Process) { _ = p.Kill() }
