package account

import (
	"context"
	"time"

	"asynccaller/handler/internal/bounds"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
)

// maxQueues limits the queues that are peeked at: a writer to the table can invent any number of them.
const maxQueues = 1000

// StaleCheck returns a function that reports whether the message of a row is gone. The function peeks at a queue once,
// when it meets the first row that is long due. If the queue cannot be read, no row of it is stale. The function is not
// safe for concurrent use.
func (a *Account) StaleCheck(ctx context.Context, now time.Time) func(record.Scheduled) bool {
	waiting := map[string]time.Time{}
	return func(row record.Scheduled) bool {
		if !row.IsStale(now) {
			return false
		}
		since, ok := waiting[row.Partition]
		if !ok && len(waiting) < maxQueues && storage.ValidName(row.Partition) {
			since = a.waitingSince(ctx, row.Partition, now)
			waiting[row.Partition] = since
		}
		return row.IsStale(since)
	}
}

// waitingSince returns when the first messages of a queue became visible, now if there are none, and zero if the queue
// cannot be read.
func (a *Account) waitingSince(ctx context.Context, name string, now time.Time) time.Time {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	front, err := a.Store.Peek(ctx, name, storage.MaxBatch)
	if IgnoreMissing(err) != nil {
		return time.Time{}
	}
	since := now
	for _, m := range front {
		visible := m.InsertedAt
		if e, err := envelope.Parse(a.Rules.Content(m.Text)); err == nil && e.NextAttemptAt.After(visible) {
			visible = e.NextAttemptAt
		}
		since = bounds.Earliest(since, visible)
	}
	return since
}
