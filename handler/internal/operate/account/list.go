package account

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/reading"
)

// Source selects messages.
type Source struct {
	// Queues are the queues to read; empty means every poison queue of the account.
	Queues []string
	// IDs, unless empty, limit the messages, as [message.MatchID] does; Filter limits them further.
	IDs    []string
	Filter message.Filter
	// DueBefore, unless zero, limits scheduled messages to those whose next attempt is earlier.
	DueBefore time.Time
	// Limit is the largest number of messages; 0 for all.
	Limit int
	// Force allows queues that a function app reads.
	Force bool
	// ReadQueues reads dead letters by receiving them, instead of their rows.
	ReadQueues bool
	// PeekOnly receives no message of a dead letter in any case.
	PeekOnly bool
}

// IsWhole reports whether the source selects every message of its queues.
func (s Source) IsWhole() bool {
	return len(s.IDs) == 0 && s.Limit == 0 && reflect.ValueOf(s.Filter).IsZero()
}

// Found is a message with its content. Its JSON form is a line of an export: the description and the text, byte for
// byte as on the queue.
type Found struct {
	message.Message
	// Text is the message's text on the queue, Content the decoded text, as far as it can be decoded.
	Text    string `json:"text"`
	Content []byte `json:"-"`
}

// Read inspects a message, and reports whether the source selects it.
func (a *Account) Read(s Source, queueName string, m storage.Message) (Found, bool) {
	found := a.read(queueName, m)
	return found, s.names(found.Message) && a.match(s.Filter, found.Message, found.Content)
}

func (a *Account) read(queueName string, m storage.Message) Found {
	found := Found{Message: message.Read(a.Rules, queueName, m), Text: m.Text, Content: a.Rules.Content(m.Text)}
	if found.Reason == message.HostGaveUp && slices.Contains(a.AppQueues, queueName) { // the app may have it in hand
		found.Reason, found.Detail = message.Waiting, ""
	}
	return found
}

// beginSearch counts the messages of a further reading anew.
func (a *Account) beginSearch(f message.Filter) {
	if f.Text != "" {
		a.Unsearched = 0
	}
}

// match reports whether a filter selects a message, and counts a message that could not be searched.
func (a *Account) match(f message.Filter, m message.Message, content []byte) bool {
	selected, unsearched := f.Match(m, content)
	if unsearched {
		a.Unsearched++
	}
	return selected
}

// names reports whether one of the IDs, if there are any, identifies a message.
func (s Source) names(m message.Message) bool {
	return len(s.IDs) == 0 || slices.ContainsFunc(s.IDs, func(id string) bool { return message.MatchID(m, id) })
}

// QueuesOf returns the names of the source's queues. It refuses a queue that a function app reads, because a message
// that is read is invisible for a moment, and its dequeue count increases. A reading of the source begins with it.
func (a *Account) QueuesOf(ctx context.Context, s Source) ([]string, error) {
	a.beginSearch(s.Filter)
	all, err := a.Reach(ctx)
	if err != nil {
		return nil, err
	}
	if len(s.Queues) == 0 {
		return slices.DeleteFunc(poisonQueues(all), func(name string) bool { return a.IsRead(all, name) }), nil
	}
	for _, name := range s.Queues {
		if !slices.Contains(all, name) {
			known := cmp.Or(strings.Join(poisonQueues(all), ", "), "none")
			return nil, fmt.Errorf("queue %s: %w; the poison queues of %s are: %s",
				name, storage.ErrNoQueue, a.Name, known)
		}
		advice := "its poison queue is " + name + storage.PoisonSuffix +
			"; use --force to take messages from it nevertheless"
		if err := a.CheckQueue(all, name, advice); err != nil && !s.Force {
			return nil, err
		}
	}
	return s.Queues, nil
}

// DeadLetterQueues returns the queues that have the dead letters of the source's queues: the poison queue, if it
// exists, of a queue that a function reads, and any other queue itself. With Force, these are the source's queues.
func (a *Account) DeadLetterQueues(ctx context.Context, s Source) (names []string, err error) {
	if len(s.Queues) == 0 || s.Force {
		return s.Queues, nil
	}
	all, err := a.Reach(ctx)
	for _, name := range s.Queues {
		isRead := a.IsRead(all, name)
		if isRead {
			name += storage.PoisonSuffix
		}
		isMissing := isRead && !slices.Contains(all, name)
		if !isMissing && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, err
}

// scan shows every visible message of a queue with this front, and returns how many messages are hidden.
func (a *Account) scan(
	ctx context.Context, front Front, first []storage.Message, visit func(storage.Message),
) (hidden int, err error) {
	if front.Problem != nil {
		return 0, front.Problem
	}
	total, seen := *front.Messages, 0
	err = reading.Show(ctx, a.Store, front.Queue, total, first, func(m storage.Message) {
		seen++
		a.Scanned(front.Queue, seen, total)
		visit(m)
	})
	return max(total-seen, 0), IgnoreMissing(err)
}

// Listed is the number of messages of a list. Hidden messages could not be read, because another client has received
// them or they are delayed.
type Listed struct {
	Matched, Hidden int
	// Views say how the queues of dead letters were looked at, unless all messages were received.
	Views []View
}

// Lacks returns about how many dead letters of the views were not seen.
func (l Listed) Lacks() (n int) {
	for _, v := range l.Views {
		n += v.Lacks()
	}
	return n
}

// List shows every message of the source, in the order of the queues, and keeps none in memory.
func (a *Account) List(ctx context.Context, s Source, visit func(Found)) (listed Listed, err error) {
	names, err := a.QueuesOf(ctx, s)
	if err != nil {
		return Listed{}, err
	}
	for _, name := range names {
		front, first := a.Front(ctx, name)
		hidden, err := a.scan(ctx, front, first, func(m storage.Message) {
			if s.Limit > 0 && listed.Matched == s.Limit {
				return
			}
			if found, ok := a.Read(s, name, m); ok {
				listed.Matched++
				visit(found)
			}
		})
		listed.Hidden += hidden
		if err != nil {
			return listed, err
		}
	}
	return listed, nil
}

// ResolveGroup replaces the digest in a source's group by the key that has it. It refuses a digest of two keys.
func (a *Account) ResolveGroup(ctx context.Context, s *Source, isScheduled bool) (err error) {
	group := s.Filter.Group
	if group == nil || group.Digest == "" {
		return nil
	}
	named := Source{Queues: s.Queues, Force: s.Force, Filter: message.Filter{Group: group}}
	var keys []string
	see := func(m message.Message) {
		if key := group.By.Key(m); len(keys) < 2 && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	visit := func(m message.Recorded) error { see(m.Message); return nil }
	if isScheduled {
		_, err = a.ListScheduled(ctx, named, false, visit)
	} else {
		_, err = a.Look(ctx, named, visit)
	}
	switch {
	case err != nil:
		return err
	case len(keys) > 1:
		name := group.By.Arguments(keys...)
		return fmt.Errorf("--group %s=#%s %w of two groups: give `--group %s` or `--group %s`",
			group.By, group.Digest, ErrAmbiguous, name(keys[0]), name(keys[1]))
	case len(keys) == 1:
		s.Filter.Group = &message.Group{By: group.By, Key: keys[0]}
	}
	return nil
}

// Find returns the one message with the given ID: its own, the beginning of its own, or its request ID.
func (a *Account) Find(ctx context.Context, s Source, id string) (Found, error) {
	s.IDs, s.Limit = []string{id}, 2
	var matches []Found
	listed, err := a.List(ctx, s, func(f Found) { matches = append(matches, f) })
	if err != nil {
		return Found{}, err
	}
	return onlyOne(id, matches, func(f Found) message.Message { return f.Message }, hiddenText(listed.Hidden))
}

func hiddenText(hidden int) string {
	if hidden == 0 {
		return ""
	}
	return fmt.Sprintf("; %d messages are invisible now, because another client has received them", hidden)
}

// onlyOne returns the only match of an id. Its error says which messages match, or ends with a text about those that
// could not be read.
func onlyOne[T any](id string, matches []T, describe func(T) message.Message, unread string) (match T, err error) {
	switch len(matches) {
	case 0:
		return match, fmt.Errorf("%.80q: %w%s%s", id, ErrNothing, unread, message.ShortIDHint(id))
	case 1:
		return matches[0], nil
	}
	first, second := describe(matches[0]), describe(matches[1])
	return match, fmt.Errorf("%.80q %w: %s on %s, and %s on %s; give the whole ID of one",
		id, ErrAmbiguous, first.ID, first.Queue, second.ID, second.Queue)
}
