package message

import (
	"slices"
	"time"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/decision"
)

// ScheduledGroup counts the scheduled messages with the same key.
type ScheduledGroup struct {
	// State is as in [Row].
	State string `json:"state,omitempty"`
	Key   string `json:"key"`
	Count int    `json:"count"`
	// DueInMinute and DueInHour count the messages that are due by then, those that are due already included, but not
	// the stale ones. Stale counts the rows whose message is gone.
	DueInMinute int `json:"dueInMinute"`
	DueInHour   int `json:"dueInHour"`
	Stale       int `json:"stale"`
	// Next and Last are the times of the first and the last next attempt. Cause says why the first message waits.
	Next  time.Time `json:"next"`
	Last  time.Time `json:"last"`
	Cause string    `json:"cause,omitempty"`
	// FailedAt is when its call failed, about; zero if it waits for another reason.
	FailedAt time.Time `json:"-"`
	// Oldest is when the oldest call was created.
	Oldest time.Time `json:"oldest"`
	// OldestLate is when the oldest call was created that does not wait for its notBefore; zero if all do.
	OldestLate time.Time `json:"-"`
	// Statuses is the number of messages by their latest answer; 0 means none.
	Statuses map[int]int `json:"statuses"`
}

// Waiting returns the number of messages that are not stale.
func (g ScheduledGroup) Waiting() int { return g.Count - g.Stale }

// maxStatuses limits the statuses that a group distinguishes.
const maxStatuses = 20

// ScheduledGroups counts scheduled messages by a criterion, in bounded memory as [message.Groups] does. It is not safe
// for concurrent use.
type ScheduledGroups struct {
	By  By
	Now time.Time

	tally tally[ScheduledGroup]
}

// Add counts a message.
func (g *ScheduledGroups) Add(m Recorded, stale bool) {
	due := m.Row.NextAttemptAt
	group := g.tally.row(g.By.Key(m.Message), func(key string) *ScheduledGroup {
		return &ScheduledGroup{
			Key: key, Next: due, Last: due, Cause: ByCause.Key(m.Message), FailedAt: m.failedAt(),
			Oldest: m.Row.CreatedAt, Statuses: map[int]int{},
		}
	})
	group.add(m, stale, g.Now)
}

// failedAt returns when the row was written, if the message waits because a call has failed; otherwise zero.
func (m Recorded) failedAt() time.Time {
	notFailed := []decision.Reason{decision.NotDue, decision.Paused, decision.Busy, decision.Auth, decision.BadSetting}
	if slices.Contains(notFailed, decision.Reason(m.Row.Reason)) {
		return time.Time{}
	}
	return m.Row.WrittenAt
}

func (g *ScheduledGroup) add(m Recorded, stale bool, now time.Time) {
	due := m.Row.NextAttemptAt
	g.Count++
	if due.Before(g.Next) {
		g.Next, g.Cause, g.FailedAt = due, ByCause.Key(m.Message), m.failedAt()
	}
	if due.After(g.Last) {
		g.Last = due
	}
	g.Oldest = bounds.Earliest(g.Oldest, m.Row.CreatedAt)
	isForLater := m.Row.Reason == string(decision.NotDue) && m.Row.Attempts == 0
	if !isForLater {
		g.OldestLate = bounds.Earliest(g.OldestLate, m.Row.CreatedAt)
	}
	wait := due.Sub(now)
	switch {
	case stale:
		g.Stale++
	case wait <= time.Minute:
		g.DueInMinute++
		g.DueInHour++
	case wait <= time.Hour:
		g.DueInHour++
	}
	status := int(m.Status)
	if g.Statuses[status] > 0 || len(g.Statuses) < maxStatuses {
		g.Statuses[status]++
	}
}

// Arguments returns [By.Arguments] for the groups.
func (g *ScheduledGroups) Arguments() func(key string) string { return g.tally.arguments(g.By) }

// Result lists the groups, the largest first, and groups of the same size by key.
func (g *ScheduledGroups) Result() []ScheduledGroup {
	return g.tally.result(func(r ScheduledGroup) int { return r.Count })
}
