package poison

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
)

// QueueSummary is what a poison queue holds.
type QueueSummary struct {
	Queue string `json:"queue"`
	// Main is the queue that it belongs to.
	Main string `json:"main"`
	// Messages is how many there are. Hidden is how many of them could not be looked at: somebody else has
	// them, or they wait.
	Messages int `json:"messages"`
	Hidden   int `json:"hidden,omitempty"`
	// Oldest and Newest are when the first and the last came here; zero for an empty queue.
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
	// Expiring is how many will be deleted by storage, the first of them at NextExpiry. The host's own
	// copies are, 7 days after it wrote them; see [Account.PlanKeep].
	Expiring   int       `json:"expiring,omitempty"`
	NextExpiry time.Time `json:"nextExpiry,omitzero"`
	// Reasons counts the messages by reason, the most frequent first.
	Reasons []ReasonCount `json:"reasons"`
}

// ReasonCount is how many messages have a reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Queues tells what the account's poison queues hold.
func (a *Account) Queues(ctx context.Context) ([]QueueSummary, error) {
	all, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	var summaries []QueueSummary
	for _, name := range poisonQueues(all) {
		s := QueueSummary{Queue: name, Main: mainQueue(name), Reasons: []ReasonCount{}}
		reasons := inspect.NewGroups(inspect.ByReason)
		hidden, err := a.look(ctx, []string{name}, a.observer(), func(queueName string, m queue.Message) {
			message := inspect.Read(a.reader(), queueName, m)
			s.add(message)
			reasons.Add(message)
		})
		if err != nil {
			return summaries, err
		}
		s.Hidden = hidden
		s.Messages += hidden
		for _, row := range reasons.Result() {
			s.Reasons = append(s.Reasons, ReasonCount{Reason: row.Key, Count: row.Count})
		}
		summaries = append(summaries, s)
	}
	return summaries, nil
}

func (s *QueueSummary) add(m inspect.Message) {
	s.Messages++
	if s.Oldest.IsZero() || m.InsertedAt.Before(s.Oldest) {
		s.Oldest = m.InsertedAt
	}
	if m.InsertedAt.After(s.Newest) {
		s.Newest = m.InsertedAt
	}
	if m.ExpiresAt.IsZero() {
		return
	}
	s.Expiring++
	if s.NextExpiry.IsZero() || m.ExpiresAt.Before(s.NextExpiry) {
		s.NextExpiry = m.ExpiresAt
	}
}

// mainQueue is the queue that a poison queue belongs to; the name itself for a queue that is none.
func mainQueue(name string) string {
	if len(name) > len(Suffix) && name[len(name)-len(Suffix):] == Suffix {
		return name[:len(name)-len(Suffix)]
	}
	return name
}

// Listed tells how complete a list is.
type Listed struct {
	// Matched messages were shown. Hidden ones could not be looked at: somebody else has them, or they wait.
	Matched, Hidden int
}

// List shows every message that the source means, in the order of the queues, and keeps none in memory.
func (a *Account) List(ctx context.Context, s Source, see func(Found)) (Listed, error) {
	names, err := a.queues(ctx, s)
	if err != nil {
		return Listed{}, err
	}
	var listed Listed
	listed.Hidden, err = a.look(ctx, names, a.observer(), func(queueName string, m queue.Message) {
		if s.Limit > 0 && listed.Matched == s.Limit {
			return
		}
		if found, ok := a.read(s, queueName, m); ok {
			listed.Matched++
			see(found)
		}
	})
	return listed, err
}

// Errors of Find.
var (
	// ErrNothing means that no message matches.
	ErrNothing = errors.New("no message matches")
	// ErrAmbiguous means that an id names several messages.
	ErrAmbiguous = errors.New("names several messages")
)

// Find returns the one message that an id names: its own or the beginning of it, or its call's.
func (a *Account) Find(ctx context.Context, s Source, id string) (Found, error) {
	s.IDs, s.Limit = []string{id}, 2
	var matches []Found
	listed, err := a.List(ctx, s, func(f Found) { matches = append(matches, f) })
	switch {
	case err != nil:
		return Found{}, err
	case len(matches) == 0 && listed.Hidden > 0:
		return Found{}, fmt.Errorf("%.80q: %w; %d messages cannot be seen now, because somebody has taken them", id, ErrNothing, listed.Hidden)
	case len(matches) == 0:
		return Found{}, fmt.Errorf("%.80q: %w", id, ErrNothing)
	case len(matches) > 1:
		return Found{}, fmt.Errorf("%.80q %w: %s on %s, and %s on %s; give the whole id of one", id, ErrAmbiguous,
			matches[0].ID, matches[0].Queue, matches[1].ID, matches[1].Queue)
	}
	return matches[0], nil
}
