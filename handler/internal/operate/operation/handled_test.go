package operation_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
)

// TestHandledBy: what the runs of this machine and account did to a call is known, newest first, and a journal that
// cannot be read is not taken for one that has nothing of it.
func TestHandledBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, newQueues(t, 4))
		a.Operator = journal.Operator{User: "ada", Machine: "vm"}
		other := accountIn(newQueues(t, 1), string(a.Journals))
		other.Account.Name = "other"
		only := account.Source{IDs: []string{"r0"}}
		moved := execute(t, mustPlan(t)(a.PlanMove(t.Context(), only, parking))).Run
		advance(time.Second)
		undo := execute(t, mustPlan(t)(a.PlanUndo(t.Context(), moved))).Run
		advance(time.Second)
		execute(t, mustPlan(t)(other.PlanMove(t.Context(), only, parking)))
		planned, err := a.PlanMove(t.Context(), only, parking) // not confirmed
		if err != nil {
			t.Fatal(err)
		}
		defer planned.Discard(t.Context())
		isOfCall := func(s journal.Step, _ journal.Progress) bool { return s.RequestID == "r0" }
		handled, since, err := a.HandledBy(t.Context(), isOfCall)
		if err != nil || !since.IsZero() || len(handled) != 2 {
			t.Fatalf("%+v, since %v, %v", handled, since, err)
		}
		for i, want := range []operation.Handled{{Run: undo, Command: "undo"}, {Run: moved, Command: "move"}} {
			got := handled[i]
			if got.Run != want.Run || got.Command != want.Command || got.User != "ada" || got.Result != "done" {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		alone := *a
		alone.Journals = journal.Folder(newRuns(t))
		execute(t, mustPlan(t)(alone.PlanMove(t.Context(), account.Source{}, parking)))
		handled, since, err = alone.HandledBy(t.Context(), func(journal.Step, journal.Progress) bool {
			advance(2 * time.Second) // the search breaks off within the last journal
			return true
		})
		if len(handled) != 2 || since.IsZero() || err != nil {
			t.Errorf("a search that breaks off: %d, since %v, %v", len(handled), since, err)
		}
		damaged := filepath.Join(string(a.Journals), "20260101-000000-move-abcd.jsonl")
		if err := os.WriteFile(damaged, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		handled, _, err = a.HandledBy(t.Context(), isOfCall)
		if len(handled) != 2 || err == nil || !strings.Contains(err.Error(), "abcd") {
			t.Errorf("%d, %v", len(handled), err)
		}
	})
}
