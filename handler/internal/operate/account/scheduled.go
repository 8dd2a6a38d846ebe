package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// ErrNoTable means that the record of scheduled messages cannot be used.
var ErrNoTable = errors.New("the record of scheduled messages is not available: " +
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
	query := record.ScheduledQuery{Content: content || needsContent, DueBefore: s.DueBefore}
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
		err = fmt.Errorf("list scheduled messages: %w", err)
	}
	return matched, err
}

// maxSorted is how many bytes of lines are sorted at once, and lineBytes what a line takes beside its text.
const (
	maxSorted = 96 << 20
	lineBytes = 200
)

// dueLine is the line of a scheduled message.
type dueLine struct {
	due       time.Time
	queue, id string
	text      string
}

func (l dueLine) compare(other dueLine) int {
	return cmp.Or(l.due.Compare(other.due), strings.Compare(l.queue, other.queue), strings.Compare(l.id, other.id))
}

func (l dueLine) bytes() int { return lineBytes + len(l.text) }

// ListByNextAttempt is like [Account.ListScheduled] without the content. It prints the line of each message in the
// order of the next attempts. If there are more lines than the memory allows, it reads the record again for each
// further part: a message that is rescheduled meanwhile can be printed twice.
func (a *Account) ListByNextAttempt(
	ctx context.Context, s Source, line func(message.Recorded) (string, error), print func(string) error,
) (matched int, err error) {
	return a.listByNextAttempt(ctx, s, maxSorted, line, print)
}

func (a *Account) listByNextAttempt(
	ctx context.Context, s Source, most int, line func(message.Recorded) (string, error),
	print func(string) error,
) (matched int, err error) {
	limit := s.Limit
	s.Limit = 0
	var latest dueLine
	for {
		lines, isAll, err := a.nextLines(ctx, s, latest, most, line)
		if err != nil {
			return matched, err
		}
		for _, l := range lines {
			if limit > 0 && matched == limit {
				return matched, nil
			}
			matched++
			if err := print(l.text); err != nil {
				return matched, err
			}
		}
		if isAll {
			return matched, nil
		}
		latest = lines[len(lines)-1]
	}
}

// nextLines returns the first lines after the latest one, as many as fit into most bytes, and whether these are all.
func (a *Account) nextLines(
	ctx context.Context, s Source, latest dueLine, most int, line func(message.Recorded) (string, error),
) (lines []dueLine, isAll bool, err error) {
	size := 0
	var left *dueLine // the first line that is left for later
	_, err = a.ListScheduled(ctx, s, false, func(m message.Recorded) error {
		l := dueLine{due: m.Row.NextAttemptAt, queue: m.Row.Partition, id: m.Row.ID}
		if l.compare(latest) <= 0 || left != nil && l.compare(*left) >= 0 {
			return nil
		}
		var err error
		l.text, err = line(m)
		lines = append(lines, l)
		size += l.bytes()
		if size <= most {
			return err
		}
		slices.SortFunc(lines, dueLine.compare)
		for size > most/2 {
			last := len(lines) - 1
			left = new(lines[last])
			size -= left.bytes()
			lines = slices.Delete(lines, last, last+1) // and clear it
		}
		return err
	})
	slices.SortFunc(lines, dueLine.compare)
	return lines, left == nil, err
}
