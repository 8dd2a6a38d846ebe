package heartbeat_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// away is a table that gives no answer, or an error.
type away struct {
	storage.Table
	err error
}

func (a away) Get(ctx context.Context, _, _ string) (storage.Entity, bool, error) {
	if a.err == nil {
		<-ctx.Done()
		return storage.Entity{}, false, ctx.Err()
	}
	return storage.Entity{}, false, a.err
}

// hostile is a table in which each time was taken.
type hostile struct{ storage.Table }

func (hostile) Get(context.Context, string, string) (entity storage.Entity, found bool, err error) {
	return storage.Entity{Values: map[string]any{"due": time.Now()}}, true, nil
}

// TestTurns: of three instances one runs a timer function each minute. With a table that is away, or has a row of
// somebody who wants no run, each instance runs at least every other time.
func TestTurns(t *testing.T) {
	const minutes, instances = 60, 3
	for name, test := range map[string]struct {
		table       func(*memory.Table) storage.Table
		least, most int // runs of an instance
		all         int // of all instances, at least
	}{
		"shared":    {func(t *memory.Table) storage.Table { return t }, 30, 60, 60},
		"no_table":  {func(*memory.Table) storage.Table { return nil }, 60, 60, 180},
		"no_answer": {func(t *memory.Table) storage.Table { return away{Table: t} }, 60, 60, 180},
		"denied":    {func(t *memory.Table) storage.Table { return away{t, errors.New("denied")} }, 60, 60, 180},
		"hostile":   {func(t *memory.Table) storage.Table { return hostile{t} }, 30, 30, 90},
		"old_lie": {func(table *memory.Table) storage.Table {
			id := functionapp.MonitorTimer + "," + rows.KeyOf("shop")
			entity := storage.Entity{Key: storage.Key{Partition: heartbeat.TurnsPartition, ID: id}}
			entity.Values = map[string]any{"due": time.Now().Add(1000 * time.Hour)}
			if err := table.Put(t.Context(), []storage.Entity{entity}); err != nil {
				t.Error(err)
			}
			return table
		}, 30, 60, 60},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := test.table(&memory.Table{})
				var clocks []*heartbeat.Turns
				for range instances {
					clocks = append(clocks, heartbeat.NewTurns("shop", table))
				}
				runs, all := map[int]int{}, 0
				for range minutes {
					<-time.After(time.Minute)
					due, ran := time.Now(), 0
					for n, c := range clocks {
						if c.Take(t.Context(), functionapp.MonitorTimer, due, due.Add(time.Minute)) {
							runs[n]++
							ran++
						}
					}
					if ran == 0 && name != "hostile" {
						t.Error("no instance runs")
					}
					all += ran
				}
				for n := range clocks {
					if runs[n] < test.least || runs[n] > test.most {
						t.Errorf("instance %d runs %d times, want %d to %d", n, runs[n], test.least, test.most)
					}
				}
				if all < test.all {
					t.Errorf("%d runs in all, want %d", all, test.all)
				}
			})
		})
	}
}
