package record

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

const (
	// outcomeRetention is how long outcomes stay in the table, and runRetention how long the rows of runs do.
	outcomeRetention = 24 * time.Hour
	runRetention     = 90 * 24 * time.Hour
	// sweepTime and maxSwept limit a pass of the keeper. The next one goes on.
	sweepTime = 30 * time.Second
	maxSwept  = 50_000
	// maxTransaction is the most rows that a table removes at once.
	maxTransaction = 100
)

// AppRetention is how long the rows of a target that nobody calls, of an app that does not run, and of numbers stay:
// longer than a message waits for its next attempt.
const AppRetention = 8 * 24 * time.Hour

// sweptRow is what says whether a row is kept.
type sweptRow struct {
	storage.Key
	RequestID string `row:"requestId"`
}

// SweepOutcomes removes the outcomes that are older than a day and the runs that are older than 90 days, and returns
// their number.
func SweepOutcomes(ctx context.Context, table storage.Table) (swept int, err error) {
	old := storage.Query{WrittenBefore: time.Now().Add(-outcomeRetention)}
	swept, err = sweep(ctx, table, old, func(row sweptRow) bool {
		isRun := row.Partition == RunsPartition || row.Partition == UndonePartition
		return isRun && row.WrittenAt.After(time.Now().Add(-runRetention))
	})
	if err != nil {
		err = fmt.Errorf("remove outcomes of messages of runs: %w", err)
	}
	return swept, err
}

// SweepApps removes the rows of targets, limits or credentials, or the heartbeats, that were not written for eight
// days. In partition a queue of this name may have messages, which stay. An empty partition means the whole table.
func SweepApps(ctx context.Context, table storage.Table, partition string) error {
	old := storage.Query{Partition: partition, WrittenBefore: time.Now().Add(-AppRetention)}
	_, err := sweep(ctx, table, old, func(row sweptRow) bool { return row.RequestID != "" })
	if err != nil {
		err = fmt.Errorf("remove old rows of %s: %w", cmp.Or(partition, "numbers"), err)
	}
	return err
}

// sweep removes rows, except for those that are kept, and returns their number. What it cannot do in time is for the
// next pass.
func sweep(
	ctx context.Context, table storage.Table, old storage.Query, isKept func(sweptRow) bool,
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
	err = rows.List(limited, table, old, func(row sweptRow) (err error) {
		if isKept(row) {
			return nil
		}
		if len(keys) == maxTransaction || len(keys) > 0 && row.Partition != keys[0].Partition {
			err = remove()
		}
		keys = append(keys, row.Key)
		if err == nil && swept >= maxSwept {
			err = rows.ErrStop
		}
		return err
	})
	if err == nil {
		err = remove()
	}
	isOver := limited.Err() != nil && ctx.Err() == nil && swept > 0
	if isOver {
		err = nil
	}
	return swept, err
}
