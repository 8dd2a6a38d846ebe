package heartbeat

import (
	"context"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// TurnPartition is the PartitionKey of the rows of turns, in the table of what the instances of an app share.
const TurnPartition = "timer"

const (
	// turnTimeout is how long the decision waits for the table.
	turnTimeout = 2 * time.Second
	// minPatience is the shortest time after which an instance runs a timer function although others took all turns.
	// Without it, each of three workers would run AC-monitor every other minute.
	minPatience = time.Hour
)

// turn is the row of a timer function of an app. The instance that replaced it first runs the function at the due time.
type turn struct {
	storage.Key

	App string    `row:"app"`
	Due time.Time `row:"due"`
}

// Turns decide which of the workers of an app runs a timer function. It is safe for concurrent use. Create it with
// [NewTurns].
type Turns struct {
	table storage.Table
	app   string
	start time.Time

	mu  sync.Mutex
	ran map[string]time.Time // the due times at which this process ran the timer functions
}

// NewTurns returns the turns of a process that starts now, of the named app. A nil table means that there is none.
func NewTurns(table storage.Table, app string) *Turns {
	return &Turns{table: table, app: app, start: time.Now(), ran: map[string]time.Time{}}
}

// Take reports whether this process runs a timer function at the time when it is due: it was first to replace the row
// of the function, or the table gives no answer, or this process has not run it for two intervals, and an hour, so that
// nobody who can write to the table stops the function for longer. The interval ends at next. Two processes that run a
// function at the same time do no harm.
func (t *Turns) Take(ctx context.Context, timer string, due, next time.Time) bool {
	isFirst := t.table == nil || t.isFirst(ctx, timer, due)
	t.mu.Lock()
	defer t.mu.Unlock()
	last, hasRun := t.ran[timer]
	if !hasRun {
		last = t.start
	}
	if !isFirst && due.Sub(last) < max(2*next.Sub(due), minPatience) {
		return false
	}
	t.ran[timer] = due
	return true
}

// isFirst reports whether no other process has replaced the row of the due time, as far as the table answers. A row of
// any other time, whoever wrote it, is replaced.
func (t *Turns) isFirst(ctx context.Context, timer string, due time.Time) bool {
	limited, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	id := timer + "," + rows.KeyOf(t.app)
	row, _, err := rows.Get[turn](limited, t.table, TurnPartition, id)
	switch {
	case err != nil:
		return true
	case row.Due.Equal(due):
		return false
	}
	row.Key = storage.Key{Partition: TurnPartition, ID: id, Version: row.Version}
	row.App, row.Due = t.app, due
	version, err := rows.Replace(limited, t.table, row)
	return err != nil || version != ""
}
