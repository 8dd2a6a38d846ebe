// Package record keeps rows about messages in tables of the storage account. The rows of scheduled messages describe
// the messages that wait for their next attempt: they are invisible on their queue, and no operation of Queue Storage
// lists them. Rows can be missing, and the message of a row can be gone. The record never decides what happens to a
// message. A second table has each [Outcome] of the messages whose sender wants to know it.
package record

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Row is the row of a scheduled message. Partition is its queue, and ID its own. The texts come from the sender,
// so treat them as hostile.
type Row struct {
	storage.Key

	// PopReceipt updates or deletes the message until somebody receives it.
	PopReceipt string `row:"popReceipt"`
	RequestID  string `row:"requestId"`
	// Method is that of the call; rows of earlier versions have none. TargetHost is the host of the call in the form
	// of [targets.Host]. PathPattern is its path without ids and numbers.
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

// NewScheduledWriter returns a writer of the rows of scheduled messages.
func NewScheduledWriter(table storage.Table, bytes int, log zerolog.Logger) *background.Writer {
	return background.New(background.Config{
		Table: table, Rows: "scheduled messages", Bytes: bytes, Log: log,
	})
}

// Presence is what is known of the message of a row.
type Presence int

// The presences of a message.
const (
	// Expected says that the message is not due, or that it may be behind the first visible messages of its queue.
	Expected Presence = iota
	// Unseen says that the message is not at the front of its queue: it may be held or received.
	Unseen
	// Gone says that it was not seen for longer than it can be held or received.
	Gone
)

const (
	// OverdueAfter is how much longer than the front of its queue a message is due until it is missed: the host reads
	// an idle queue less than once a minute at times, and queues are not strictly first in, first out.
	OverdueAfter = 2 * time.Minute
	// LongestInvisible is how long a message that was due can at most be invisible: until the lease of a host that was
	// killed ends (10 min, renewed once after 5), and then, in hold mode, for a wait of a minute, the write and the
	// delay.
	LongestInvisible = 15*time.Minute + time.Minute + settle.Timeout + decision.LongestHold
)

// IsDue reports whether the time of the next attempt has come.
func (s Row) IsDue(now time.Time) bool { return !s.NextAttemptAt.After(now) }

// Presence returns what is known of the row's message. WaitingSince is when the first visible messages of its queue
// became visible, or now if there are none.
func (s Row) Presence(waitingSince time.Time) Presence {
	switch overdue := waitingSince.Sub(s.NextAttemptAt); {
	case overdue > LongestInvisible:
		return Gone
	case overdue > OverdueAfter:
		return Unseen
	}
	return Expected
}

// Heartbeats is the partition of the table that has the heartbeats of apps. A queue can have the same name, but its
// rows have a request id.
const Heartbeats = "heartbeat"

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
func ListScheduled(ctx context.Context, table storage.Table, q ScheduledQuery, see func(Row) error) error {
	list := rows.List[Row]
	if q.Content {
		list = rows.ListWhole[Row]
	}
	query := storage.Query{Partition: q.Queue, Before: map[string]time.Time{"nextAttemptAt": q.DueBefore}}
	return list(ctx, table, query, func(row Row) error {
		if row.Partition == Heartbeats && row.RequestID == "" {
			return nil
		}
		return see(row)
	})
}
