package operation_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// minutes lets a monitor compare the poison queue with its rows once a minute, and returns how often its messages were
// received at most.
func minutes(t *testing.T, a *operation.Operations, store *memory.Queues, n int, meanwhile func(minute int)) int64 {
	t.Helper()
	keeper := operation.NewKeeper(a.Account, []string{poisonQueue})
	for minute := range n {
		meanwhile(minute)
		if err := keeper.Compare(t.Context(), a.Account.Table); err != nil {
			t.Error(err)
		}
		advance(time.Minute)
	}
	received := int64(0)
	for _, m := range store.All(poisonQueue) {
		received = max(received, m.DequeueCount)
	}
	return received
}

// deadRows returns the ids of the dead letters in the record, and how many marks it has.
func deadRows(t *testing.T, table storage.Table) (ids []string, marks int) {
	t.Helper()
	if err := rows.List(t.Context(), table, storage.Query{}, func(row record.Row) error {
		switch {
		case row.IsDeadLetter():
			ids = append(ids, row.ID)
		case row.IsMark():
			marks++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ids, marks
}

// wantAgreement checks that the rows are those of the messages of the poison queue.
func wantAgreement(t *testing.T, store *memory.Queues, table storage.Table) {
	t.Helper()
	var want []string
	for _, m := range store.All(poisonQueue) {
		want = append(want, m.ID)
	}
	slices.Sort(want)
	if got, _ := deadRows(t, table); !slices.Equal(got, want) {
		t.Errorf("%d rows for %d messages", len(got), len(want))
	}
}

func newRecorded(t *testing.T, messages int) (*operation.Operations, *memory.Queues, *memory.Table) {
	t.Helper()
	store, table := newQueues(t, messages), &memory.Table{}
	a := newAccount(t, store)
	a.Account.Table = table
	return a, store, table
}

// TestCompare: rows that are missing come, and those whose message is gone go. A queue that agrees is received once.
func TestCompare(t *testing.T) {
	for _, n := range []int{0, 20, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, store, table := newRecorded(t, n)
				row := record.Row{Key: storage.Key{Partition: poisonQueue, ID: "gone"}, Since: time.Now()}
				if err := rows.Put(t.Context(), table, row); err != nil {
					t.Fatal(err)
				}
				received := minutes(t, a, store, 60, func(int) {})
				wantAgreement(t, store, table)
				if received > 1 || n < storage.MaxBatch && received > 0 {
					t.Errorf("received %d times", received)
				}
			})
		})
	}
}

// TestCompareMoved: a message was moved while the table was away, so that as many rows are there as messages.
func TestCompareMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newRecorded(t, 20)
		minutes(t, a, store, 2, func(int) {})
		moved := must(store.Receive(t.Context(), poisonQueue, 1, time.Minute))[0]
		must(store.Put(t.Context(), poisonQueue, storage.Item{Text: moved.Text}))
		if err := store.Delete(t.Context(), poisonQueue, moved.ID, moved.PopReceipt); err != nil {
			t.Fatal(err)
		}
		minutes(t, a, store, 15, func(int) {})
		wantAgreement(t, store, table)
	})
}

// TestCompareWhileHeld: no row goes of a message that another command has received.
func TestCompareWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newRecorded(t, 100)
		minutes(t, a, store, 1, func(int) {})
		must(store.Receive(t.Context(), poisonQueue, storage.MaxBatch, 15*time.Minute))
		before, _ := deadRows(t, table)
		row := record.Row{Key: storage.Key{Partition: poisonQueue, ID: "gone"}, Since: time.Now()}
		if err := rows.Put(t.Context(), table, row); err != nil {
			t.Fatal(err)
		}
		minutes(t, a, store, 14, func(int) {})
		after, _ := deadRows(t, table)
		if len(before) != 100 || len(after) != 101 {
			t.Errorf("%d rows, then %d", len(before), len(after))
		}
	})
}

// TestCompareHostile: whoever invents a row every minute makes the messages be received at most eight times in an hour.
func TestCompareHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newRecorded(t, 100)
		received := minutes(t, a, store, 60, func(minute int) {
			row := record.Row{Key: storage.Key{Partition: poisonQueue, ID: fmt.Sprint("invented", minute)}}
			row.Since, row.Content = time.Now(), make([]byte, storage.MaxPropertyBytes)
			if err := rows.Put(t.Context(), table, row); err != nil {
				t.Fatal(err)
			}
		})
		if received > 8 {
			t.Errorf("received %d times", received)
		}
		minutes(t, a, store, 15, func(int) {})
		wantAgreement(t, store, table)
	})
}

// TestRowsOfRuns: a run leaves a mark for each dead letter that it has deleted, and a row for each that it has written.
func TestRowsOfRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newRecorded(t, 12)
		want := func(doing string, dead, marks int) {
			t.Helper()
			advance(2 * time.Second)
			got, gotMarks := deadRows(t, table)
			if len(got) != dead || gotMarks != marks {
				t.Errorf("%s: %d rows and %d marks, want %d and %d", doing, len(got), gotMarks, dead, marks)
			}
		}
		ids := func(from, to int) (s account.Source) {
			for i := from; i < to; i++ {
				s.IDs = append(s.IDs, fmt.Sprint("r", i))
			}
			return s
		}
		plan := mustPlan(t)(a.PlanDeletePoison(t.Context(), ids(0, 4), operation.Delete{}))
		want("planned", 12, 0) // the plan has brought all rows
		deleted := execute(t, plan)
		want("deleted", 8, 4)
		execute(t, mustPlan(t)(a.PlanUndo(t.Context(), deleted.Run)))
		want("restored", 12, 4)
		wantAgreement(t, store, table)
		execute(t, mustPlan(t)(a.PlanRetryPoison(t.Context(), ids(4, 8), operation.Retry{})))
		want("sent again", 8, 8)
		execute(t, mustPlan(t)(a.PlanMove(t.Context(), ids(8, 12), parking)))
		want("moved", 8, 12)
		if err := minutesLater(t, a); err != nil {
			t.Error(err)
		}
		want("swept", 8, 0)
	})
}

// minutesLater removes what is old in the record.
func minutesLater(t *testing.T, a *operation.Operations) error {
	advance(11 * time.Minute)
	_, err := operation.Sweep(t.Context(), a.Account, a.Account.Table)
	return err
}

// TestMustRead: a queue that was never read is read, one whose numbers differ twice is read at most once in ten
// minutes, and with the same numbers once an hour.
func TestMustRead(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, test := range map[string]struct {
		reading        record.Reading
		rows, messages int
		want           bool
	}{
		"never":            {record.Reading{}, 40, 40, true},
		"never_whole":      {record.Reading{TriedAt: ago(10 * time.Minute), Rows: 40, Messages: 40}, 40, 40, true},
		"never_whole_soon": {record.Reading{TriedAt: ago(9 * time.Minute)}, 40, 40, false},
		"equal": {
			record.Reading{ReadAt: ago(time.Hour), TriedAt: ago(time.Hour), Differs: true}, 40, 40, false,
		},
		"differs_once": {record.Reading{ReadAt: ago(time.Hour), TriedAt: ago(time.Hour)}, 39, 40, false},
		"differs_twice": {
			record.Reading{ReadAt: ago(time.Hour), TriedAt: ago(time.Hour), Differs: true}, 39, 40, true,
		},
		"too_soon": {
			record.Reading{ReadAt: ago(time.Hour), TriedAt: ago(9 * time.Minute), Differs: true}, 39, 40, false,
		},
		"same_numbers": {
			record.Reading{
				ReadAt: ago(50 * time.Minute), TriedAt: ago(50 * time.Minute), Rows: 39, Messages: 40, Differs: true,
			}, 39, 40, false,
		},
	} {
		if got := test.reading.MustRead(test.rows, test.messages, now); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
