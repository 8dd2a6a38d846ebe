package storage

import (
	"context"
	"time"
)

// The tables of an account.
const (
	// ScheduledTable has the record of scheduled messages, and the heartbeats of apps.
	ScheduledTable = "asynccallerscheduled"
	// RunTable has the outcomes of messages of runs, the runs, and which undo of a run has begun.
	RunTable = "asynccallerrun"
	// AppTable has what the instances of an app share: the lines of limits, and what an operator has set for targets.
	AppTable = "asynccallerapp"
	// SightTable has what each instance of an app knows of targets.
	SightTable = "asynccallersight"
)

// Key identifies an entity of a table, and a version of it.
type Key struct {
	// Partition and ID are its PartitionKey and RowKey, without the characters / \ # ? and '.
	Partition, ID string
	// Version changes with each write, at WrittenAt. Storage sets both. To delete, an empty Version means any.
	Version   string
	WrittenAt time.Time
}

// Entity is what a table stores: named values. Anyone who can write to the table may have written it, so treat it as
// hostile. Package rows converts structs to entities that storage takes, and back.
type Entity struct {
	Key
	// Values are a string, int32, bool, time.Time or []byte each. A table has no values of other types.
	Values map[string]any
}

// MaxPropertyBytes is the limit of Table Storage on a text or bytes in an entity
// (https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model).
const MaxPropertyBytes = 64 << 10

// Query selects entities.
type Query struct {
	// Partition limits them to one partition; empty means all.
	Partition string
	// IDPrefix, unless empty, limits them to those whose ID begins with it. It consists of letters, digits and the
	// characters . , - _ and =.
	IDPrefix string
	// Select names the values that the entities have in the listing; nil means all. One that is missing can be a 0.
	Select []string
	// Before limits them to those that have times of these names, and earlier ones than these. A zero one is no limit.
	Before map[string]time.Time
	// WrittenAfter and WrittenBefore, unless zero, limit them to those that were written later or earlier.
	WrittenAfter, WrittenBefore time.Time
}

// Table is a table of an account. Implementations are safe for concurrent use. A missing table is empty; Put and
// Replace create it. Errors wrap those of this package: [ErrDenied] means that the credential has no permission to use
// tables. They never contain a connection string, a signature or a value of an entity. An operation is made once: the
// caller retries, and limits its time by the context.
type Table interface {
	// Now returns the time by the clock of the table, which is known from its first answer on.
	Now() time.Time
	// Put writes entities of one partition, at most 100 with 1 MiB of values. Each replaces an earlier one of the same
	// ID, whatever its version. If storage refuses one, none is written, and the error is an [ErrRefused].
	Put(ctx context.Context, entities []Entity) error
	// Insert is like Put, but writes no entity of an ID that there is already.
	Insert(ctx context.Context, entities []Entity) error
	// Replace writes one entity if it still has the Version or, if that is empty, if there is no such entity. It
	// returns its new version, which is empty if another client was first.
	Replace(ctx context.Context, entity Entity) (version string, err error)
	// Delete removes at most 100 entities of one partition. One that is missing, or has another version, is left alone
	// and is no error.
	Delete(ctx context.Context, keys []Key) error
	// Get returns one entity. It reports false if there is none.
	Get(ctx context.Context, partition, id string) (entity Entity, found bool, err error)
	// List shows the selected entities in the order of partition and ID, and keeps at most a page of them in memory. It
	// stops at the first error of see, and returns it.
	List(ctx context.Context, q Query, see func(Entity) error) error
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
