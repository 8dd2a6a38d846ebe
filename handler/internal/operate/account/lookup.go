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
	Unread []UnreadError
}

// Front describes the first visible messages of a queue.
type Front struct {
	Queue string
	// Visible is their number, at most [storage.MaxBatch]. Oldest is when the first of them was written.
	Visible int
	Oldest  time.Time
}

// UnreadError is a part of an account that could not be looked at, and why.
type UnreadError struct {
	Part string
	Err  error
}

// Error returns the part and why it was not looked at.
func (u UnreadError) Error() string { return u.Part + ": " + u.Err.Error() }

// Unwrap returns why the part was not looked at.
func (u UnreadError) Unwrap() error { return u.Err }

// LookUp finds the messages that one of the IDs names, see [message.MatchID]: in the record of scheduled messages, on
// the poison queues, and among the first visible messages of all other queues, which it only peeks at. Queues, unless
// empty, are the only ones to look at. A queue of these that no function reads is read as a whole, like a poison queue.
//
// The error is a [storage.ErrNoQueue] if a queue does not exist and the record has nothing of it.
func (a *Account) LookUp(ctx context.Context, queues, ids []string) (Lookup, error) {
	all, err := a.Reach(ctx)
	var l Lookup
	switch {
	case errors.Is(err, storage.ErrDenied): // the tables may be readable nevertheless
		l.addUnread("queues", err)
		all = nil
	case err != nil:
		return Lookup{}, err
	default:
		err = a.CheckScheduledQueues(ctx, Source{Queues: queues})
		if errors.Is(err, storage.ErrNoQueue) {
			return Lookup{}, err
		}
	}
	a.lookUpRows(ctx, &l, queues, ids)
	a.lookUpFronts(ctx, &l, all, queues, ids)
	for _, name := range all {
		if a.isWhole(all, queues, name) {
			a.lookUpPoison(ctx, &l, name, ids)
		}
	}
	return l, ctx.Err()
}

// isWhole reports whether a queue is read as a whole: no function reads it, and it is a poison queue or a selected one.
func (a *Account) isWhole(all, queues []string, name string) bool {
	isSelected := slices.Contains(queues, name) || len(queues) == 0 && strings.HasSuffix(name, storage.PoisonSuffix)
	return isSelected && !a.IsRead(all, name)
}

func (l *Lookup) addUnread(part string, err error) {
	l.Unread = append(l.Unread, UnreadError{part, err})
}

// lookUpRows looks into the record.
func (a *Account) lookUpRows(ctx context.Context, l *Lookup, queues, ids []string) {
	const part = "scheduled messages"
	source := Source{Queues: queues, IDs: ids}
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
func (a *Account) lookUpPoison(ctx context.Context, l *Lookup, name string, ids []string) {
	source := Source{IDs: ids}
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
		l.addUnread("queue "+name, fmt.Errorf("%d of its messages are invisible: scheduled, or received by another "+
			"client", hidden))
	}
}

// lookUpFronts looks at the first visible messages of the queues that are not read as a whole.
func (a *Account) lookUpFronts(ctx context.Context, l *Lookup, all, queues, ids []string) {
	ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	for _, name := range all {
		isSelected := len(queues) == 0 || slices.Contains(queues, name)
		if isSelected && !a.isWhole(all, queues, name) {
			a.lookUpFront(ctx, l, name, a.IsRead(all, name), ids)
		}
	}
}

func (a *Account) lookUpFront(ctx context.Context, l *Lookup, name string, isRead bool, ids []string) {
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
		if !(Source{IDs: ids}).names(found.Message) {
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
