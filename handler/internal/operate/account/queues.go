package account

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/storage"
)

// QueueSummary describes a poison queue, or another queue that has dead letters.
type QueueSummary struct {
	Queue string `json:"queue"`
	// Main is the queue that a poison queue belongs to.
	Main string `json:"main,omitempty"`
	// Moved says that it is not a poison queue: somebody has moved dead letters to it, and no function of the app reads
	// it.
	Moved bool `json:"moved,omitempty"`
	// Messages is the number of messages. Hidden is how many of them are invisible, because another client has received
	// them or they are delayed.
	Messages int `json:"messages"`
	Hidden   int `json:"hidden,omitempty"`
	// Oldest and Newest are when the first and the last message arrived; zero for an empty queue.
	Oldest time.Time `json:"oldest"`
	Newest time.Time `json:"newest"`
	// Expiring is how many messages storage will delete, the first of them at NextExpiry. These are the messages
	// that the host moved, 7 days after it wrote them.
	Expiring   int       `json:"expiring,omitempty"`
	NextExpiry time.Time `json:"nextExpiry"`
	// Reasons counts the messages by reason, the most frequent first.
	Reasons []ReasonCount `json:"reasons"`
}

// ReasonCount is the number of messages with a reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Queues describes the account's poison queues, and then the other queues that no function reads and that have a dead
// letter among their first messages.
func (a *Account) Queues(ctx context.Context) ([]QueueSummary, error) {
	all, err := a.Reach(ctx)
	if err != nil {
		return nil, err
	}
	names := poisonQueues(all)
	for _, name := range all {
		if strings.HasSuffix(name, storage.PoisonSuffix) || a.IsRead(all, name) || a.Rules.IsRaw(name) {
			continue
		}
		hasDeadLetter, err := a.hasDeadLetter(ctx, name)
		if err != nil {
			return nil, err
		}
		if hasDeadLetter {
			names = append(names, name)
		}
	}
	summaries := make([]QueueSummary, len(names))
	for i, name := range names {
		summaries[i], err = a.summarize(ctx, name)
		if err != nil {
			return nil, err
		}
	}
	return summaries, nil
}

// PoisonFront has the first visible messages of a queue with dead letters.
type PoisonFront struct {
	Queue string
	// Messages is the approximate number of messages, invisible ones included; nil if it is unknown. Problem says why
	// some of the queue could not be read.
	Messages *int
	Problem  string
	// First are the first visible messages, at most [storage.MaxBatch].
	First []message.Message
}

// PoisonFronts only peeks: at the poison queues of the account, and at the other queues that have a dead letter among
// their first messages. It leaves out empty queues, and those that functions read.
func (a *Account) PoisonFronts(ctx context.Context) ([]PoisonFront, error) {
	all, err := a.Reach(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	names := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		isOfRoute := !strings.HasSuffix(name, storage.PoisonSuffix) && a.Rules.IsRaw(name)
		return isOfRoute || a.IsRead(all, name)
	})
	fronts := make([]PoisonFront, len(names))
	var group errgroup.Group
	group.SetLimit(queuesAtOnce)
	for i, name := range names {
		group.Go(func() error {
			fronts[i] = a.poisonFront(ctx, name)
			return nil
		})
	}
	_ = group.Wait() // each front has its problem
	return slices.DeleteFunc(fronts, PoisonFront.isEmpty), nil
}

func (f PoisonFront) isEmpty() bool { return f.Problem == "" && *f.Messages == 0 }

func (a *Account) poisonFront(ctx context.Context, name string) PoisonFront {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	f := PoisonFront{Queue: name, Messages: new(int)}
	first, err := a.Peek(ctx, name)
	hasDeadLetter := strings.HasSuffix(name, storage.PoisonSuffix)
	for _, m := range first {
		hasDeadLetter = hasDeadLetter || isDeadLetter(a.Rules.Content(m.Text))
		f.First = append(f.First, message.Read(a.Rules, name, m))
	}
	if err == nil && !hasDeadLetter {
		return f
	}
	count, countErr := a.Count(ctx, name)
	err = cmp.Or(err, countErr)
	if err != nil {
		f.Messages, f.Problem = nil, err.Error()
		return f
	}
	*f.Messages = max(count, len(first))
	return f
}

// summarize describes one queue.
func (a *Account) summarize(ctx context.Context, name string) (QueueSummary, error) {
	s := QueueSummary{Queue: name, Main: MainQueue(name), Reasons: []ReasonCount{}}
	if s.Main == name {
		s.Main, s.Moved = "", true
	}
	reasons := message.NewGroups(message.ByReason)
	hidden, err := a.scan(ctx, name, func(m storage.Message) {
		message := message.Read(a.Rules, name, m)
		s.add(message)
		reasons.Add(message)
	})
	s.Hidden = hidden
	s.Messages += hidden
	for _, row := range reasons.Result() {
		s.Reasons = append(s.Reasons, ReasonCount{Reason: row.Key, Count: row.Count})
	}
	return s, err
}

// hasDeadLetter reports whether a dead letter is among the first messages of a queue. It only peeks, because the queue
// may belong to another program.
func (a *Account) hasDeadLetter(ctx context.Context, name string) (bool, error) {
	first, err := a.Peek(ctx, name)
	return slices.ContainsFunc(first, func(m storage.Message) bool {
		return isDeadLetter(a.Rules.Content(m.Text))
	}), err
}

func (s *QueueSummary) add(m message.Message) {
	s.Messages++
	s.Oldest = bounds.Earliest(s.Oldest, m.InsertedAt)
	if m.InsertedAt.After(s.Newest) {
		s.Newest = m.InsertedAt
	}
	if !m.ExpiresAt.IsZero() {
		s.Expiring++
		s.NextExpiry = bounds.Earliest(s.NextExpiry, m.ExpiresAt)
	}
}

// MainQueue returns the queue that a poison queue belongs to, and any other name unchanged.
func MainQueue(name string) string { return strings.TrimSuffix(name, storage.PoisonSuffix) }
