package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

const (
	// addedAfter is how long after its end an hour is added up: until then, [Reader] needs its minutes, and an instance
	// may write some.
	addedAfter = time.Hour + 15*time.Minute
	// addTimeout limits the work for an hour.
	addTimeout = 30 * time.Second
	// maxAdded limits the rows of an hour that are removed at once.
	maxAdded = 20_000
)

// Hours adds up the minutes of an app in rows of hours. It is not safe for concurrent use, but others may add up the
// same hours at the same time.
type Hours struct {
	app string
	// next is the first hour of which rows of minutes are perhaps left; zero at first.
	next time.Time
}

// NewHours returns what adds up the minutes of an app.
func NewHours(app string) *Hours { return &Hours{app: app} }

// AddUp adds up the hours that are over, as far as the instances may write no more of their minutes, and returns how
// many rows of minutes it has removed.
func (h *Hours) AddUp(ctx context.Context, table storage.Table, now time.Time) (removed int, err error) {
	if oldest := now.Add(-record.AppRetention).Truncate(time.Hour); h.next.Before(oldest) {
		h.next = oldest
	}
	for !h.next.Add(time.Hour + addedAfter).After(now) {
		n, err := h.addUp(ctx, table, h.next)
		removed += n
		switch {
		case err != nil:
			return removed, fmt.Errorf("add up calls per minute: %w", err)
		case n == 0:
			h.next = h.next.Add(time.Hour)
		}
	}
	return removed, nil
}

// errOther means that another instance adds up the same hour.
var errOther = errors.New("another instance adds up the same hour")

// addUp adds up the minutes of an hour, and then removes them. If it is interrupted in between, the row of the hour
// says which minutes it has: those that were written up to a time. A later one is added.
func (h *Hours) addUp(ctx context.Context, table storage.Table, hour time.Time) (removed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, addTimeout)
	defer cancel()
	key := hourKey(h.app, hour)
	of, found, err := rows.Get[row](ctx, table, key.Partition, key.ID)
	if err != nil {
		return 0, err
	}
	var numbers Interval
	if known, err := decode(of.Numbers); found && err == nil {
		numbers = *known
	}
	upTo := of.UpTo
	var added []storage.Key
	query := storage.Query{Partition: minutesPartition(h.app, hour)}
	err = rows.ListWhole(ctx, table, query, func(r row) error {
		if len(added) < maxAdded {
			added = append(added, storage.Key{Partition: r.Partition, ID: r.ID})
		}
		if r.WrittenAt.After(upTo) {
			upTo = r.WrittenAt
		}
		minute, err := decode(r.Numbers)
		if r.WrittenAt.After(of.UpTo) && err == nil && !r.minute().IsZero() {
			numbers.add(minute)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if upTo.After(of.UpTo) {
		key.Version = of.Version
		version, err := rows.Replace(ctx, table, row{Key: key, Numbers: encode(&numbers, hourHosts), UpTo: upTo})
		if err == nil && version == "" {
			err = errOther
		}
		if err != nil {
			return 0, err
		}
	}
	return rows.Delete(ctx, table, added)
}
