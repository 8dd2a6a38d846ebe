package heartbeat

import (
	"context"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Turns is the partition of [storage.AppTable] that says which times of timer functions were taken.
const Turns = "timer"

// answerTime is how long a timer function waits for the table.
const answerTime = 2 * time.Second

// Clock decides which instance of an app runs a timer function that is due, where no host does. Running twice does no
// harm; not at all would. So an instance runs it unless it knows that another does, and whoever writes to the table can
// at most make it skip every other time. Create it with [NewClock].
type Clock struct {
	app   string
	table storage.Table // nil: none

	mu sync.Mutex
	// ran is when this instance last ran a timer function, or began.
	ran   map[string]time.Time
	began time.Time
}

// NewClock returns the clock of an instance of an app.
func NewClock(app string, table storage.Table) *Clock {
	return &Clock{app: app, table: table, ran: map[string]time.Time{}, began: time.Now()}
}

// turn is the row of a timer function.
type turn struct {
	storage.Key

	// Due is the latest time that was taken.
	Due time.Time `row:"due"`
}

// Takes reports whether this instance runs a timer function that is due, and again next.
func (c *Clock) Takes(ctx context.Context, timer string, due, next time.Time) bool {
	isFirst := c.isFirst(ctx, timer, due, next)
	c.mu.Lock()
	defer c.mu.Unlock()
	last, hasRun := c.ran[timer]
	if !hasRun {
		last = c.began
	}
	takes := isFirst || due.Sub(last) >= 2*next.Sub(due)
	if takes {
		c.ran[timer] = due
	}
	return takes
}

// isFirst takes a time for this instance, and reports whether no other has. Without an answer, it is.
func (c *Clock) isFirst(ctx context.Context, timer string, due, next time.Time) bool {
	if c.table == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	row, _, err := rows.Get[turn](ctx, c.table, Turns, timer+","+rows.KeyOf(c.app))
	if err != nil {
		return true
	}
	if !row.Due.Before(due) && !row.Due.After(next) { // no instance takes a later time
		return false
	}
	row.Key = storage.Key{Partition: Turns, ID: timer + "," + rows.KeyOf(c.app), Version: row.Version}
	row.Due = due
	version, err := rows.Replace(ctx, c.table, row)
	return err != nil || version != ""
}
