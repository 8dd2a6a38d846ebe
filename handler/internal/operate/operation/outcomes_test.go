package operation_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// slowTable is a table whose deletions take some time.
type slowTable struct {
	memory.Table
	takes time.Duration
}

func (s *slowTable) Delete(ctx context.Context, keys []storage.Key) error {
	advance(s.takes)
	return s.Table.Delete(ctx, keys)
}

// TestSweepOutcomes checks that outcomes of the last day and rows of other kinds stay.
func TestSweepOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		put := func(partition, id, action string) {
			row := record.Outcome{Key: storage.Key{Partition: partition, ID: id}, RequestID: id, Action: action}
			if err := rows.Put(t.Context(), &table, row); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 250 {
			put("T0KEN", fmt.Sprint("old", i), "finish")
			put(fmt.Sprint("invented", i), "old", "finish")
		}
		put("run", "20261121-091500-requeue-k3xw", "")
		advance(23 * time.Hour)
		put("T0KEN", "new", "reschedule")
		put("T0KEN", "old0", "finish") // written again
		advance(2 * time.Hour)
		swept, err := record.SweepOutcomes(t.Context(), &table)
		var left []string
		for _, row := range allRows(t, &table) {
			left = append(left, row.ID)
		}
		if text := fmt.Sprint(left); err != nil || swept != 499 || text != "[new old0 20261121-091500-requeue-k3xw]" {
			t.Errorf("%d swept, %s left, %v", swept, text, err)
		}
	})
}

// TestSweepOutcomesInTime checks that the keeper has time for the rest when a sender has invented many tokens, and that
// the next passes remove what is left.
func TestSweepOutcomesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slowTable{takes: time.Second}
		for i := range 80 {
			row := record.Outcome{Key: storage.Key{Partition: fmt.Sprint("invented", i), ID: "r1"}, Action: "finish"}
			if err := rows.Put(t.Context(), table, row); err != nil {
				t.Fatal(err)
			}
		}
		advance(25 * time.Hour)
		total := 0
		for range 3 {
			began := time.Now()
			swept, err := record.SweepOutcomes(t.Context(), table)
			total += swept
			if took := time.Since(began); err != nil || swept == 0 || took > 31*time.Second {
				t.Errorf("%d in %v, %v", swept, took, err)
			}
		}
		if total != 80 {
			t.Errorf("%d of 80", total)
		}
	})
}
