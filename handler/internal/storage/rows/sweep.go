package rows

import (
	"context"
	"errors"
	"time"

	"asynccaller/handler/internal/storage"
)

const (
	// sweepTime and maxSwept limit a pass of [Sweep]. The next one goes on.
	sweepTime = 30 * time.Second
	maxSwept  = 50_000
)

// Sweep removes the selected rows, except for those that are kept, and returns their number. What it cannot do in time
// is for the next pass.
func Sweep(
	ctx context.Context, table storage.Table, old storage.Query, isKept func(storage.Entity) bool,
) (swept int, err error) {
	limited, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	var keys []storage.Key
	remove := func() error {
		if len(keys) == 0 {
			return nil
		}
		err := table.Delete(limited, keys)
		if err == nil {
			swept += len(keys)
		}
		keys = keys[:0]
		return err
	}
	err = table.List(limited, old, func(row storage.Entity) (err error) {
		if isKept(row) {
			return nil
		}
		if len(keys) == maxDeleted || len(keys) > 0 && row.Partition != keys[0].Partition {
			err = remove()
		}
		keys = append(keys, row.Key)
		if err == nil && swept >= maxSwept {
			err = ErrStop
		}
		return err
	})
	if err == nil || errors.Is(err, ErrStop) {
		err = remove()
	}
	isOver := limited.Err() != nil && ctx.Err() == nil && swept > 0
	if isOver {
		err = nil
	}
	return swept, err
}
