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
	// Queues, unless empty, are the only ones to look at. One of these that no function reads counts as a poison queue.
	Queues []string
	// ReadQueues and PeekOnly are those of a [Source].
	ReadQueues, PeekOnly bool
}

// LookUp finds the messages that one of the IDs names: in the record, on the poison queues as [Account.Look] does, and
// among the first visible messages of all other queues, at which it only peeks.
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
		if a.isPoison(all, q.Queues, name) {
			a.lookUpPoison(ctx, &l, name, q)
		}
	}
	return l, ctx.Err()
}

// isPoison reports whether a queue counts as a poison queue: no function reads it, and it is one or is selected.
func (a *Account) isPoison(all, queues []string, name string) bool {
	isSelected := slices.Contains(queues, name) || len(queues) == 0 && strings.HasSuffix(name, storage.PoisonSuffix)
	return isSelected && !a.IsRead(all, name)
}

func (l *Lookup) addUnread(part string, err error) {
	l.Unread = append(l.Unread, UnreadError{part, err})
}

// lookUpRows looks into the record.
func (a *Account) lookUpRows(ctx context.Context, l *Lookup, q LookupQuery) {
	const part = "scheduled calls"
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

// lookUpPoison looks at the dead letters of a queue that no function reads.
func (a *Account) lookUpPoison(ctx context.Context, l *Lookup, name string, q LookupQuery) {
	source := Source{Queues: []string{name}, IDs: q.IDs, PeekOnly: q.PeekOnly, ReadQueues: q.ReadQueues}
	listed, err := a.Look(ctx, source, func(m message.Recorded) error {
		if len(l.Poison) == MaxMatches {
			l.Others++
			return nil
		}
		content := m.Row.Content
		if content == nil { // it was found by its row
			row, _, err := rows.Get[record.Row](ctx, a.Table, name, m.ID)
			if err != nil {
				return fmt.Errorf("read the row of %.80q: %w", m.ID, err)
			}
			content = row.Content
		}
		found := Found{Message: m.Message, Content: content, Text: a.Rules.Encoding.Encode(content)}
		if found.Reason == message.Undecodable {
			found.Text = string(content)
		}
		l.Poison = append(l.Poison, found)
		return nil
	})
	if err != nil {
		l.addUnread("queue "+name, err)
	}
	for _, v := range listed.Views {
		if v.Lacks() > 0 {
			l.addUnread("queue "+name, errors.New(v.Text()))
		}
	}
}

// lookUpFronts looks at the first visible messages of the queues of which it does not read all.
func (a *Account) lookUpFronts(ctx context.Context, l *Lookup, all []string, q LookupQuery) {
	ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	names := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		isSelected := len(q.Queues) == 0 || slices.Contains(q.Queues, name)
		return !isSelected || a.isPoison(all, q.Queues, name)
	})
	l.fronts.each(ctx, names, func(front Front, first []storage.Message) {
		isRead := a.IsRead(all, front.Queue)
		for _, m := range first {
			found, to := a.read(front.Queue, m), &l.Poison
			if isRead || found.Raw || !isDeadLetter(found.Content) {
				found.Message, to = message.ReadWaiting(a.Rules, front.Queue, m), &l.Waiting
			}
			l.add(to, q.IDs, found)
		}
		switch {
		case front.Problem != nil:
			l.addUnread("queue "+front.Queue, front.Problem)
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
