package sight_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// counted counts the rows that are read.
type counted struct {
	memory.Table
	rows int
}

func (c *counted) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	return c.Table.List(ctx, q, func(e storage.Entity) error {
		c.rows++
		return see(e)
	})
}

// TestReader: a reader that reads every ten seconds reads each row about once, and always has the last hour.
func TestReader(t *testing.T) {
	const perMinute = 6
	synctest.Test(t, func(t *testing.T) {
		var table counted
		a := start(t, &table, "a")
		reader := sight.NewReader(&table)
		for minute := range 70 {
			for range perMinute {
				a.deliver("one.example")
				got := read(t, reader, "one.example")
				hour, last := got.LastHour.Delivered, got.Last5Minutes.Delivered
				if hour != perMinute*min(minute, 60) && hour != perMinute*min(minute-1, 60) ||
					last != perMinute*min(minute, 5) && last != perMinute*min(minute-1, 5) {
					t.Fatalf("in minute %d: %d and %d", minute, hour, last)
				}
				<-time.After(time.Minute / perMinute)
			}
		}
		a.stop()
		if table.rows > 70*4 {
			t.Errorf("%d rows were read", table.rows)
		}
	})
}
