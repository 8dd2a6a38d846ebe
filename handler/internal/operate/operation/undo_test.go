package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage/memory"
)

// TestUndo checks that an undo restores the messages of every run byte for byte, and that it can be undone as well.
func TestUndo(t *testing.T) {
	all := account.Source{}
	for name, plan := range map[string]func(context.Context, *operation.Operations) (*operation.Plan, error){
		"move": func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			return a.PlanMove(ctx, all, parking)
		},
		"requeue": func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			return a.PlanRetryPoison(ctx, all, operation.Retry{})
		},
		"delete": func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			return a.PlanDeletePoison(ctx, all, operation.Delete{})
		},
		"import": func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			var file bytes.Buffer
			export := func(f account.Found) { _ = operation.WriteRecord(&file, f) }
			if _, err := a.Account.List(ctx, all, export); err != nil {
				return nil, err
			}
			return a.PlanImport(ctx, &file, operation.Import{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				store := newQueues(t, 30)
				put(t, store, poisonQueue, hostCopy("host"), week)
				put(t, store, poisonQueue, "not base64", week)
				before := contents(store)
				a := newAccount(t, store)
				id := execute(t, mustPlan(t)(plan(ctx, a))).Run
				after := contents(store)
				if after == before {
					t.Fatalf("the run has changed nothing: %s", after)
				}
				undo := execute(t, mustPlan(t)(a.PlanUndo(ctx, id))).Run
				if contents(store) != before {
					t.Errorf("after the undo:\n%s\nbefore the run:\n%s", contents(store), before)
				}
				_, err := a.PlanUndo(ctx, id)
				if !errors.Is(err, run.ErrNothingLeft) {
					t.Errorf("undo twice: %v", err)
				}
				wantError(t, err, id, undo)
				_, err = a.Resume(ctx, id)
				if !errors.Is(err, run.ErrNothingLeft) {
					t.Errorf("resume of what was undone: %v", err)
				}
				execute(t, mustPlan(t)(a.PlanUndo(ctx, undo)))
				if contents(store) != after {
					t.Errorf("after the undo of the undo:\n%s\nafter the run:\n%s", contents(store), after)
				}
			})
		})
	}
}

// contents returns all texts by queue.
func contents(store *memory.Queues) string {
	var b strings.Builder
	for _, name := range []string{mainQueue, poisonQueue, parking} {
		for _, text := range texts(store, name) {
			fmt.Fprintf(&b, "%s %s\n", name, text)
		}
	}
	return b.String()
}

// TestUndoGone checks that an undo counts the messages that are gone, and that a run is undone only if one of its
// messages was restored.
func TestUndoGone(t *testing.T) {
	for name, c := range map[string]struct {
		importing bool
		delivered int
		state     string
	}{
		"none":          {delivered: 0, state: "undone"},
		"some":          {delivered: 2, state: "partly undone"},
		"all":           {delivered: 3, state: "finished"},
		"some_imported": {importing: true, delivered: 2, state: "partly undone"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				store := newQueues(t, 3)
				a := newAccount(t, store)
				plan := func() (*operation.Plan, error) {
					return a.PlanRetryPoison(ctx, account.Source{}, operation.Retry{})
				}
				if c.importing {
					var file bytes.Buffer
					export := func(f account.Found) { _ = operation.WriteRecord(&file, f) }
					must(a.Account.List(ctx, account.Source{}, export))
					plan = func() (*operation.Plan, error) {
						return a.PlanImport(ctx, &file, operation.Import{To: mainQueue, Force: true})
					}
				}
				id := execute(t, mustPlan(t)(plan())).Run
				for range c.delivered {
					m := must(store.Receive(ctx, mainQueue, 1, time.Minute))[0]
					if err := store.Delete(ctx, mainQueue, m.ID, m.PopReceipt); err != nil {
						t.Fatal(err)
					}
				}
				r := execute(t, mustPlan(t)(a.PlanUndo(ctx, id)))
				if r.Done != 3-c.delivered || r.Skipped != c.delivered || len(store.All(mainQueue)) > 0 {
					t.Errorf("%d delivered: %+v", c.delivered, r)
				}
				for _, s := range summaries(t, a) {
					if s.Run == id && (s.State != c.state || (s.UndoneBy == r.Run) != (r.Done > 0)) {
						t.Errorf("%+v, want it %s", s, c.state)
					}
				}
				_, err := a.PlanUndo(ctx, id)
				if errors.Is(err, run.ErrNothingLeft) != (r.Done > 0) {
					t.Errorf("undo again: %v", err)
				}
			})
		})
	}
}

// TestUndoOfStopped checks that an undo that restores nothing does not change a run that has stopped, which can be
// resumed. After an undo that has restored a message, it cannot.
func TestUndoOfStopped(t *testing.T) {
	for name, delivered := range map[string]int{"some_delivered": 2, "all_delivered": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 10)
				a, _ := newApp(t, store, nil)
				stopped, _ := requeue(t, a, journal.Pace{Canary: 3})
				for range delivered {
					m := must(store.Receive(t.Context(), mainQueue, 1, time.Minute))[0]
					if err := store.Delete(t.Context(), mainQueue, m.ID, m.PopReceipt); err != nil {
						t.Fatal(err)
					}
				}
				undo := execute(t, mustPlan(t)(a.PlanUndo(t.Context(), stopped.Run)))
				state := map[int]string{0: "interrupted", 1: "partly undone"}[undo.Done]
				for _, s := range summaries(t, a) {
					if s.Run == stopped.Run && (s.State != state || s.Done != 3) {
						t.Errorf("%+v, want it %s", s, state)
					}
				}
				_, err := a.Resume(t.Context(), stopped.Run)
				if undo.Done != 3-delivered || errors.Is(err, run.ErrNothingLeft) != (undo.Done > 0) {
					t.Errorf("%d undone; resume: %v", undo.Done, err)
				}
			})
		})
	}
}

func TestUndoRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := newQueues(t, 3)
		a := newAccount(t, store)
		_, err := a.PlanUndo(ctx, "20260101-000000-move-abcd")
		if !errors.Is(err, journal.ErrNoRun) {
			t.Errorf("an unknown run: %v", err)
		}
		kept := execute(t, mustPlan(t)(a.PlanDeletePoison(ctx, account.Source{}, operation.Delete{NoCopy: true}))).Run
		_, err = a.PlanUndo(ctx, kept)
		if !errors.Is(err, run.ErrNothingLeft) {
			t.Errorf("a delete without a copy: %v", err)
		}
		put(t, store, poisonQueue, deadLetter("x", mainQueue), 0)
		p := mustPlan(t)(a.PlanMove(ctx, account.Source{}, parking))
		if _, err := a.PlanUndo(ctx, p.Run); !errors.Is(err, journal.ErrBusy) {
			t.Errorf("a running run: %v", err)
		}
		execute(t, p)
		if n := len(must(a.Journals.List())); n != 2 {
			t.Errorf("%d journals, want 2: a plan that is refused leaves none", n)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
