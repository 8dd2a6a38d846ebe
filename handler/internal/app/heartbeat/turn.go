package heartbeat

import (
	"context"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// TurnsPartition is the partition of [storage.AppTable] that says which times of timer functions were taken.
const TurnsPartition = "timer"

// answerTime is how long a timer function waits for the table.
const answerTime = 2 * time.Second

// Turns decides which instance of an app runs a timer function that is due, where no host does. Running twice does no
// harm; not at all would. So an instance runs it unless it knows that another does, and whoever writes to the table can
// at most make it skip every other time. Create it with [NewTurns].
type Turns struct {
	app   string
	table storage.Table // nil: none

	mu sync.Mutex
	// ran is when this instance last ran a timer function, or began.
	ran   map[string]time.Time
	began time.Time
}

// NewTurns returns the turns of an instance of an app.
func NewTurns(app string, table storage.Table) *Turns {
	return &Turns{app: app, table: table, ran: map[string]time.Time{}, began: time.Now()}
}

// turn is the row of a timer function.
type turn struct {
	storage.Key

	// Due is the latest time that was taken.
	Due time.Time `row:"due"`
}

// Take reports whether this instance runs a timer function that is due, and again next.
func (t *Turns) Take(ctx context.Context, timer string, due, next time.Time) bool {
	isFirst := t.isFirst(ctx, timer, due, next)
	t.mu.Lock()
	defer t.mu.Unlock()
	last, hasRun := t.ran[timer]
	if !hasRun {
		last = t.began
	}
	takes := isFirst || due.Sub(last) >= 2*next.Sub(due)
	if takes {
		t.ran[timer] = due
	}
	return takes
}

// isFirst takes a time for this instance, and reports whether no other has. Without an answer, it is.
func (t *Turns) isFirst(ctx context.Context, timer string, due, next time.Time) bool {
	if t.table == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	row, _, err := rows.Get[turn](ctx, t.table, TurnsPartition, timer+","+rows.KeyOf(t.app))
	if err != nil {
		return true
	}
	if !row.Due.Before(due) && !row.Due.After(next) { // no instance takes a later time
		return false
	}
	row.Key = storage.Key{Partition: TurnsPartition, ID: timer + "," + rows.KeyOf(t.app), Version: row.Version}
	row.Due = due
	version, err := rows.Replace(ctx, t.table, row)
	return err != nil || version != ""
}
