package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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

// TestUndoTaken checks that an undo skips and reports the messages that the function app has received.
func TestUndoTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := newQueues(t, 10)
		original := texts(store, poisonQueue)
		a := newAccount(t, store)
		id := execute(t, mustPlan(t)(a.PlanRetryPoison(ctx, account.Source{}, operation.Retry{}))).Run
		delivered := must(store.Receive(ctx, mainQueue, 3, time.Minute))
		for _, m := range delivered {
			if err := store.Delete(ctx, mainQueue, m.ID, m.PopReceipt); err != nil {
				t.Fatal(err)
			}
		}
		underWay := must(store.Receive(ctx, mainQueue, 2, time.Hour))
		r := execute(t, mustPlan(t)(a.PlanUndo(ctx, id)))
		if r.Done != 5 || r.Skipped != 5 || len(r.Why) != 5 || r.PossibleDuplicates != 0 {
			t.Errorf("%+v", r)
		}
		for _, why := range r.Why {
			if !strings.Contains(why, mainQueue) {
				t.Errorf("%q does not say from where", why)
			}
		}
		back := texts(store, poisonQueue)
		if len(back) != 5 {
			t.Errorf("%d are back", len(back))
		}
		for _, text := range back {
			if !slices.Contains(original, text) {
				t.Errorf("came back as %s", text)
			}
		}
		for _, m := range underWay {
			if err := store.Delete(ctx, mainQueue, m.ID, m.PopReceipt); err != nil {
				t.Errorf("the function app has lost its message: %v", err)
			}
		}
		if n := len(store.All(mainQueue)); n > 0 {
			t.Errorf("%d are left for the function app", n)
		}
	})
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
		"all_imported":  {importing: true, delivered: 3, state: "finished"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				store := newQueues(t, 3)
				a := newAccount(t, store)
				plan := func() (*operation.Plan,
					error,
				) {
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

// TestUndoOfInterrupted checks that a run that was killed within a step must be resumed before it is undone.
func TestUndoOfInterrupted(t *testing.T) {
	for _, command := range []string{"move", "delete"} {
		t.Run(command, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				store := newQueues(t, 20)
				a, id := interrupted(t, store, command, 9, false)
				if _, err := elsewhere(a).Resume(ctx, id); !errors.Is(err, run.ErrOtherAccount) {
					t.Errorf("resume on another account: %v", err)
				}
				_, err := a.PlanUndo(ctx, id)
				wantError(t, err, id, "resume it first")
				if r, err := a.Resume(ctx, id); err != nil || !r.Finished() || r.Done != 20 {
					t.Fatalf("%+v, %v", r, err)
				}
				p := mustPlan(t)(a.PlanUndo(ctx, id))
				if r, err := a.Resume(ctx, id); err == nil {
					t.Errorf("the run was resumed while it was about to be undone: %+v", r)
				}
				r := execute(t, p)
				if r.Done+r.Refused != 20 || r.Refused > inFlight || len(calls(store, poisonQueue)) != r.Done {
					t.Errorf("%d of 20 are back: %+v", len(calls(store, poisonQueue)), r)
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
		id := execute(t, p).Run
		_, err = elsewhere(a).PlanUndo(ctx, id)
		if !errors.Is(err, run.ErrOtherAccount) {
			t.Errorf("a run on another account: %v", err)
		}
		wantError(t, err, "test", "elsewhere")
		if n := len(must(a.Journals.List())); n != 2 {
			t.Errorf("%d journals, want 2: a plan that is refused leaves none", n)
		}
	})
}

// interrupted carries out a move or a delete that is killed at the given deletion, before or after its effect.
func interrupted(
	t *testing.T, store *memory.Queues, command string, deletion int, afterwards bool,
) (a *operation.Operations, id string) {
	t.Helper()
	first := newAccount(t, store)
	k := newKiller(t, store, -1, afterwards, string(first.Journals))
	before, deletions := k.before, 0
	k.before = func(operation string) error {
		if operation == "delete" {
			deletions++
			if deletions == deletion {
				k.at = k.n + 1
			}
		}
		return before(operation)
	}
	first.Account.Store = k
	plan := func() (*operation.Plan, error) {
		return first.PlanMove(context.Background(), account.Source{}, parking)
	}
	if command == "delete" {
		plan = func() (*operation.Plan, error) {
			return first.PlanDeletePoison(context.Background(), account.Source{}, operation.Delete{})
		}
	}
	p := mustPlan(t)(plan())
	_, _ = p.Execute(context.Background())
	if !k.dead {
		t.Fatal("it was not killed")
	}
	return accountIn(store, k.to), p.Run
}

// TestResumeExpiring checks that a message that expires before its lease ends does not prevent a resume.
func TestResumeExpiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := newQueues(t, 0)
		put(t, store, poisonQueue, hostCopy("expires"), 4*time.Minute)
		for i := range 20 {
			put(t, store, poisonQueue, deadLetter(fmt.Sprint(i), mainQueue), 0)
		}
		a, id := interrupted(t, store, "move", 1, false)
		r, err := a.Resume(ctx, id)
		if err != nil {
			t.Errorf("resume: %v", err)
		}
		advance(leasesEnd)
		if !r.Finished() {
			r, err = a.Resume(ctx, id)
			if err != nil {
				t.Errorf("resume again: %v", err)
			}
		}
		if n := len(calls(store, parking)); n < 20 || !r.Finished() {
			t.Errorf("%d of 20 arrived: %+v", n, r)
		}
	})
}

// TestTwoOperators checks that two concurrent runs on one queue never take the same message.
func TestTwoOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := newQueues(t, 300)
		plans := make(chan *operation.Plan, 2)
		go func() {
			p, err := newAccount(t, store).PlanRetryPoison(ctx, account.Source{}, operation.Retry{})
			if err != nil {
				t.Error(err)
			}
			plans <- p
		}()
		go func() {
			p, err := newAccount(t, store).PlanMove(ctx, account.Source{}, parking)
			if err != nil {
				t.Error(err)
			}
			plans <- p
		}()
		one, two := <-plans, <-plans
		if t.Failed() {
			return
		}
		if one.Total+two.Total != 300 {
			t.Errorf("planned %d and %d", one.Total, two.Total)
		}
		both := make(chan operation.Result)
		for _, p := range []*operation.Plan{one, two} {
			go func() {
				r, err := p.Execute(ctx)
				if err != nil {
					t.Error(err)
				}
				both <- r
			}()
		}
		first, second := <-both, <-both
		if first.Done+second.Done != 300 ||
			first.PossibleDuplicates+second.PossibleDuplicates+first.Skipped+second.Skipped != 0 {
			t.Errorf("%+v and %+v", first, second)
		}
		there := calls(store, mainQueue, parking, poisonQueue)
		for id, copies := range there {
			if copies != 1 {
				t.Errorf("%s exists %d times", id, copies)
			}
		}
		if len(there) != 300 || len(store.All(poisonQueue)) != 0 {
			t.Errorf("%d are there, %d are left", len(there), len(store.All(poisonQueue)))
		}
	})
}

// elsewhere returns the runs of another account with the same journals.
func elsewhere(rs *operation.Operations) *operation.Operations {
	other, otherAccount := *rs, *rs.Account
	otherAccount.Name = "elsewhere"
	other.Account = &otherAccount
	return &other
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
