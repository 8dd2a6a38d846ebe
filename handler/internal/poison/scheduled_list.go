package poison

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
)

// ByQueue groups scheduled messages by their queue, beside the criteria of package message.
const ByQueue message.By = "queue"

// maxQueues limits the queues that are peeked at: a writer to the table can invent any number of them.
const maxQueues = 1000

// StaleCheck returns a function that reports whether the message of a row is gone. The function peeks at a queue once, when
// it meets the first row that is long due. If the queue cannot be read, no row of it is stale. The function is not safe for
// concurrent use.
func (a *Account) StaleCheck(ctx context.Context, now time.Time) func(storage.Row) bool {
	waiting := map[string]time.Time{}
	return func(row storage.Row) bool {
		if !row.IsStale(now) {
			return false
		}
		since, ok := waiting[row.Queue]
		if !ok && len(waiting) < maxQueues && storage.ValidName(row.Queue) {
			since = a.waitingSince(ctx, row.Queue, now)
			waiting[row.Queue] = since
		}
		return row.IsStale(since)
	}
}

// waitingSince returns when the first messages of a queue became visible, now if there are none, and zero if the queue cannot
// be read.
func (a *Account) waitingSince(ctx context.Context, name string, now time.Time) time.Time {
	front, err := a.Store.Peek(ctx, name, storage.MaxBatch)
	if ignoreMissing(err) != nil {
		return time.Time{}
	}
	since := now
	for _, m := range front {
		visible := m.InsertedAt
		if e, err := envelope.Parse(a.Rules.Content(m.Text)); err == nil && e.NextAttemptAt.After(visible) {
			visible = e.NextAttemptAt
		}
		since = earliest(since, visible)
	}
	return since
}

// FindScheduled returns the one scheduled message with the given ID, with its content. See [Account.Find].
func (a *Account) FindScheduled(ctx context.Context, s ScheduledSource, id string) (Scheduled, error) {
	s.IDs, s.Limit = []string{id}, 2
	var matches []Scheduled
	_, err := a.ListScheduled(ctx, s, false, func(m Scheduled) error {
		matches = append(matches, m)
		return nil
	})
	switch {
	case err != nil:
		return Scheduled{}, err
	case len(matches) == 0:
		return Scheduled{}, fmt.Errorf("%.80q: %w among the scheduled messages", id, ErrNothing)
	case len(matches) > 1:
		return Scheduled{}, fmt.Errorf("%.80q %w: %s on %s, and %s on %s; give the whole ID of one", id, ErrAmbiguous,
			matches[0].ID, matches[0].Queue, matches[1].ID, matches[1].Queue)
	}
	found := matches[0].Row
	row, ok, err := a.Table.Get(ctx, found.Queue, found.ID)
	switch {
	case err != nil:
		return Scheduled{}, fmt.Errorf("read the record of %s: %w", matches[0].ID, err)
	case !ok:
		return Scheduled{}, fmt.Errorf("%.80q: %w any more: it was delivered just now", id, ErrNothing)
	}
	return fromRow(row), nil
}

// ScheduledGroup counts the scheduled messages with the same key.
type ScheduledGroup struct {
	Key   string `json:"key"`
	Count int    `json:"count"`
	// DueInMinute and DueInHour count the messages that are due by then, those that are due already included, but not the
	// stale ones. Stale counts the rows whose message is gone.
	DueInMinute int `json:"dueInMinute"`
	DueInHour   int `json:"dueInHour"`
	Stale       int `json:"stale"`
	// Next and Last are the times of the first and the last next attempt.
	Next time.Time `json:"next"`
	Last time.Time `json:"last"`
	// Oldest is when the oldest call was created.
	Oldest time.Time `json:"oldest,omitzero"`
	// Statuses is the number of messages by their latest answer; 0 means none.
	Statuses map[int]int `json:"statuses"`
}

// maxStatuses limits the statuses that a group distinguishes.
const maxStatuses = 20

// ScheduledGroups counts scheduled messages by a criterion, in bounded memory as [message.Groups] does. It is not safe for
// concurrent use.
type ScheduledGroups struct {
	By  message.By
	Now time.Time

	groups map[string]*ScheduledGroup
}

// Add counts a message.
func (g *ScheduledGroups) Add(m Scheduled, stale bool) {
	key := m.Queue
	if g.By != ByQueue {
		key = g.By.Key(m.Message)
	}
	if g.groups == nil {
		g.groups = map[string]*ScheduledGroup{}
	}
	if g.groups[key] == nil && len(g.groups) >= message.MaxKeys {
		key = message.KeyOthers
	}
	group, due := g.groups[key], m.Row.NextAttemptAt
	if group == nil {
		group = &ScheduledGroup{Key: key, Next: due, Last: due, Oldest: m.Row.CreatedAt, Statuses: map[int]int{}}
		g.groups[key] = group
	}
	group.add(m, stale, g.Now)
}

func (g *ScheduledGroup) add(m Scheduled, stale bool, now time.Time) {
	due := m.Row.NextAttemptAt
	g.Count++
	if due.Before(g.Next) {
		g.Next = due
	}
	if due.After(g.Last) {
		g.Last = due
	}
	g.Oldest = earliest(g.Oldest, m.Row.CreatedAt)
	switch wait := due.Sub(now); {
	case stale:
		g.Stale++
	case wait <= time.Minute:
		g.DueInMinute++
		g.DueInHour++
	case wait <= time.Hour:
		g.DueInHour++
	}
	if g.Statuses[m.Status] > 0 || len(g.Statuses) < maxStatuses {
		g.Statuses[m.Status]++
	}
}

// Result lists the groups, the largest first, and groups of the same size by key.
func (g *ScheduledGroups) Result() []ScheduledGroup {
	rows := make([]ScheduledGroup, 0, len(g.groups))
	for _, group := range g.groups {
		rows = append(rows, *group)
	}
	slices.SortFunc(rows, func(a, b ScheduledGroup) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Key, b.Key)) })
	return rows
}
