package operation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
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
		const hostile = "20260101-000000-move-evil"
		forged := fmt.Appendf(nil, `{"run":"20260101-000000-move-evil","user":"\u001b%s",`+
			`"at":"9999-01-01T00:00:00Z","account":"test","of":%q,"done":1,"total":1,"state":"finished"}`,
			strings.Repeat("x", 1<<15), mine)
		row := storage.Entity{
			Key: storage.Key{Partition: record.RunsPartition, ID: hostile}, Values: map[string]any{"content": forged},
		}
		if err := table.Put(t.Context(), []storage.Entity{row}); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			mine: "finished bob true", undo: "finished ada false", moved: "undone ada false", hostile: "bounded",
		}
		for _, s := range summaries(t, bob) {
			got := fmt.Sprint(s.State, " ", s.User, " ", s.Here)
			if s.Run == hostile && (len(s.User) > 200 || strings.Contains(s.User, "\x1b")) {
				t.Errorf("hostile: %q", s.User)
			}
			if s.Run != hostile && got != want[s.Run] {
				t.Errorf("%s: %s, want %s", s.Run, got, want[s.Run])
			}
			delete(want, s.Run)
		}
		if len(want) > 0 {
			t.Errorf("not listed: %v", want)
		}
	})
}

// TestSignOfLife: the row of a run is written again while it runs, and says at the end that it has ended. A run that is
// killed is not seen any more.
func TestSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, table := newScheduled(t, 200)
		a.Outcomes = table
		colleague := newAccount(t, newQueues(t, 0))
		colleague.Outcomes = table
		began := time.Now()
		p := mustPlan(t)(planExpedite(t.Context(), a, journal.Pace{Rate: 1}))
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		go func() { _, _ = p.Execute(ctx) }()
		advance(140 * time.Second)
		synctest.Wait()
		s := summaries(t, colleague)[0]
		if s.State != run.Running || s.Seen.Sub(began) < 2*time.Minute || s.Done < 110 || s.Here {
			t.Errorf("%+v after %v", s, time.Since(began))
		}
		advance(20 * time.Second)
		synctest.Wait()
		s = summaries(t, colleague)[0]
		if s.State != run.Interrupted || s.End.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// TestRunsOfOtherAccounts: journals of other accounts are only counted, and the errors name their account.
func TestRunsOfOtherAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 3)
		a := newAccount(t, store)
		id := execute(t, mustPlan(t)(a.PlanMove(t.Context(), account.Source{}, parking))).Run
		other := accountIn(store, string(a.Journals))
		other.Account.Name = "other"
		runs, err := other.Runs(t.Context())
		if err != nil || len(runs.All) != 0 || runs.OtherAccounts != 1 {
			t.Errorf("%+v, %v", runs, err)
		}
		_, showErr := other.Run(t.Context(), id)
		_, undoErr := other.PlanUndo(t.Context(), id)
		_, deleteErr := other.DeleteRun(t.Context(), id, true)
		for _, err := range []error{showErr, undoErr, deleteErr} {
			wantError(t, err, "the run was on another account: test")
		}
	})
}

// TestDeleteRun: a journal is deleted whole with its row, but not that of a run that is unfinished or goes on.
func TestDeleteRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, table := newAccount(t, newQueues(t, 3)), &memory.Table{}
		a.Outcomes = table
		deletion := func(id string, force bool) error {
			unlisted, err := a.DeleteRun(t.Context(), id, force)
			if unlisted != nil {
				t.Error(unlisted)
			}
			return err
		}
		p := mustPlan(t)(a.PlanMove(t.Context(), account.Source{Limit: 2}, parking))
		if err := deletion(p.Run, true); !errors.Is(err, journal.ErrBusy) {
			t.Errorf("in use: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := p.Execute(ctx); err != nil || r.Left != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		wantError(t, deletion(p.Run, false), "not finished", "runs resume "+p.Run)
		resumed, err := a.Resume(t.Context(), p.Run)
		if err != nil || resumed.Done != 2 {
			t.Fatalf("%+v, %v", resumed, err)
		}
		if err := deletion(p.Run, false); err != nil {
			t.Error(err)
		}
		if _, err := a.Run(t.Context(), p.Run); !errors.Is(err, journal.ErrNoRun) {
			t.Errorf("show: %v", err)
		}
		if _, err := a.PlanUndo(t.Context(), p.Run); !errors.Is(err, journal.ErrNoRun) {
			t.Errorf("undo: %v", err)
		}
		files, err := os.ReadDir(string(a.Journals))
		if err != nil || len(files) > 0 {
			t.Errorf("%v, %v", files, err)
		}
	})
}
