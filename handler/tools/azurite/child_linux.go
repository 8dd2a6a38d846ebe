package azurite

import "syscall"

// childAttributes puts the child into its own process group, so that Ctrl-C in the terminal reaches only this
// process, which then stops the child. The kernel stops the child if this process ends without doing so.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
