//go:build !unix

package azurite

import (
	"os"
	"syscall"
)

// stopSignal is the only signal that every system can send. Data of the last seconds is lost.
var stopSignal = os.Kill

func childAttributes() *syscall.SysProcAttr { return nil }
