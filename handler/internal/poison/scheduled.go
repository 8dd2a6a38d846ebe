package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
)

// ErrNoTable means that the record of scheduled messages cannot be used.
var ErrNoTable = errors.New("the record of scheduled messages is not available: the storage connection names no table service, " +
	"or ASYNC_CALLER_SCHEDULED is off")

// Scheduled is a scheduled message as its row describes it.
type Scheduled struct {
	message.Message
	Row storage.Row
}

// fromRow describes the message of a row. Since is when the call was created, so that filters by time select by age.
func fromRow(row storage.Row) Scheduled {
	return Scheduled{Row: row, Message: message.FromRow(row)}
}

// ScheduledSource selects scheduled messages.
type ScheduledSource struct {
	Source
	// DueBefore and DueAfter, unless zero, limit the time of the next attempt.
	DueBefore, DueAfter time.Time
}

func (s ScheduledSource) selects(m Scheduled) bool {
	return (len(s.Queues) == 0 || slices.Contains(s.Queues, m.Queue)) &&
		(len(s.IDs) == 0 || slices.ContainsFunc(s.IDs, func(id string) bool { return message.MatchID(m.Message, id) })) &&
		(s.DueAfter.IsZero() || !m.Row.NextAttemptAt.Before(s.DueAfter)) &&
		s.Filter.Match(m.Message, m.Row.Content)
}

// errEnough ends a listing.
var errEnough = errors.New("enough")

// ListScheduled shows the selected scheduled messages in the order of queue and ID, and returns their number. It keeps none
// in memory. Content says whether their rows have the content.
func (a *Account) ListScheduled(ctx context.Context, s ScheduledSource, content bool, see func(Scheduled) error) (matched int, err error) {
	if a.Table == nil {
		return 0, ErrNoTable
	}
	query := storage.Query{Content: content, DueBefore: s.DueBefore}
	if len(s.Queues) == 1 {
		query.Queue = s.Queues[0]
	}
	seen := 0
	err = a.Table.List(ctx, query, func(row storage.Row) error {
		if row.IsHeartbeat() {
			return nil
		}
		seen++
		a.observer().Scanned(storage.ScheduledTable, seen, seen)
		m := fromRow(row)
		if !s.selects(m) {
			return nil
		}
		if s.Limit > 0 && matched == s.Limit {
			return errEnough
		}
		matched++
		return see(m)
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("list scheduled messages: %w", err)
	}
	return matched, err
}

// sweepAfter is how long a row stays after its message was due: deliveries wait for a slot, and clocks differ.
const sweepAfter = time.Hour

// Sweep removes the rows of messages that are long due and gone, and returns their number. The handler removes a row when
// its message arrives, but not if it was killed, could not reach the table, or cannot trust the message's id.
func (a *Account) Sweep(ctx context.Context, table storage.Table) (swept int, err error) {
	now := time.Now()
	stale := a.StaleCheck(ctx, now)
	record := newRecorder(table) //nolint:contextcheck // Close ends it
	err = table.List(ctx, storage.Query{DueBefore: now.Add(-sweepAfter)}, func(row storage.Row) error {
		if row.NextAttemptAt = row.NextAttemptAt.Add(sweepAfter); stale(row) {
			swept++
			record.Gone(row.Queue, storage.Key{ID: row.ID, Version: row.Version})
		}
		return nil
	})
	record.Close(recordTimeout)
	lost, lostErr := record.Lost()
	if err = errors.Join(err, lostErr); err != nil {
		err = fmt.Errorf("remove rows of scheduled messages that are gone: %w", err)
	}
	return swept - lost, err
}
