package azurite

import (
	"context"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockInterval is how often we ask whether another process has finished its install.
const lockInterval = 200 * time.Millisecond

// lockFolder waits until no other process installs in the folder. The lock is the kernel's: it goes when
// its holder ends, however that happens, so there is no stale lock to recognise. The file itself stays.
func lockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	lock := flock.New(filepath.Join(dir, ".install.lock"))
	if _, err := lock.TryLockContext(ctx, lockInterval); err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}
