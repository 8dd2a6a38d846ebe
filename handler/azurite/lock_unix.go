//go:build unix

package azurite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockInterval is how often we ask whether another process has finished its install.
const lockInterval = 200 * time.Millisecond

// lockFolder waits until no other process installs in the folder. The lock is the kernel's: it goes when
// its holder ends, however that happens, so there is no stale lock to recognise. The file itself stays.
func lockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, ".install.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, &os.PathError{Op: "lock", Path: file.Name(), Err: err}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = file.Close()
			return nil, context.Cause(ctx)
		}
	}
}
