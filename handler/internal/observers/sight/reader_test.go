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

// TestReader: a reader that reads every two seconds reads each row about once, and always has the last hour.
func TestReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table counted
		a := start(t, &table, "a")
		reader := sight.NewReader(&table)
		calls := 0
		for minute := range 130 {
			for range 30 {
				a.deliver("one.example")
				calls++
				got := read(t, reader, "one.example")
				hour, last := got.LastHour.Delivered, got.Last5Minutes.Delivered
				if hour != 30*min(minute, 60) && hour != 30*min(minute-1, 60) ||
					last != 30*min(minute, 5) && last != 30*min(minute-1, 5) {
					t.Fatalf("in minute %d: %d and %d", minute, hour, last)
				}
				<-time.After(2 * time.Second)
			}
		}
		a.stop()
		if table.rows > 130*4 {
			t.Errorf("%d rows were read", table.rows)
		}
	})
}
