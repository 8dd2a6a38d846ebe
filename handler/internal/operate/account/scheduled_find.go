package account

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// maxQueues limits the queues that are peeked at: a writer to the table can invent any number of them.
const maxQueues = 1000

// PresenceCheck returns a function that returns what is known of the message of a row. The function peeks at a queue
// once, when it meets the first row that is long due. If the queue cannot be read, all of its messages are expected. No
// message is gone while an app may hold messages. The function is not safe for concurrent use.
func (a *Account) PresenceCheck(ctx context.Context, now time.Time) func(record.Scheduled) record.Presence {
	waiting := map[string]time.Time{}
	mayHold := sync.OnceValue(func() bool { return a.mayHold(ctx, now) })
	return func(row record.Scheduled) record.Presence {
		if row.Presence(now) == record.Expected {
			return record.Expected
		}
		since, ok := waiting[row.Partition]
		if !ok && len(waiting) < maxQueues && storage.ValidName(row.Partition) {
			since = a.waitingSince(ctx, row.Partition, now)
			waiting[row.Partition] = since
		}
		presence := row.Presence(since)
		if presence == record.Gone && mayHold() {
			return record.Unseen
		}
		return presence
	}
}

// mayHold reports whether an app may hold messages, or whether that is unknown.
func (a *Account) mayHold(ctx context.Context, now time.Time) bool {
	apps, err := a.apps(ctx)
	return err != nil || slices.ContainsFunc(apps, func(app heartbeat.App) bool { return app.MayHold(now) })
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

// FindScheduled returns the one scheduled message with the given ID, with its content. See [Account.Find].
func (a *Account) FindScheduled(ctx context.Context, s Source, id string) (message.Scheduled, error) {
	s.IDs, s.Limit = []string{id}, 2
	var matches []message.Scheduled
	_, err := a.ListScheduled(ctx, s, false, func(m message.Scheduled) error {
		matches = append(matches, m)
		return nil
	})
	if err != nil {
		return message.Scheduled{}, err
	}
	match, err := onlyOne(id, matches, func(m message.Scheduled) message.Message { return m.Message },
		" among the scheduled messages")
	if err != nil {
		return message.Scheduled{}, err
	}
	found := match.Row
	row, ok, err := rows.Get[record.Scheduled](ctx, a.Table, found.Partition, found.ID)
	switch {
	case err != nil:
		return message.Scheduled{}, fmt.Errorf("read the record of %s: %w", match.ID, err)
	case !ok:
		return message.Scheduled{}, fmt.Errorf("%.80q: %w any more: it was delivered just now", id, ErrNothing)
	}
	return message.FromRow(row), nil
}
