package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/nearest"
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

// CheckScheduledQueues returns a [storage.ErrNoQueue] for a queue of the source that does not exist and of which the
// record has no row: its name is probably misspelt.
func (a *Account) CheckScheduledQueues(ctx context.Context, s ScheduledSource) error {
	if len(s.Queues) == 0 || a.Table == nil {
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
		one := ScheduledSource{Source: Source{Queues: []string{name}, Limit: 1}}
		rows, err := a.ListScheduled(ctx, one, false, func(message.Scheduled) error { return nil })
		if err != nil {
			return err
		}
		if rows == 0 {
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

// maxSorted is how many scheduled messages are sorted at once. They take about 30 MiB.
const maxSorted = 20_000

// byNextAttempt orders scheduled messages by the time of their next attempt.
func byNextAttempt(a, b message.Scheduled) int {
	return cmp.Or(a.Row.NextAttemptAt.Compare(b.Row.NextAttemptAt),
		strings.Compare(a.Row.Queue, b.Row.Queue), strings.Compare(a.Row.ID, b.Row.ID))
}

// ListByNextAttempt is like [Account.ListScheduled] without the content, in the order of the next attempts. It reads
// the record again for each 20,000 messages: one that is rescheduled meanwhile can be shown twice.
func (a *Account) ListByNextAttempt(
	ctx context.Context, s ScheduledSource, visit func(message.Scheduled) error,
) (matched int, err error) {
	limit := s.Limit
	s.Limit = 0
	var latest message.Scheduled
	for {
		next, err := a.firstScheduled(ctx, s, latest)
		if err != nil {
			return matched, err
		}
		for _, m := range next {
			if limit > 0 && matched == limit {
				return matched, nil
			}
			matched++
			if err := visit(m); err != nil {
				return matched, err
			}
		}
		if len(next) < maxSorted {
			return matched, nil
		}
		latest = next[len(next)-1]
	}
}

// firstScheduled returns the first selected messages after the latest one, at most maxSorted, in the order of the next
// attempts.
func (a *Account) firstScheduled(
	ctx context.Context, s ScheduledSource, latest message.Scheduled,
) (first []message.Scheduled, err error) {
	keep := func() {
		slices.SortFunc(first, byNextAttempt)
		first = first[:min(len(first), maxSorted)]
	}
	_, err = a.ListScheduled(ctx, s, false, func(m message.Scheduled) error {
		if byNextAttempt(m, latest) <= 0 {
			return nil
		}
		first = append(first, m)
		if len(first) == 2*maxSorted {
			keep()
		}
		return nil
	})
	keep()
	return first, err
}
