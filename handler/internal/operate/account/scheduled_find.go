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
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// maxQueues limits the queues that are peeked at: a writer to the table can invent any number of them.
const maxQueues = 1000

// PresenceCheck is like [Fronts.PresenceCheck] for a command that reads no other fronts.
func (a *Account) PresenceCheck(ctx context.Context, now time.Time) func(record.Row) record.Presence {
	return a.newFronts(nil).PresenceCheck(ctx, now)
}

// PresenceCheck returns a function that returns what is known of the message of a row. The function needs the front of
// a queue when it meets the first row that is long due. If the queue cannot be read, all of its messages are expected.
// No message is gone while an app may hold messages. The function is not safe for concurrent use.
func (f *Fronts) PresenceCheck(ctx context.Context, now time.Time) func(record.Row) record.Presence {
	waiting := map[string]time.Time{}
	mayHold := sync.OnceValue(func() bool { return f.account.mayHold(ctx, now) })
	return func(row record.Row) record.Presence {
		if row.Presence(now) == record.Expected {
			return record.Expected
		}
		since, ok := waiting[row.Partition]
		if !ok && len(waiting) < maxQueues && storage.ValidName(row.Partition) {
			if front, _ := f.Of(ctx, row.Partition); front.Problem == nil {
				since = bounds.Earliest(now, front.Since)
			}
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

// FindScheduled returns the one scheduled message with the given ID, with its content. See [Account.Find].
func (a *Account) FindScheduled(ctx context.Context, s Source, id string) (message.Recorded, error) {
	s.IDs, s.Limit = []string{id}, 2
	var matches []message.Recorded
	_, err := a.ListScheduled(ctx, s, false, func(m message.Recorded) error {
		matches = append(matches, m)
		return nil
	})
	if err != nil {
		return message.Recorded{}, err
	}
	match, err := onlyOne(id, matches, func(m message.Recorded) message.Message { return m.Message },
		" among the scheduled calls")
	if err != nil {
		return message.Recorded{}, err
	}
	found := match.Row
	row, ok, err := rows.Get[record.Row](ctx, a.Table, found.Partition, found.ID)
	switch {
	case err != nil:
		return message.Recorded{}, fmt.Errorf("read the record of %s: %w", match.ID, err)
	case !ok:
		return message.Recorded{}, fmt.Errorf("%.80q: %w any more: it was delivered just now", id, ErrNothing)
	}
	return message.FromRow(row), nil
}
