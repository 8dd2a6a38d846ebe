package record

import (
	"context"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Scheduled is the row of a scheduled message. Partition is its queue, and ID its own. The texts come from the sender,
// so treat them as hostile.
type Scheduled struct {
	storage.Key

	// PopReceipt updates or deletes the message until somebody receives it.
	PopReceipt string `row:"popReceipt"`
	RequestID  string `row:"requestId"`
	// Method is that of the call; rows of earlier versions have none. TargetHost is the host of the call, with a port
	// if the URL has one. PathPattern is its path without ids and numbers.
	Method      string `row:"method"`
	TargetHost  string `row:"targetHost"`
	PathPattern string `row:"route"`
	// Reason is why the message was rescheduled. Status is the target's latest answer; 0 means none. Cause says in a
	// few words why the latest call failed, and Answer is the beginning of the answer, with its secrets masked.
	Reason string `row:"reason"`
	Status int    `row:"status"`
	Cause  string `row:"cause"`
	Answer string `row:"answer"`
	// Attempts is the number of calls made.
	Attempts      int       `row:"attempts"`
	CreatedAt     time.Time `row:"createdAt"`
	NextAttemptAt time.Time `row:"nextAttemptAt"`
	Deadline      time.Time `row:"deadline"`
	Organization  string    `row:"organization"`
	Environment   string    `row:"environment"`
	// Repeated says that the write of the message got no answer at first and was repeated. There may be a second
	// message of the call, which has no row.
	Repeated bool `row:"repeated"`
	// Content is the message's decoded content. It is nil if it was not asked for.
	Content []byte `row:"content"`
}

// StaleAfter is how much longer than the front of its queue a message is due until it counts as gone: the host reads an
// idle queue less than once a minute at times, and queues are not strictly first in, first out.
const StaleAfter = 2 * time.Minute

// IsDue reports whether the time of the next attempt has come.
func (s Scheduled) IsDue(now time.Time) bool { return !s.NextAttemptAt.After(now) }

// IsStale reports whether the row's message is gone: it was due long before the first visible messages of its queue
// became visible, or long before now if there are none.
func (s Scheduled) IsStale(waitingSince time.Time) bool {
	return waitingSince.Sub(s.NextAttemptAt) > StaleAfter
}

// ScheduledQuery selects rows of scheduled messages.
type ScheduledQuery struct {
	// Queue limits them to one queue; empty means all.
	Queue string
	// DueBefore, unless zero, limits them to messages that are due earlier.
	DueBefore time.Time
	// Content says whether the rows have their content.
	Content bool
}

// ListScheduled shows the selected rows of scheduled messages in the order of queue and ID, and keeps at most a page of
// them in memory. It stops at the first error of see, and returns it.
func ListScheduled(ctx context.Context, table storage.Table, q ScheduledQuery, see func(Scheduled) error) error {
	list := rows.List[Scheduled]
	if q.Content {
		list = rows.ListWhole[Scheduled]
	}
	query := storage.Query{Partition: q.Queue, Before: map[string]time.Time{"nextAttemptAt": q.DueBefore}}
	return list(ctx, table, query, func(row Scheduled) error {
		if row.Partition == Heartbeats && row.RequestID == "" {
			return nil
		}
		return see(row)
	})
}
