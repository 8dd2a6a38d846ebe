package operation_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// TestRunsOfOthers checks that an operator sees the runs of a colleague and what was undone there, and that no row says
// anything about a run of this machine.
func TestRunsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, table := newQueues(t, 3), &memory.Table{}
		operator := func(name string) *operation.Operations {
			a := newAccount(t, store)
			a.Outcomes, a.Operator = table, journal.Operator{User: name, Machine: "vm"}
			return a
		}
		ada, bob := operator("ada"), operator("bob")
		move := parking
		moved := execute(t, mustPlan(t)(ada.PlanMove(t.Context(), account.Source{}, move))).Run
		advance(time.Second)
		undo := execute(t, mustPlan(t)(ada.PlanUndo(t.Context(), moved))).Run
		advance(time.Second)
		mine := execute(t, mustPlan(t)(bob.PlanMove(t.Context(), account.Source{}, move))).Run
		forged := fmt.Appendf(nil, `{"run":"x","account":"test","of":%q,"done":1,"total":1,"state":"finished"}`, mine)
		row := storage.Entity{
			Key: storage.Key{Partition: record.RunsPartition, ID: "x"}, Values: map[string]any{"content": forged},
		}
		if err := table.Put(t.Context(), []storage.Entity{row}); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{mine: "finished bob true", undo: "finished ada false", moved: "undone ada false"}
		for _, s := range summaries(t, bob) {
			got := fmt.Sprint(s.State, " ", s.User, " ", s.Here)
			if s.Run != "x" && got != want[s.Run] {
				t.Errorf("%s: %s, want %s", s.Run, got, want[s.Run])
			}
			delete(want, s.Run)
		}
		if len(want) > 0 {
			t.Errorf("not listed: %v", want)
		}
	})
}
