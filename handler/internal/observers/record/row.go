// Package record keeps rows about messages in tables of the storage account. A [Row] describes a call that waits: for
// its next attempt, when its message is invisible on its queue, or as a dead letter for a person, who can see 32
// messages of a queue without receiving them. Rows can be missing, and the message of a row can be gone. The record
// never decides what happens to a message. A second table has each [Outcome] of the messages of runs.
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

// Row is the row of a call that waits. Partition is the queue of its message, and ID that of the message. The texts
// come from the sender, so treat them as hostile.
type Row struct {
	storage.Key

	// PopReceipt updates or deletes a scheduled message until somebody receives it. Dead letters have none.
	PopReceipt string `row:"popReceipt"`
	RequestID  string `row:"requestId"`
	// Method is that of the call; rows of earlier versions have none. TargetHost is the host of the call in the form
	// of [targets.Host], and MovedTo the one that is called instead; empty if it has not moved. PathPattern is its path
	// without ids and numbers.
	Method      string `row:"method"`
	TargetHost  string `row:"targetHost"`
	MovedTo     string `row:"movedTo"`
	PathPattern string `row:"route"`
	// Reason is why the message was rescheduled or dead-lettered. Status is the target's latest answer; 0 means none.
	// Cause says in a few words why the latest call failed, or is the detail of a dead letter. Answer is the beginning
	// of the answer, with its secrets masked; of a dead letter its [AnswerKey].
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

	// The other members are those of dead letters. Since is when the handler gave up, InsertedAt when the message was
	// written to its queue, and ExpiresAt when storage deletes it; zero means never. Main is the queue that it
	// names, Format that of the envelope, if it is one, and Error the short error of the latest attempt.
	Since      time.Time `row:"since"`
	InsertedAt time.Time `row:"insertedAt"`
	ExpiresAt  time.Time `row:"expiresAt"`
	Main       string    `row:"main"`
	Format     string    `row:"format"`
	Error      string    `row:"error"`
	// DeletedAt is when the message was deleted. Such a row is a mark, which has nothing else: it keeps a row that is
	// written late from appearing.
	DeletedAt time.Time `row:"deletedAt"`
}

// IsDeadLetter reports whether the row is that of a message that waits for a person.
func (r Row) IsDeadLetter() bool { return !r.Since.IsZero() && !r.IsMark() }

// IsMark reports whether the message of the row was deleted.
func (r Row) IsMark() bool { return !r.DeletedAt.IsZero() }

// Mark returns the mark that replaces the row of a dead letter that was deleted.
func Mark(queue, id string) Row {
	return Row{Key: storage.Key{Partition: queue, ID: id}, DeletedAt: storage.WallTime().UTC()}
}

// Reading is the row about the comparison of a poison queue with its rows, in the partition of the queue.
type Reading struct {
	storage.Key

	// ReadAt is when all visible messages were last read; zero if they never were: then messages that are older than
	// the record may have no rows.
	ReadAt time.Time `row:"readAt"`
	// TriedAt is when the latest reading began. Rows and Messages are their numbers after it.
	TriedAt  time.Time `row:"triedAt"`
	Rows     int       `row:"rows"`
	Messages int       `row:"messages"`
	// Differs says that the numbers differed at the latest comparison.
	Differs bool `row:"differs"`
}

const (
	// readPause is the shortest time between two readings of a queue, and samePause that while its numbers stay the
	// same: storage may say for long that a queue has more messages than it has, and a reading receives them.
	readPause = 10 * time.Minute
	samePause = time.Hour
)

// MustRead reports whether a queue must be read as a whole, so that its rows can be put right. Rows and messages are
// their numbers now.
func (r Reading) MustRead(rows, messages int, now time.Time) bool {
	pause, isSame := now.Sub(r.TriedAt), rows == r.Rows && messages == r.Messages
	wasRead := !r.ReadAt.IsZero()
	mustRead := !wasRead || rows != messages && r.Differs
	return mustRead && pause >= readPause && (!wasRead || !isSame || pause >= samePause)
}

// ReadingID is the ID of the [Reading] of a queue. No message has it.
const ReadingID = "reading"

// NewWriter returns a writer of the rows of calls that wait.
func NewWriter(table storage.Table, bytes int, log zerolog.Logger) *background.Writer {
	return background.New(background.Config{
		Table: table, Rows: "calls that wait", Bytes: bytes, Log: log,
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
func (r Row) IsDue(now time.Time) bool { return !r.NextAttemptAt.After(now) }

// Presence returns what is known of the row's message. WaitingSince is when the first visible messages of its queue
// became visible, or now if there are none.
func (r Row) Presence(waitingSince time.Time) Presence {
	switch overdue := waitingSince.Sub(r.NextAttemptAt); {
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

// Query selects rows of calls that wait.
type Query struct {
	// Queue limits them to one queue; empty means all.
	Queue string
	// DueBefore, unless zero, limits them to scheduled messages that are due earlier.
	DueBefore time.Time
	// Content says whether the rows have their content.
	Content bool
}

// List shows the selected rows in the order of queue and ID, without marks, and keeps at most a page of them in memory.
// It stops at the first error of see, and returns it.
func List(ctx context.Context, table storage.Table, q Query, see func(Row) error) error {
	list := rows.List[Row]
	if q.Content {
		list = rows.ListWhole[Row]
	}
	query := storage.Query{Partition: q.Queue, Before: map[string]time.Time{"nextAttemptAt": q.DueBefore}}
	return list(ctx, table, query, func(row Row) error {
		isHeartbeat := row.Partition == Heartbeats && row.RequestID == ""
		if isHeartbeat || row.IsMark() || row.ID == ReadingID {
			return nil
		}
		return see(row)
	})
}

// ListScheduled is like [List] for scheduled messages.
func ListScheduled(ctx context.Context, table storage.Table, q Query, see func(Row) error) error {
	return List(ctx, table, q, func(row Row) error {
		if row.IsDeadLetter() {
			return nil
		}
		return see(row)
	})
}

// ListDeadLetters is like [List] for dead letters.
func ListDeadLetters(ctx context.Context, table storage.Table, q Query, see func(Row) error) error {
	return List(ctx, table, q, func(row Row) error {
		if !row.IsDeadLetter() {
			return nil
		}
		return see(row)
	})
}
