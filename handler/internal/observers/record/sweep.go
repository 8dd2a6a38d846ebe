package record

import (
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
)

// AppRetention is how long the rows of limits that nobody needs, and of an app that does not run, stay: longer than a
// message waits for its next attempt.
const AppRetention = 8 * 24 * time.Hour

// SweepOutcomes removes the outcomes that are older than a day and the runs that are older than 90 days, and returns
// their number.
func SweepOutcomes(ctx context.Context, table storage.Table) (swept int, err error) {
	old := storage.Query{WrittenBefore: time.Now().Add(-outcomeRetention), Select: []string{"action"}}
	swept, err = rows.Sweep(ctx, table, old, func(row storage.Entity) bool {
		isRun := row.Partition == RunsPartition || row.Partition == UndonePartition
		return isRun && row.WrittenAt.After(time.Now().Add(-runRetention))
	})
	if err != nil {
		err = fmt.Errorf("remove outcomes of messages of runs: %w", err)
	}
	return swept, err
}

// SweepApps removes the rows of limits, of timer functions, or the heartbeats, that were not written for eight days. In
// partition a queue of this name may have messages, which stay.
func SweepApps(ctx context.Context, table storage.Table, partition string) error {
	old := storage.Query{
		Partition: partition, WrittenBefore: time.Now().Add(-AppRetention), Select: []string{"requestId"},
	}
	_, err := rows.Sweep(ctx, table, old, func(row storage.Entity) bool { return row.Values["requestId"] != nil })
	if err != nil {
		err = fmt.Errorf("remove old rows of %s: %w", partition, err)
	}
	return err
}
