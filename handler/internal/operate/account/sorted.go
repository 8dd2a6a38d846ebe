package account

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/message"
)

// maxSorted is how many bytes of lines are sorted at once, and lineBytes what a line takes beside its text.
const (
	maxSorted = 96 << 20
	lineBytes = 200
)

// sortedLine is the line of a message in a list that is sorted by time.
type sortedLine struct {
	at        time.Time
	queue, id string
	text      string
}

func (l sortedLine) compare(other sortedLine) int {
	return cmp.Or(l.at.Compare(other.at), strings.Compare(l.queue, other.queue), strings.Compare(l.id, other.id))
}

func (l sortedLine) bytes() int { return lineBytes + len(l.text) }

// ListByNextAttempt is like [Account.ListScheduled] without the content. It prints the line of each message in the
// order of the next attempts. If there are more lines than the memory allows, it reads the record again for each
// further part: a message that is rescheduled meanwhile can be printed twice.
func (a *Account) ListByNextAttempt(
	ctx context.Context, s Source, line func(message.Recorded) (string, error),
	print func(queue, text string) error,
) (matched int, err error) {
	limit := s.Limit
	s.Limit = 0
	sorted := sorting{most: maxSorted, limit: limit, line: line, print: print}
	err = sorted.list(func(visit func(message.Recorded) error) error {
		_, err := a.ListScheduled(ctx, s, false, visit)
		return err
	})
	return sorted.printed, err
}

// LookByAge is like [Account.Look]. It prints the line of each message in the order of queue and age, the oldest first,
// as [Account.ListByNextAttempt] does.
func (a *Account) LookByAge(
	ctx context.Context, s Source, line func(message.Recorded) (string, error),
	print func(queue, text string) error,
) (listed Listed, err error) {
	names, err := a.QueuesOf(ctx, s)
	limit := s.Limit
	s.Limit = 0
	for _, name := range names {
		if err != nil || limit > 0 && listed.Matched == limit {
			break
		}
		one := s
		one.Queues = []string{name}
		var looked Listed
		sorted := sorting{most: maxSorted, limit: max(limit-listed.Matched, 0), line: line, print: print}
		err = sorted.list(func(visit func(message.Recorded) error) (err error) {
			looked, err = a.Look(ctx, one, visit)
			return err
		})
		listed.Views = append(listed.Views, looked.Views...)
		listed.Matched += sorted.printed
	}
	return listed, err
}

// sorting prints lines in the order of their times.
type sorting struct {
	// most is how many bytes of lines are kept, and limit the number of lines; 0 for all.
	most, limit int
	line        func(message.Recorded) (string, error)
	print       func(queue, text string) error
	printed     int
}

// list lists the messages again until all lines are printed.
func (s *sorting) list(list func(visit func(message.Recorded) error) error) error {
	var latest sortedLine
	for {
		lines, isAll, err := s.next(list, latest)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if s.limit > 0 && s.printed == s.limit {
				return nil
			}
			s.printed++
			if err := s.print(l.queue, l.text); err != nil {
				return err
			}
		}
		if isAll {
			return nil
		}
		latest = lines[len(lines)-1]
	}
}

// next returns the first lines after the latest one, as many as fit into memory, and whether these are all.
func (s *sorting) next(
	list func(visit func(message.Recorded) error) error, latest sortedLine,
) (lines []sortedLine, isAll bool, err error) {
	size := 0
	var left *sortedLine // the first line that is left for later
	err = list(func(m message.Recorded) error {
		l := sortedLine{at: m.Row.NextAttemptAt, queue: m.Queue, id: m.ID}
		if l.at.IsZero() {
			l.at = m.Since
		}
		if l.compare(latest) <= 0 || left != nil && l.compare(*left) >= 0 {
			return nil
		}
		var err error
		l.text, err = s.line(m)
		lines = append(lines, l)
		size += l.bytes()
		if size <= s.most {
			return err
		}
		slices.SortFunc(lines, sortedLine.compare)
		for size > s.most/2 {
			last := len(lines) - 1
			left = new(lines[last])
			size -= left.bytes()
			lines = slices.Delete(lines, last, last+1) // and clear it
		}
		return err
	})
	slices.SortFunc(lines, sortedLine.compare)
	return lines, left == nil, err
}
