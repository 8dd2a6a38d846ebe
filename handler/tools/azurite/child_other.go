//go:build !linux

package azurite

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
