package account

import (
	"context"
	"strings"
	"time"

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
		if !strings.HasSuffix(name, storage.PoisonSuffix) && !a.IsRead(all, name) && !a.Rules.IsRaw(name) {
			names = append(names, name)
		}
	}
	var summaries []QueueSummary
	for _, name := range names {
		front, first := a.Front(ctx, name)
		if front.Problem == nil && !front.HasDeadLetters {
			continue
		}
		summary, err := a.summarize(ctx, front, first)
		if err != nil {
			return nil, err
		}
		summaries = append(summaries, summary)
	}
	return summaries, nil
}

// summarize describes one queue.
func (a *Account) summarize(ctx context.Context, front Front, first []storage.Message) (QueueSummary, error) {
	s := QueueSummary{Queue: front.Queue, Main: MainQueue(front.Queue)}
	if s.Main == s.Queue {
		s.Main, s.Moved = "", true
	}
	reasons := message.NewGroups(message.ByReason)
	hidden, err := a.scan(ctx, front, first, func(m storage.Message) {
		message := message.Read(a.Rules, s.Queue, m)
		s.add(message)
		reasons.Add(message)
	})
	s.Hidden = hidden
	s.Messages += hidden
	s.Reasons = countReasons(reasons)
	return s, err
}

// countReasons returns the result of groups by reason.
func countReasons(groups *message.Groups) []ReasonCount {
	counts := []ReasonCount{}
	for _, row := range groups.Result() {
		counts = append(counts, ReasonCount{Reason: row.Key, Count: row.Count})
	}
	return counts
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
