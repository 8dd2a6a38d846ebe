package heartbeat_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// workers are the turns of three workers of an app that start now.
func (l life) workers() (all [3]*heartbeat.Turns) {
	for i := range all {
		all[i] = heartbeat.NewTurns(l.table, "shop/ä")
	}
	return all
}

// takes lets all workers reach the next due time of a timer at once, and returns how many of them run it.
func takes(l life, timer string, interval time.Duration, workers ...*heartbeat.Turns) (n int) {
	l.Helper()
	due := time.Now().Truncate(interval).Add(interval)
	<-time.After(time.Until(due))
	answers := make(chan bool)
	for _, w := range workers {
		go func() { answers <- w.Take(l.Context(), timer, due, due.Add(interval)) }()
	}
	for range workers {
		if <-answers {
			n++
		}
	}
	return n
}

// TestTurns: of three workers, one runs the monitor each minute. Another app has its own turns.
func TestTurns(t *testing.T) {
	inAccount(t, func(l life) {
		workers := l.workers()
		other := heartbeat.NewTurns(l.table, "billing")
		for minute := range 59 {
			if n := takes(l, functionapp.MonitorTimer, time.Minute, workers[:]...); n != 1 {
				l.Fatalf("minute %d: %d workers run the monitor", minute, n)
			}
			due := time.Now()
			if !other.Take(l.Context(), functionapp.MonitorTimer, due, due.Add(time.Minute)) {
				l.Fatal("another app has no turn")
			}
		}
		due := time.Now()
		if !workers[0].Take(l.Context(), functionapp.KeeperTimer, due, due.Add(time.Hour)) {
			l.Error("the monitor takes the turn of the keeper")
		}
	})
}

// TestTurnsAreBounded: in a day, workers run the monitor little more often than one does.
func TestTurnsAreBounded(t *testing.T) {
	inAccount(t, func(l life) {
		const minutes = 24 * 60
		workers, n := l.workers(), 0
		for range minutes {
			n += takes(l, functionapp.MonitorTimer, time.Minute, workers[:]...)
		}
		if n < minutes || n > minutes+2*24 {
			l.Errorf("%d runs in %d minutes", n, minutes)
		}
	})
}

// away is a table that gives no answer to some operations.
type away struct {
	*memory.Table
	noGet, noReplace bool
}

func (a away) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	if a.noGet {
		<-ctx.Done()
		return storage.Entity{}, false, ctx.Err()
	}
	return a.Table.Get(ctx, partition, id)
}

func (a away) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if a.noReplace {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return a.Table.Replace(ctx, entity)
}

// TestTurnsWithoutTable: without an answer of the table each worker runs the timer, within two seconds.
func TestTurnsWithoutTable(t *testing.T) {
	failing := &memory.Table{}
	failing.Fail(errors.New("no answer"))
	for name, test := range map[string]struct {
		table storage.Table
		took  time.Duration
	}{
		"none":          {nil, 0},
		"fails":         {failing, 0},
		"hangs":         {away{&memory.Table{}, true, false}, 2 * time.Second},
		"hangs_replace": {away{&memory.Table{}, false, true}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inAccount(t, func(l life) {
				var all []*heartbeat.Turns
				for range 3 {
					all = append(all, heartbeat.NewTurns(test.table, "shop"))
				}
				for range 3 {
					due := time.Now().Truncate(time.Hour).Add(time.Hour)
					n := takes(l, functionapp.KeeperTimer, time.Hour, all...)
					if took := time.Since(due); n != 3 || took != test.took {
						l.Errorf("%d of 3 run after %v, want %v", n, took, test.took)
					}
				}
			})
		})
	}
}

// write writes the row of a timer as somebody else may.
func (l life) write(id string, values map[string]any) {
	l.Helper()
	key := storage.Key{Partition: heartbeat.TurnPartition, ID: id}
	if err := l.table.Put(l.Context(), []storage.Entity{{Key: key, Values: values}}); err != nil {
		l.Fatal(err)
	}
}

// TestHostileTurns: no row stops a timer, and one that somebody else writes before each due time does so for less than
// two intervals after a run.
func TestHostileTurns(t *testing.T) {
	const id = functionapp.KeeperTimer + ",shop"
	for name, values := range map[string]map[string]any{
		"far_future": {"due": time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), "app": "shop"},
		"far_past":   {"due": time.Date(1602, 1, 1, 0, 0, 0, 0, time.UTC), "app": "shop"},
		"other_type": {"due": "soon", "app": int32(7)},
		"empty":      {},
		"large":      {"due": strings.Repeat("x", 30_000), "extra": strings.Repeat("x", 30_000)},
	} {
		t.Run(name, func(t *testing.T) {
			inAccount(t, func(l life) {
				turns := heartbeat.NewTurns(l.table, "shop")
				l.write(id, values)
				if n := takes(l, functionapp.KeeperTimer, time.Hour, turns); n != 1 {
					l.Error("the row stops the timer")
				}
			})
		})
	}
	t.Run("each_due_time", func(t *testing.T) {
		inAccount(t, func(l life) {
			turns := heartbeat.NewTurns(l.table, "shop")
			var ran []int
			for hour := range 8 {
				l.write(id, map[string]any{"due": time.Now().Truncate(time.Hour).Add(time.Hour), "app": "shop"})
				if takes(l, functionapp.KeeperTimer, time.Hour, turns) == 1 {
					ran = append(ran, hour+1)
				}
			}
			if got := fmt.Sprint(ran); got != "[2 4 6 8]" {
				l.Errorf("the keeper runs in the hours %s", got)
			}
		})
	})
}

// TestTurnsAreSwept: the rows of an app that does not run are removed as its other rows are.
func TestTurnsAreSwept(t *testing.T) {
	inAccount(t, func(l life) {
		turns := heartbeat.NewTurns(l.table, "shop")
		takes(l, functionapp.KeeperTimer, time.Hour, turns)
		left := func() (n int) {
			err := record.SweepApps(l.Context(), l.table, heartbeat.TurnPartition)
			if err == nil {
				err = l.table.List(l.Context(), storage.Query{}, func(storage.Entity) error { n++; return nil })
			}
			if err != nil {
				l.Fatal(err)
			}
			return n
		}
		if n := left(); n != 1 {
			l.Errorf("%d rows after a run", n)
		}
		<-time.After(record.AppRetention + time.Second)
		if n := left(); n != 0 {
			l.Errorf("%d rows after eight days", n)
		}
	})
}
