package operation_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// deleted returns an account of which a run has deleted three messages.
func deleted(t *testing.T) (a *operation.Operations, store *memory.Queues, id string) {
	t.Helper()
	store = newQueues(t, 3)
	a = newAccount(t, store)
	id = execute(t, mustPlan(t)(a.PlanDeletePoison(t.Context(), account.Source{}, operation.Delete{}))).Run
	return a, store, id
}

// copied returns the account with a copy of its journals.
func copied(t *testing.T, a *operation.Operations) *operation.Operations {
	t.Helper()
	other := *a
	other.Journals = journal.Folder(newRuns(t))
	if err := os.CopyFS(string(other.Journals), os.DirFS(string(a.Journals))); err != nil {
		t.Fatal(err)
	}
	return &other
}

func journalPath(a *operation.Operations, id string) string {
	return filepath.Join(string(a.Journals), id+".jsonl")
}

func readJournal(t *testing.T, a *operation.Operations, id string) []byte {
	t.Helper()
	text, err := os.ReadFile(journalPath(a, id))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func writeJournal(t *testing.T, a *operation.Operations, id string, text []byte) {
	t.Helper()
	if err := os.WriteFile(journalPath(a, id), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestUndoOnce: a run is undone once, also after the clock has gone back, so that its undo has an earlier name, and if
// the journal of the undo was removed.
func TestUndoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, old := deleted(t)
		const id = "29990101-000000-delete-abcd" // the clock has gone back since
		writeJournal(t, a, id, bytes.ReplaceAll(readJournal(t, a, old), []byte(old), []byte(id)))
		undo := execute(t, mustPlan(t)(a.PlanUndo(t.Context(), id))).Run
		for _, s := range summaries(t, a) {
			if s.Run == id && (s.State != "undone" || s.UndoneBy != undo) {
				t.Errorf("listed as %+v", s)
			}
		}
		wantRefused := func() {
			t.Helper()
			_, err := a.PlanUndo(t.Context(), id)
			wantError(t, err, id, undo)
			_, err = a.Resume(t.Context(), id)
			wantError(t, err, id)
		}
		wantRefused()
		if err := os.Remove(journalPath(a, undo)); err != nil {
			t.Fatal(err)
		}
		wantRefused()
		if n := len(store.All(poisonQueue)); n != 3 {
			t.Errorf("%d messages are restored, want 3", n)
		}
	})
}

// putUndone writes the row that says that a run was undone.
func putUndone(t *testing.T, table storage.Table, id string, values map[string]any) {
	t.Helper()
	row := storage.Entity{Key: storage.Key{Partition: record.UndonePartition, ID: id}, Values: values}
	if err := table.Put(t.Context(), []storage.Entity{row}); err != nil {
		t.Fatal(err)
	}
}

// TestUndoOfCopiedJournals: a copy of the folder of journals does not undo or resume a run that was undone with the
// original, if the account has tables.
func TestUndoOfCopiedJournals(t *testing.T) {
	for name, test := range map[string]struct {
		table func(*memory.Table)
		row   map[string]any
		want  string
		done  int
	}{
		"undone":    {want: " by (ann@vm) has begun, perhaps with the journals of another machine or folder"},
		"no_answer": {table: func(t *memory.Table) { t.Fail(errors.New("no answer")) }, want: "not known whether it"},
		"denied":    {table: func(t *memory.Table) { t.Fail(storage.ErrDenied) }, done: 3},
		"hostile_row": {
			row:  map[string]any{"by": "\x1b[2J", "content": []byte(strings.Repeat("\x1b", 500))},
			want: "TABLES=off",
		},
		"row_of_nobody": {row: map[string]any{"content": []byte("../../x")}, want: "TABLES=off"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, store, id := deleted(t)
				table := &memory.Table{}
				a.Outcomes, a.Operator = table, journal.Operator{User: "ann", Machine: "vm"}
				b := copied(t, a)
				if test.row == nil {
					execute(t, mustPlan(t)(a.PlanUndo(t.Context(), id)))
				} else {
					putUndone(t, table, id, test.row)
				}
				before := len(store.All(poisonQueue))
				if test.table != nil {
					test.table(table)
				}
				_, err := mustPlan(t)(b.PlanUndo(t.Context(), id)).Execute(t.Context())
				if test.want != "" {
					wantError(t, err, id, test.want)
				}
				if err != nil && (strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 1000) {
					t.Errorf("cannot be shown: %q", err)
				}
				if n := len(store.All(poisonQueue)) - before; n != test.done {
					t.Errorf("%d messages are restored again, want %d", n, test.done)
				}
				b.Outcomes = nil
				if test.done == 0 {
					execute(t, mustPlan(t)(b.PlanUndo(t.Context(), id)))
				}
			})
		})
	}
}

// TestUndoRaces: two commands with copies of the same journals that have both planned an undo restore the messages
// once.
func TestUndoRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, id := deleted(t)
		a.Outcomes = &memory.Table{}
		b := copied(t, a)
		one, two := mustPlan(t)(a.PlanUndo(t.Context(), id)), mustPlan(t)(b.PlanUndo(t.Context(), id))
		execute(t, one)
		if _, err := two.Execute(t.Context()); !errors.Is(err, run.ErrNothingLeft) {
			t.Errorf("undone twice: %v", err)
		}
		if n, ids := len(store.All(poisonQueue)), must(b.Journals.List()); n != 3 || len(ids) != 1 {
			t.Errorf("%d messages are restored, journals %q", n, ids)
		}
	})
}

// TestResumeOfCopiedJournals: a copy of the folder of journals does not resume a run that was undone with the original,
// and goes on if the table does not answer.
func TestResumeOfCopiedJournals(t *testing.T) {
	for name, test := range map[string]struct {
		failure error
		done    int
	}{
		"undone":    {nil, 0},
		"no_answer": {errors.New("no answer"), 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 20)
				a := newAccount(t, store)
				table := &memory.Table{}
				a.Outcomes = table
				ctx, cancel := context.WithCancel(t.Context())
				a.Account.Store = &tap{Queues: store, after: func(operation string) error {
					if operation == "delete" {
						cancel()
					}
					return nil
				}}
				p := mustPlan(t)(a.PlanDeletePoison(t.Context(), account.Source{}, operation.Delete{}))
				r, err := p.Execute(ctx)
				if err != nil || r.Done == 0 || r.Left == 0 {
					t.Fatalf("%+v, %v", r, err)
				}
				b := copied(t, a)
				execute(t, mustPlan(t)(a.PlanUndo(t.Context(), r.Run)))
				table.Fail(test.failure)
				r, err = b.Resume(t.Context(), r.Run)
				if r.Done != test.done || errors.Is(err, run.ErrNothingLeft) != (test.done == 0) {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}

// TestUndoOfNothing: an undo that finds none of the messages can be repeated where its journal is. Elsewhere the row
// says which undo it was, and the operator decides.
func TestUndoOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 1)
		a := newAccount(t, store)
		a.Outcomes = &memory.Table{}
		id := execute(t, mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{}))).Run
		b := copied(t, a)
		for _, m := range must(store.Receive(t.Context(), mainQueue, 1, leasesEnd)) {
			if err := store.Delete(t.Context(), mainQueue, m.ID, m.PopReceipt); err != nil {
				t.Fatal(err)
			}
		}
		undo := ""
		for range 2 {
			r := execute(t, mustPlan(t)(a.PlanUndo(t.Context(), id)))
			if r.Done > 0 {
				t.Errorf("%+v", r)
			}
			undo = r.Run
		}
		_, err := mustPlan(t)(b.PlanUndo(t.Context(), id)).Execute(t.Context())
		wantError(t, err, id, undo, "if that has restored nothing", "ASYNC_CALLER_TABLES=off")
	})
}

// TestUndoKilledAtTheMark: whatever an undo had recorded when it was killed before its first step, an operator can go
// on, and the messages are restored once.
func TestUndoKilledAtTheMark(t *testing.T) {
	for name, test := range map[string]struct {
		confirmed, marked, row bool
		// twice says that another undo of the run, without a table, was completed before the resume.
		twice bool
	}{
		"planned":               {},
		"row":                   {row: true},
		"row_and_confirmed":     {row: true, confirmed: true},
		"confirmed":             {confirmed: true},
		"confirmed_and_marked":  {row: true, confirmed: true, marked: true},
		"marked_without_a_plan": {row: true, marked: true},
		"confirmed_twice":       {confirmed: true, twice: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, store, id := deleted(t)
				table := &memory.Table{}
				if !test.twice {
					a.Outcomes = table
				}
				p := mustPlan(t)(a.PlanUndo(t.Context(), id))
				killed, undo := copied(t, a), p.Run
				p.Discard(t.Context())
				if test.row {
					putUndone(t, table, id, map[string]any{"content": []byte(undo)})
				}
				if test.confirmed {
					writeJournal(t, killed, undo, append(readJournal(t, killed, undo), "{\"is\":\"go\"}\n"...))
				}
				if test.marked {
					mark := "{\"is\":\"undone\",\"id\":\"" + undo + "\"}\n"
					writeJournal(t, killed, id, append(readJournal(t, killed, id), mark...))
				}

				if test.twice {
					execute(t, mustPlan(t)(killed.PlanUndo(t.Context(), id)))
				}
				r, err := killed.Resume(t.Context(), undo)
				isResumed := err == nil && r.Done == 3
				if isResumed != (test.confirmed && !test.twice) || !isResumed && !errors.Is(err, run.ErrNothingLeft) {
					t.Errorf("resumed: %+v, %v", r, err)
				}
				again, err := killed.PlanUndo(t.Context(), id)
				switch {
				case test.twice:
					wantError(t, err, id, "undone by ")
				case test.confirmed:
					wantError(t, err, id, "undone by "+undo)
					if !bytes.Contains(readJournal(t, killed, id), []byte(`{"is":"undone"`)) {
						t.Error("the journal of the run does not say that it was undone")
					}
				case err != nil:
					t.Fatal(err)
				default:
					execute(t, again)
				}
				if n := len(store.All(poisonQueue)); n != 3 {
					t.Errorf("%d messages are restored, want 3", n)
				}
			})
		})
	}
}

// TestMarkBeforeTheUndo: when an undo writes its first message, the journal of the undone run names it, and so does the
// table.
func TestMarkBeforeTheUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, id := deleted(t)
		table := &memory.Table{}
		a.Outcomes = table
		var p *operation.Plan
		writes, marked := 0, 0
		a.Account.Store = &tap{Queues: store, before: func(operation string) error {
			if operation != "put" {
				return nil
			}
			writes++
			row, _, _ := table.Get(context.Background(), record.UndonePartition, id)
			undo, _ := row.Values["content"].([]byte)
			if string(undo) == p.Run && bytes.Contains(readJournal(t, a, id), []byte(`"id":"`+p.Run+`"`)) {
				marked++
			}
			return nil
		}}
		p = mustPlan(t)(a.PlanUndo(t.Context(), id))
		execute(t, p)
		if writes != 3 || marked != 3 {
			t.Errorf("%d of %d writes found the mark in the journal and in the table", marked, writes)
		}
	})
}
