package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
)

// sweepAfter is how long a row stays after its message was due: deliveries wait for a slot, and clocks differ.
const sweepAfter = time.Hour

// Sweep removes the rows of messages that are long due and gone, and returns their number. The handler removes a row
// when its message arrives, but not if it was killed, could not reach the table, or cannot trust the message's id.
func Sweep(ctx context.Context, a *account.Account, table storage.Table) (swept int, err error) {
	now := time.Now()
	stale := a.StaleCheck(ctx, now)
	rows := newRecorder(table) //nolint:contextcheck // Close ends it
	err = table.List(ctx, storage.Query{DueBefore: now.Add(-sweepAfter)}, func(row storage.Row) error {
		row.NextAttemptAt = row.NextAttemptAt.Add(sweepAfter)
		if stale(row) {
			swept++
			rows.Gone(row.Queue, storage.Key{ID: row.ID, Version: row.Version})
		}
		return nil
	})
	rows.Close(record.RunClose)
	lost, lostErr := rows.Lost()
	err = errors.Join(err, lostErr)
	if err != nil {
		err = fmt.Errorf("remove rows of scheduled messages that are gone: %w", err)
	}
	return swept - lost, err
}
