package poison

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
)

// QueueSummary describes a poison queue.
type QueueSummary struct {
	Queue string `json:"queue"`
	// Main is the queue that it belongs to.
	Main string `json:"main"`
	// Messages is the number of messages. Hidden is how many of them are invisible, because somebody else has
	// received them or they are delayed.
	Messages int `json:"messages"`
	Hidden   int `json:"hidden,omitempty"`
	// Oldest and Newest are when the first and the last message arrived; zero for an empty queue.
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
	// Expiring is how many messages storage will delete, the first of them at NextExpiry. These are the messages
	// that the host moved, 7 days after it wrote them; see [Account.PlanKeep].
	Expiring   int       `json:"expiring,omitempty"`
	NextExpiry time.Time `json:"nextExpiry,omitzero"`
	// Reasons counts the messages by reason, the most frequent first.
	Reasons []ReasonCount `json:"reasons"`
}

// ReasonCount is the number of messages with a reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Queues describes the account's poison queues.
func (a *Account) Queues(ctx context.Context) ([]QueueSummary, error) {
	all, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	var summaries []QueueSummary
	for _, name := range poisonQueues(all) {
		s := QueueSummary{Queue: name, Main: mainQueue(name), Reasons: []ReasonCount{}}
		reasons := inspect.NewGroups(inspect.ByReason)
		s.Hidden, err = a.scan(ctx, name, a.observer(), func(m queue.Message) {
			message := inspect.Read(a.inspectRules(), name, m)
			s.add(message)
			reasons.Add(message)
		})
		if err != nil {
			return summaries, err
		}
		s.Messages += s.Hidden
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

// mainQueue returns the queue that a poison queue belongs to, and any other name unchanged.
func mainQueue(name string) string { return strings.TrimSuffix(name, queue.PoisonSuffix) }

// Listed is the number of messages of a list. Hidden messages could not be read, because somebody else has
// received them or they are delayed.
type Listed struct{ Matched, Hidden int }

// List shows every message of the source, in the order of the queues, and keeps none in memory.
func (a *Account) List(ctx context.Context, s Source, see func(Found)) (listed Listed, err error) {
	names, err := a.queues(ctx, s)
	if err != nil {
		return Listed{}, err
	}
	for _, name := range names {
		hidden, err := a.scan(ctx, name, a.observer(), func(m queue.Message) {
			if s.Limit > 0 && listed.Matched == s.Limit {
				return
			}
			if found, ok := a.read(s, name, m); ok {
				listed.Matched++
				see(found)
			}
		})
		listed.Hidden += hidden
		if err != nil {
			return listed, err
		}
	}
	return listed, nil
}

// Errors of Find and of plans.
var (
	// ErrNothing means that no message matches.
	ErrNothing = errors.New("no message matches")
	// ErrAmbiguous means that an ID names several messages.
	ErrAmbiguous = errors.New("names several messages")
)

// Find returns the one message with the given ID: its own, the beginning of its own, or its request ID.
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
		return Found{}, fmt.Errorf("%.80q %w: %s on %s, and %s on %s; give the whole ID of one", id, ErrAmbiguous,
			matches[0].ID, matches[0].Queue, matches[1].ID, matches[1].Queue)
	}
	return matches[0], nil
}

// Follow shows the messages of the source that arrive after it has started, until ctx ends. It calls ready once it
// has started. It reads a queue once per interval, and a long one only when its length has changed. A message that
// was invisible during a whole read counts as a new one.
func (a *Account) Follow(ctx context.Context, s Source, interval time.Duration, ready func(), see func(Found)) error {
	queues := map[string]followed{}
	show := func(Found) {}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for started := false; ; started = true {
		if err := a.readNew(ctx, s, queues, show); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if !started {
			show = see
			ready()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// followed is the length of a queue and the IDs of its messages at the last read.
type followed struct {
	count int
	ids   map[string]bool
}

// readNew reads the source's queues once, and shows the new messages.
func (a *Account) readNew(ctx context.Context, s Source, queues map[string]followed, show func(Found)) error {
	names, err := a.queues(ctx, s)
	if err != nil {
		return err
	}
	for _, name := range names {
		count, err := a.count(ctx, name)
		if err != nil {
			return err
		}
		last, known := queues[name]
		if known && last.count == count && count >= queue.MaxBatch { // a short queue is only peeked at
			continue
		}
		ids := map[string]bool{}
		queues[name] = followed{count, ids}
		_, err = a.scan(ctx, name, silent{}, func(m queue.Message) {
			isNew := !last.ids[m.ID] && !ids[m.ID]
			ids[m.ID] = true
			if found, ok := a.read(s, name, m); ok && isNew {
				show(found)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
