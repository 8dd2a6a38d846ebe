package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/bounds"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// MaxMatches is the largest number of messages of each kind that a [Lookup] has: a sender can use a request id any
// number of times.
const MaxMatches = 20

// Lookup is what an ID names in an account, apart from the history.
type Lookup struct {
	// Scheduled are the rows of scheduled messages, with their content.
	Scheduled []message.Scheduled
	// Poison are messages on poison queues, and dead letters that were moved to a queue that no function reads.
	Poison []Found
	// Waiting are messages at the front of other queues. A function may have received one of its queue meanwhile.
	Waiting []Found
	// Others is the number of further messages.
	Others int
	// Fronts describe the queues that functions read and on which messages wait.
	Fronts []Front
	// Unread are the parts of the account that could not be looked at.
	Unread []Unread
}

// Front describes the first visible messages of a queue.
type Front struct {
	Queue string
	// Visible is their number, at most [storage.MaxBatch]. Oldest is when the first of them was written.
	Visible int
	Oldest  time.Time
}

// Unread is a part of an account that could not be looked at, and why.
type Unread struct {
	Part string
	Err  error
}

// Error returns the part and why it was not looked at.
func (u Unread) Error() string { return u.Part + ": " + u.Err.Error() }

// Unwrap returns why the part was not looked at.
func (u Unread) Unwrap() error { return u.Err }

// LookUp finds the messages that an ID names, see [message.MatchID]: in the record of scheduled messages, on the poison
// queues, and among the first visible messages of all other queues, which it only peeks at. Queues, unless empty, are
// the only ones to look at. A queue of these that no function reads is read as a whole, like a poison queue.
//
// The error is a [storage.ErrNoQueue] if a queue does not exist and the record has nothing of it.
func (a *Account) LookUp(ctx context.Context, queues []string, id string) (Lookup, error) {
	all, err := a.Reach(ctx)
	var l Lookup
	switch {
	case errors.Is(err, storage.ErrDenied): // the tables may be readable nevertheless
		l.addUnread("queues", err)
		all = nil
	case err != nil:
		return Lookup{}, err
	default:
		err = a.CheckScheduledQueues(ctx, ScheduledSource{Source: Source{Queues: queues}})
		if errors.Is(err, storage.ErrNoQueue) {
			return Lookup{}, err
		}
	}
	a.lookUpRows(ctx, &l, queues, id)
	selected := func(name string) bool { return len(queues) == 0 || slices.Contains(queues, name) }
	limited, cancel := context.WithTimeout(ctx, ReachTimeout) // for all that is peeked at
	defer cancel()
	for _, name := range all {
		isPoison := strings.HasSuffix(name, storage.PoisonSuffix)
		isRead := a.IsRead(all, name)
		switch {
		case !selected(name):
		case !isRead && (isPoison || len(queues) > 0):
			a.lookUpPoison(ctx, &l, name, id)
		default:
			a.lookUpFront(limited, &l, name, isRead, id)
		}
	}
	return l, ctx.Err()
}

func (l *Lookup) addUnread(part string, err error) { l.Unread = append(l.Unread, Unread{part, err}) }

// lookUpRows looks into the record.
func (a *Account) lookUpRows(ctx context.Context, l *Lookup, queues []string, id string) {
	const part = "scheduled messages"
	source := ScheduledSource{Source: Source{Queues: queues, IDs: []string{id}}}
	var keys []storage.Key
	_, err := a.ListScheduled(ctx, source, false, func(m message.Scheduled) error {
		if len(keys) == MaxMatches {
			l.Others++
			return nil
		}
		keys = append(keys, m.Row.Key)
		return nil
	})
	if err != nil {
		l.addUnread(part, err)
	}
	for _, key := range keys {
		row, isThere, err := rows.Get[record.Scheduled](ctx, a.Table, key.Partition, key.ID)
		switch {
		case err != nil:
			l.addUnread(part, fmt.Errorf("read the row of %.80q: %w", key.ID, err))
		case isThere: // otherwise it was delivered just now
			l.Scheduled = append(l.Scheduled, message.FromRow(row))
		}
	}
}

// lookUpPoison looks at every message of a queue that no function reads.
func (a *Account) lookUpPoison(ctx context.Context, l *Lookup, name, id string) {
	source := Source{IDs: []string{id}}
	hidden, err := a.scan(ctx, name, func(m storage.Message) {
		found, ok := a.Read(source, name, m)
		switch {
		case !ok:
		case len(l.Poison) == MaxMatches:
			l.Others++
		default:
			l.Poison = append(l.Poison, found)
		}
	})
	switch {
	case err != nil:
		l.addUnread("queue "+name, err)
	case hidden > 0:
		l.addUnread("queue "+name, fmt.Errorf("%d messages are invisible: scheduled, or received by another client",
			hidden))
	}
}

// lookUpFront looks at the first visible messages of a queue.
func (a *Account) lookUpFront(ctx context.Context, l *Lookup, name string, isRead bool, id string) {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	first, err := a.Peek(ctx, name)
	if err != nil {
		l.addUnread("queue "+name, err)
		return
	}
	front := Front{Queue: name, Visible: len(first)}
	for _, m := range first {
		front.Oldest = bounds.Earliest(front.Oldest, m.InsertedAt)
		found := Found{
			Message: message.ReadWaiting(a.Rules, name, m), Text: m.Text, Content: a.Rules.Content(m.Text),
		}
		if !message.MatchID(found.Message, id) {
			continue
		}
		isMoved := !isRead && !found.Raw && isDeadLetter(found.Content)
		switch {
		case len(l.Waiting)+len(l.Poison) >= MaxMatches:
			l.Others++
		case isMoved:
			found.Message = message.Read(a.Rules, name, m)
			l.Poison = append(l.Poison, found)
		default:
			l.Waiting = append(l.Waiting, found)
		}
	}
	if isRead && len(first) > 0 {
		l.Fronts = append(l.Fronts, front)
	}
}

func isDeadLetter(content []byte) bool {
	e, err := envelope.Parse(content)
	return err == nil && e.DeadLetter != nil
}
