package account

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
var ErrNoTable = errors.New("the record of scheduled messages is not available: " +
	"the storage connection names no table service, or ASYNC_CALLER_SCHEDULED is off")

// ScheduledSource selects scheduled messages.
type ScheduledSource struct {
	Source
	// DueBefore and DueAfter, unless zero, limit the time of the next attempt.
	DueBefore, DueAfter time.Time
}

func (s ScheduledSource) selects(m message.Scheduled) bool {
	fromQueue := len(s.Queues) == 0 || slices.Contains(s.Queues, m.Queue)
	lateEnough := s.DueAfter.IsZero() || !m.Row.NextAttemptAt.Before(s.DueAfter)
	return fromQueue && lateEnough && s.names(m.Message) && s.Filter.Match(m.Message, m.Row.Content)
}

// errEnough ends a listing.
var errEnough = errors.New("enough")

// ListScheduled shows the selected scheduled messages in the order of queue and ID, and returns their number. It keeps
// none in memory. Content says whether their rows have the content.
func (a *Account) ListScheduled(
	ctx context.Context, s ScheduledSource, content bool, visit func(message.Scheduled) error,
) (matched int, err error) {
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
		a.Scanned(storage.ScheduledTable, seen, seen)
		m := message.FromRow(row)
		if !s.selects(m) {
			return nil
		}
		if s.Limit > 0 && matched == s.Limit {
			return errEnough
		}
		matched++
		return visit(m)
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("list scheduled messages: %w", err)
	}
	return matched, err
}
