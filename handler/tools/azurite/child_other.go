//go:build !unix

package azurite

import (
	"os"
	"syscall"
)

// stopSignal is the only signal that every system can send. Azurite then loses the data of the last seconds.
var stopSignal = os.Kill

func childAttributes() *syscall.SysProcAttr { return nil }
