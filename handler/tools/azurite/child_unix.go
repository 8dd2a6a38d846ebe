//go:build unix && !linux

package azurite

import "syscall"

const stopSignal = syscall.SIGTERM

// childAttributes put the child into a process group of its own, so that a Ctrl-C in the terminal reaches
// this process alone, which then stops the child in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
