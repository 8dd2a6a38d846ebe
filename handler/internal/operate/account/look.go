package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Way is how a queue of dead letters was looked at.
type Way string

// The ways.
const (
	// ByRecord reads rows, and peeks at the first messages.
	ByRecord Way = "record"
	// ByReceiving receives all messages: they are invisible for a moment, and their dequeue counts increase.
	ByReceiving Way = "received"
	// ByPeeking sees only the first messages.
	ByPeeking Way = "first"
)

// View says how much of a queue of dead letters was seen.
type View struct {
	Queue string `json:"queue"`
	// Way is how it was looked at, and Why the reason for another way than [ByRecord].
	Way Way    `json:"way"`
	Why string `json:"why,omitempty"`
	// Seen is the number of dead letters that were seen, and Messages about how many messages the queue has: storage
	// may say too many, and never too few.
	Seen     int `json:"seen"`
	Messages int `json:"messages"`
	// Unseen is how many of the rows have no visible message, although all visible ones are known.
	Unseen int `json:"unseen,omitempty"`
}

// Lacks returns about how many messages were not seen.
func (v View) Lacks() int { return max(v.Messages-v.Seen, 0) }

// Text says what the view lacks, and which side effect it had; empty if there is nothing to say.
func (v View) Text() (text string) {
	seen, messages := format.Number(v.Seen), format.Number(v.Messages)
	switch {
	case v.Way == ByPeeking:
		text = "only the first " + seen + " of about " + messages + " were looked at"
	case v.Way == ByReceiving && v.Lacks() > 0:
		text = format.Number(v.Lacks()) + " of about " + messages + " are invisible: received by another command, or " +
			"delayed"
	case v.Way == ByReceiving && v.Why != "":
		text = "read by receiving its messages"
	case v.Way == ByRecord && v.Seen != v.Messages:
		text = "recorded " + seen + ", on the queue about " + messages
	}
	if v.Unseen > 0 {
		text += "; not seen " + format.Number(v.Unseen) + ": perhaps received by another command"
	}
	if text == "" {
		return ""
	}
	if v.Why != "" {
		text += ": " + v.Why
	}
	return strings.TrimPrefix(text, "; ")
}

// rowDelay is how long the row of a dead letter may come after its message, while the record is fast.
const rowDelay = 3 * time.Second

// look is one look at dead letters.
type look struct {
	*Account
	source  Source
	matched int
	// isFull says that there are more messages than the limit of the source.
	isFull bool
	visit  func(message.Recorded) error
}

// Look shows the selected dead letters, queue by queue, as the record and the first messages of each queue have them,
// and keeps only their ids. It receives messages only from a queue of more than these of which the record cannot tell:
// the record is not available, or AC-monitor has never read the queue.
func (a *Account) Look(
	ctx context.Context, s Source, visit func(message.Recorded) error,
) (listed Listed, err error) {
	names, err := a.QueuesOf(ctx, s)
	l := look{Account: a, source: s, visit: visit}
	for _, name := range names {
		view, err := l.at(ctx, name)
		listed.Matched = l.matched
		if l.isFull {
			break
		}
		listed.Views = append(listed.Views, view)
		if err != nil {
			return listed, err
		}
	}
	return listed, err
}

// at looks at a queue.
func (l *look) at(ctx context.Context, name string) (View, error) {
	front, first := l.Front(ctx, name)
	v := View{Queue: name, Way: ByRecord}
	if front.Problem != nil {
		return v, front.Problem
	}
	v.Messages = *front.Messages
	if v.Messages == len(first) {
		v.Seen = len(first)
		return v, l.showFirst(name, first)
	}
	var isRecorded bool
	isRecorded, v.Why = l.isRecorded(ctx, name)
	if isRecorded && !l.source.ReadQueues {
		return l.byRecord(ctx, v, first)
	}
	if l.source.ReadQueues {
		v.Why = ""
	}
	return l.byReceiving(ctx, v, front, first)
}

// isRecorded reports whether the record has the messages of a queue and, if not, why.
func (a *Account) isRecorded(ctx context.Context, name string) (isRecorded bool, why string) {
	if a.Table == nil {
		return false, ErrNoTable.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, beatsTimeout)
	defer cancel()
	last, _, err := rows.Get[record.Reading](ctx, a.Table, name, record.ReadingID)
	switch {
	case err != nil:
		return false, RecordProblem(err)
	case last.ReadAt.IsZero():
		return false, "the timer function AC-monitor has not compared it with the record yet"
	}
	return true, ""
}

// showFirst shows the first messages of a queue.
func (l *look) showFirst(name string, first []storage.Message) error {
	for _, m := range first {
		if err := l.show(l.read(name, m)); err != nil {
			return err
		}
	}
	return nil
}

// show shows a message of a queue if it is selected.
func (l *look) show(f Found) error {
	return l.showRecorded(message.Recorded{Message: f.Message, Row: record.Row{Content: f.Content}}, f.Content)
}

func (l *look) showRecorded(m message.Recorded, content []byte) error {
	if !l.source.names(m.Message) || !l.match(l.source.Filter, m.Message, content) {
		return nil
	}
	if l.source.Limit > 0 && l.matched == l.source.Limit {
		l.isFull = true
		return rows.ErrStop
	}
	l.matched++
	return l.visit(m)
}

// mostShown limits the ids that a look keeps, to show each message once.
const mostShown = 200_000

// byRecord looks at the rows of a queue and at its first messages. If there are fewer of both than messages, some rows
// are perhaps not written yet: it looks once more.
func (l *look) byRecord(ctx context.Context, v View, first []storage.Message) (View, error) {
	shown := map[string]bool{}
	err := l.showRows(ctx, &v, first, shown)
	if err != nil || l.isFull || v.Lacks() == 0 || len(shown) == mostShown || !storage.Sleep(ctx, rowDelay) {
		return v, err
	}
	count, err := l.Count(ctx, v.Queue)
	if err != nil {
		return v, err
	}
	v.Messages = min(v.Messages, count)
	return v, l.showRows(ctx, &v, first, shown)
}

// showRows shows the rows of a queue, and its first messages without rows, apart from those that were shown.
func (l *look) showRows(ctx context.Context, v *View, first []storage.Message, shown map[string]bool) error {
	alone := map[string]storage.Message{}
	for _, m := range first {
		alone[m.ID] = m
	}
	v.Seen, v.Unseen = 0, 0
	isAllVisible := len(first) < storage.MaxBatch
	isNew := func(id string) bool {
		v.Seen++
		l.Scanned(v.Queue, v.Seen, max(v.Seen, v.Messages))
		wasShown := shown[id]
		if len(shown) < mostShown {
			shown[id] = true
		}
		return !wasShown
	}
	query := record.Query{Queue: v.Queue, Content: l.source.Filter.NeedsContent()}
	err := record.ListDeadLetters(ctx, l.Table, query, func(row record.Row) error {
		m, isFirst := alone[row.ID]
		delete(alone, row.ID)
		recorded := message.FromRow(row)
		recorded.Unseen = isAllVisible && !isFirst
		if recorded.Unseen {
			v.Unseen++
		}
		switch {
		case !isNew(row.ID):
			return nil
		case isFirst:
			return l.show(l.read(v.Queue, m))
		case query.Content:
			recorded.DescribeCall()
		}
		return l.showRecorded(recorded, row.Content)
	})
	for _, m := range first {
		if _, isAlone := alone[m.ID]; isAlone && err == nil && isNew(m.ID) {
			err = l.show(l.read(v.Queue, m))
		}
	}
	if err == nil || errors.Is(err, rows.ErrStop) {
		return err
	}
	if l.source.PeekOnly {
		return fmt.Errorf("list dead letters: %w", err)
	}
	return fmt.Errorf("list dead letters: %w; --read-queues reads the queues instead", err)
}

const (
	// readers is how often a queue is read of which other commands have received everything, and readersPause the
	// pause before the next reading.
	readers      = 6
	readersPause = 5 * time.Second
)

// byReceiving receives the messages of a queue. If it may not, it shows only the first ones.
func (l *look) byReceiving(ctx context.Context, v View, front Front, first []storage.Message) (View, error) {
	v.Way = ByReceiving
	err := error(nil)
	if l.source.PeekOnly {
		err = storage.ErrDenied
	}
	for range readers {
		if err != nil {
			break
		}
		var stopped error
		hidden := 0
		hidden, err = l.scan(ctx, front, first, func(m storage.Message) {
			v.Seen++
			if stopped == nil {
				stopped = l.show(l.read(v.Queue, m))
			}
		})
		err = cmp.Or(err, stopped)
		if hidden == 0 || v.Seen > 0 || !storage.Sleep(ctx, readersPause) {
			break
		}
		front, first = l.Front(ctx, v.Queue)
	}
	if errors.Is(err, storage.ErrDenied) && v.Seen == 0 {
		v.Way, v.Seen = ByPeeking, len(first)
		return v, l.showFirst(v.Queue, first)
	}
	return v, err
}
