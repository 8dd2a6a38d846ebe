package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// MaxMatches is the largest number of messages of each kind that a [Lookup] has: a sender can use a request id any
// number of times.
const MaxMatches = 20

// Lookup is what an ID names in an account, apart from the history.
type Lookup struct {
	// Scheduled are the rows of scheduled messages, with their content.
	Scheduled []message.Recorded
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

	fronts *Fronts
}

// PresenceCheck is that of the fronts that were looked at, see [Fronts.PresenceCheck].
func (l Lookup) PresenceCheck(ctx context.Context, now time.Time) func(record.Row) record.Presence {
	return l.fronts.PresenceCheck(ctx, now)
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

// LookupQuery says what [Account.LookUp] looks for, and where.
type LookupQuery struct {
	// IDs are those of the messages, see [message.MatchID].
	IDs []string
	// Queues, unless empty, are the only ones to look at. One of these that no function reads is read as a whole, like
	// a poison queue.
	Queues []string
	// PeekOnly looks only at the first visible messages of each queue, so that no dequeue count changes.
	PeekOnly bool
}

// LookUp finds the messages that one of the IDs names: in the record of scheduled messages, on the poison queues, and
// among the first visible messages of all other queues, which it only peeks at.
//
// The error is a [storage.ErrNoQueue] if a queue does not exist and the record has nothing of it.
func (a *Account) LookUp(ctx context.Context, q LookupQuery) (Lookup, error) {
	all, err := a.Reach(ctx)
	var l Lookup
	switch {
	case errors.Is(err, storage.ErrDenied): // the tables may be readable nevertheless
		l.addUnread("queues", err)
		all = nil
	case err != nil:
		return Lookup{}, err
	default:
		err = a.CheckQueues(ctx, Source{Queues: q.Queues})
		if errors.Is(err, storage.ErrNoQueue) {
			return Lookup{}, err
		}
	}
	l.fronts = a.newFronts(all)
	a.lookUpRows(ctx, &l, q)
	a.lookUpFronts(ctx, &l, all, q)
	for _, name := range all {
		if !q.PeekOnly && a.isWhole(all, q.Queues, name) {
			a.lookUpPoison(ctx, &l, name, q.IDs)
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
func (a *Account) lookUpRows(ctx context.Context, l *Lookup, q LookupQuery) {
	const part = "scheduled messages"
	source := Source{Queues: q.Queues, IDs: q.IDs}
	var keys []storage.Key
	_, err := a.ListScheduled(ctx, source, false, func(m message.Recorded) error {
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
		row, isThere, err := rows.Get[record.Row](ctx, a.Table, key.Partition, key.ID)
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
	front, first := a.Front(ctx, name)
	hidden, err := a.scan(ctx, front, first, func(m storage.Message) { l.add(&l.Poison, ids, a.read(name, m)) })
	switch {
	case err != nil:
		l.addUnread("queue "+name, err)
	case hidden > 0:
		l.addUnread("queue "+name, fmt.Errorf("%d of its messages are invisible: scheduled, or received by another "+
			"client", hidden))
	}
}

// lookUpFronts looks at the first visible messages of the queues of which it does not read all.
func (a *Account) lookUpFronts(ctx context.Context, l *Lookup, all []string, q LookupQuery) {
	ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	names := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		isSelected := len(q.Queues) == 0 || slices.Contains(q.Queues, name)
		return !isSelected || !q.PeekOnly && a.isWhole(all, q.Queues, name)
	})
	l.fronts.each(ctx, names, func(front Front, first []storage.Message) {
		isRead, isWhole := a.IsRead(all, front.Queue), a.isWhole(all, q.Queues, front.Queue)
		for _, m := range first {
			found, to := a.read(front.Queue, m), &l.Poison
			isWaiting := isRead || found.Raw || !isDeadLetter(found.Content)
			if isWaiting && !isWhole {
				found.Message, to = message.ReadWaiting(a.Rules, front.Queue, m), &l.Waiting
			}
			l.add(to, q.IDs, found)
		}
		switch {
		case front.Problem != nil:
			l.addUnread("queue "+front.Queue, front.Problem)
		case isWhole && *front.Messages > front.Visible:
			l.addUnread("queue "+front.Queue, fmt.Errorf("only the first %d of %s were looked at", front.Visible,
				format.Messages(*front.Messages)))
		case isRead && front.Visible > 0:
			l.Fronts = append(l.Fronts, front)
		}
	})
}

// add adds a message if one of the IDs names it.
func (l *Lookup) add(to *[]Found, ids []string, found Found) {
	switch {
	case !(Source{IDs: ids}).names(found.Message):
	case len(*to) >= MaxMatches:
		l.Others++
	default:
		*to = append(*to, found)
	}
}

func isDeadLetter(content []byte) bool {
	e, err := envelope.Parse(content)
	return err == nil && e.DeadLetter != nil
}
