package storage

import (
	"bytes"
	"context"
	"strings"
	"time"
	"unicode"
)

// The tables of an account.
const (
	// ScheduledTable has the record of scheduled messages.
	ScheduledTable = "asynccallerscheduled"
	// RunTable has the outcomes of messages of runs, and the runs.
	RunTable = "asynccallerrun"
	// AppTable has what the instances of an app know together: the targets that fail, and those that an operator has
	// paused.
	AppTable = "asynccallerapp"
)

// Row describes a scheduled message. Its texts come from the sender, so treat them as hostile.
type Row struct {
	// Queue and ID identify the message, and the row.
	Queue, ID string
	// PopReceipt updates or deletes the message until somebody receives it.
	PopReceipt string
	RequestID  string
	// TargetHost is the host of the call, with a port if the URL has one. Route is its path without ids and numbers.
	TargetHost, Route string
	// Reason is why the message was rescheduled. Status is the target's latest answer; 0 means none.
	Reason string
	Status int
	// Attempts is the number of calls made.
	Attempts                           int
	CreatedAt, NextAttemptAt, Deadline time.Time
	Organization, Environment          string
	// Repeated says that the write of the message got no answer at first and was repeated. There may be a second
	// message of the call, which has no row.
	Repeated bool
	// Called, Action and At are those of an [Outcome]. Writes and Reads are those of a heartbeat: the further table
	// that its handler writes, and what it reads in AppTable.
	Called                bool
	Action, Writes, Reads string
	At                    time.Time
	// Cause says in a few words why the target's latest call failed, and Answer is the beginning of its latest answer,
	// with its secrets masked.
	Cause, Answer string
	// App, Since and OpenAt are those of a target that fails: the app that calls it, when it began to fail, and when
	// the circuit breaker of an instance was last open.
	App           string
	Since, OpenAt time.Time
	// By is who has paused a target, and Until when the pause ends; zero means that it has no end. Reason and Since are
	// those of the pause.
	By    string
	Until time.Time
	// Content is the message's decoded content, at most 64 KiB. It is nil if it was not asked for.
	Content []byte
	// Version changes with each write of the row, at WrittenAt. Storage sets both.
	Version   string
	WrittenAt time.Time
}

// MaxPropertyBytes is the limit of Table Storage on a text or a content in a row
// (https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model).
const MaxPropertyBytes = 64 << 10

// MaxRowText is the length of the longest text of a row in bytes. What is longer is cut off.
const MaxRowText = 1 << 10

// RowText returns a text as a row has it: at most [MaxRowText] bytes, without the characters that tables refuse. It
// shares no memory with the text, which may be a small part of a large message.
func RowText(text string) string {
	return strings.Clone(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || outsideXML(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, text[:min(len(text), MaxRowText)]))
}

// texts returns the texts of a row, apart from its key and version.
func (r *Row) texts() []*string {
	return []*string{
		&r.PopReceipt, &r.RequestID, &r.TargetHost, &r.Route, &r.Reason, &r.Organization, &r.Environment, &r.Action,
		&r.Writes, &r.Reads, &r.Cause, &r.Answer, &r.App, &r.By,
	}
}

// Bounded returns the row with each of its texts as [RowText] returns it. It shares no memory with the row.
func (r Row) Bounded() Row {
	for _, text := range r.texts() {
		*text = RowText(*text)
	}
	r.Queue, r.ID, r.Version = strings.Clone(r.Queue), strings.Clone(r.ID), strings.Clone(r.Version)
	r.Content = bytes.Clone(r.Content)
	return r
}

// TextBytes returns the length of all texts of the row, and of its content.
func (r Row) TextBytes() int {
	n := len(r.Queue) + len(r.ID) + len(r.Version) + len(r.Content)
	for _, text := range r.texts() {
		n += len(*text)
	}
	return n
}

// StaleAfter is how much longer than the front of its queue a message is due until it counts as gone: the host reads an
// idle queue less than once a minute at times, and queues are not strictly first in, first out.
const StaleAfter = 2 * time.Minute

// IsDue reports whether the time of the next attempt has come.
func (r Row) IsDue(now time.Time) bool { return !r.NextAttemptAt.After(now) }

// IsStale reports whether the row's message is gone: it was due long before the first visible messages of its queue
// became visible, or long before now if there are none.
func (r Row) IsStale(waitingSince time.Time) bool {
	return waitingSince.Sub(r.NextAttemptAt) > StaleAfter
}

// Key names a row of a queue. Unless Version is empty, it means only that version of the row.
type Key struct{ ID, Version string }

// Query selects rows.
type Query struct {
	// Queue limits them to one queue, or to the outcomes of one run; empty means all.
	Queue string
	// IDPrefix, unless empty, limits them to rows whose ID begins with it. It consists of letters, digits and the
	// characters . , - _ and =.
	IDPrefix string
	// Content says whether the rows have their content.
	Content bool
	// DueBefore, unless zero, limits them to messages that are due earlier.
	DueBefore time.Time
	// WrittenAfter and WrittenBefore, unless zero, limit them to rows that were written later or earlier.
	WrittenAfter, WrittenBefore time.Time
}

// Heartbeats is the Queue of the rows that say when a timer function last ran: the ID is its name, and WrittenAt the
// time. A queue can have the same name, but its rows have a request id.
const Heartbeats = "heartbeat"

// IsHeartbeat reports whether the row is that of a timer function.
func (r Row) IsHeartbeat() bool { return r.Queue == Heartbeats && r.RequestID == "" }

// Table is the record of an account. Implementations are safe for concurrent use. A missing table is empty; Put
// creates it. Errors wrap those of this package: [ErrDenied] means that the credential has no permission to use
// tables. They never contain a connection string, a signature or a message's content. An operation is made once: the
// caller retries, and limits its time by the context.
type Table interface {
	// Put writes rows of one queue, at most 100 with 1 MiB of content. A row replaces an earlier one of the same
	// message. If storage refuses a row, none is written, and the error is an [ErrRefused].
	Put(ctx context.Context, queue string, rows []Row) error
	// Replace writes one row if it still has row.Version or, if that is empty, if there is no such row. It returns its
	// new version, which is empty if another client was first.
	Replace(ctx context.Context, queue string, row Row) (version string, err error)
	// Delete removes at most 100 rows of one queue. One that is missing, or has another version, is left alone and is
	// no error.
	Delete(ctx context.Context, queue string, keys []Key) error
	// Get returns one row with its content. It reports false if there is none.
	Get(ctx context.Context, queue, id string) (row Row, found bool, err error)
	// List shows the selected rows in the order of queue and ID, and keeps at most a page of them in memory. It stops
	// at the first error of see, and returns it.
	List(ctx context.Context, q Query, see func(Row) error) error
}

// Tables are the tables of an account. Implementations are safe for concurrent use; errors are like those of a [Table].
type Tables interface {
	// Table returns a table. It sends no request.
	Table(name string) Table
	// TableNames returns the names of all tables that begin with a prefix, in their order.
	TableNames(ctx context.Context, prefix string) ([]string, error)
	// Drop deletes a table with all its rows. A missing one is no error.
	Drop(ctx context.Context, name string) error
}
