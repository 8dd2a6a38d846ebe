package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// sweepAfter is how long a row stays after its message was due: deliveries wait for a slot, and clocks differ.
const sweepAfter = time.Hour

// markTime is how long the mark of a dead letter stays that was deleted: a row that is written later comes within a
// minute or not at all.
const markTime = 10 * time.Minute

// Sweep removes the rows of messages that are long due and gone, and returns their number. The handler removes a row
// when its message arrives, but not if it was killed, could not reach the table, or cannot trust the message's id.
func Sweep(ctx context.Context, a *account.Account, table storage.Table) (swept int, err error) {
	now := time.Now()
	recorded := *a
	recorded.Table = table
	presence := recorded.PresenceCheck(ctx, now)
	writer := newWriter(table) //nolint:contextcheck // Close ends it
	query := record.Query{DueBefore: now.Add(-sweepAfter)}
	err = record.ListScheduled(ctx, table, query, func(row record.Row) error {
		row.NextAttemptAt = row.NextAttemptAt.Add(sweepAfter)
		if presence(row) == record.Gone {
			swept++
			writer.Remove(row.Key)
		}
		return nil
	})
	writer.Close(closeTime)
	lost, lostErr := writer.Lost()
	marks := storage.Query{
		Before: map[string]time.Time{"deletedAt": now.Add(-markTime)}, Select: []string{"deletedAt"},
	}
	_, marksErr := rows.Sweep(ctx, table, marks, func(storage.Entity) bool { return false })
	err = errors.Join(err, lostErr, marksErr)
	if err != nil {
		err = fmt.Errorf("remove rows of scheduled calls that are gone: %w", err)
	}
	return swept - lost, err
}
