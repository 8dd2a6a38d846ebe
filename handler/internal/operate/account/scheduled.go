package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// ErrNoTable means that the record of scheduled messages cannot be used.
var ErrNoTable = errors.New("the record of calls that wait is not available: " +
	"the storage connection names no table service, or ASYNC_CALLER_TABLES is off")

// selects reports whether a scheduled message is one of the source.
func (a *Account) selects(s Source, m message.Recorded) bool {
	fromQueue := len(s.Queues) == 0 || slices.Contains(s.Queues, m.Queue)
	return fromQueue && s.names(m.Message) && a.match(s.Filter, m.Searched(), m.Row.Content)
}

// CheckQueues returns a [storage.ErrNoQueue] for a queue of the source that does not exist and of which the
// record has no row: its name is probably misspelt.
func (a *Account) CheckQueues(ctx context.Context, s Source) error {
	if len(s.Queues) == 0 {
		return nil
	}
	all, err := a.Reach(ctx)
	switch {
	case errors.Is(err, storage.ErrRefused): // the table may be readable nevertheless
		return nil
	case err != nil:
		return err
	}
	for _, name := range s.Queues {
		if slices.Contains(all, name) {
			continue
		}
		one := Source{Queues: []string{name}, Limit: 1}
		found, err := a.ListScheduled(ctx, one, false, func(message.Recorded) error { return nil })
		if err != nil && !errors.Is(err, ErrNoTable) {
			return err
		}
		if found == 0 {
			return fmt.Errorf("queue %s: %w in %s%s; the app reads %s", name, storage.ErrNoQueue, a.Name,
				nearest.Hint(name, a.AppQueues), strings.Join(a.appQueues(), ", "))
		}
	}
	return nil
}

// appQueues returns AppQueues without repetitions.
func (a *Account) appQueues() (names []string) {
	for _, name := range a.AppQueues {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ListScheduled shows the selected scheduled messages in the order of queue and ID, and returns their number. It keeps
// none in memory. Content says whether their rows have the content, which a search for a text reads in any case.
func (a *Account) ListScheduled(
	ctx context.Context, s Source, content bool, visit func(message.Recorded) error,
) (matched int, err error) {
	if a.Table == nil {
		return 0, ErrNoTable
	}
	a.beginSearch(s.Filter)
	needsContent := s.Filter.NeedsContent()
	query := record.Query{Content: content || needsContent, DueBefore: s.DueBefore}
	if len(s.Queues) == 1 {
		query.Queue = s.Queues[0]
	}
	seen := 0
	err = record.ListScheduled(ctx, a.Table, query, func(row record.Row) error {
		seen++
		a.Scanned(storage.ScheduledTable, seen, seen)
		m := message.FromRow(row)
		if needsContent {
			m.DescribeCall()
		}
		if !a.selects(s, m) {
			return nil
		}
		if s.Limit > 0 && matched == s.Limit {
			return rows.ErrStop
		}
		matched++
		return visit(m)
	})
	if err != nil {
		err = fmt.Errorf("list scheduled calls: %w", err)
	}
	return matched, err
}
