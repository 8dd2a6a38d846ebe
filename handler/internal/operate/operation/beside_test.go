package operation_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// neighbourhood is an account on which several people and an app work at the same time.
type neighbourhood struct {
	*operation.Operations
	store *tap
	table *memory.Table

	mu sync.Mutex
	// delivered counts the calls that the app has made, by request id.
	delivered map[string]int
}

// operator returns the account as another person sees it, with journals of their own.
func (n *neighbourhood) operator(t *testing.T) *operation.Operations {
	t.Helper()
	a := newAccount(t, n.store)
	a.Account.Table = n.table
	return a
}

// app receives the messages of the main queue and calls their targets.
func (n *neighbourhood) app(ctx context.Context) {
	for storage.Sleep(ctx, 100*time.Millisecond) {
		received, _ := n.store.Receive(ctx, mainQueue, 8, time.Minute)
		for _, m := range received {
			n.mu.Lock()
			n.delivered[requestID(m.Text)]++
			n.mu.Unlock()
			_ = n.store.Delete(context.WithoutCancel(ctx), mainQueue, m.ID, m.PopReceipt)
		}
	}
}

// copies counts the messages and the calls of a request id.
func (n *neighbourhood) copies(id string) int {
	return n.delivered[id] + calls(n.store.Queues, mainQueue, poisonQueue, parking)[id]
}

// others are what happens beside an operation, until ctx ends or once.
func others(t *testing.T, n *neighbourhood) map[string]func(context.Context) {
	t.Helper()
	ignore := func(p *operation.Plan, err error) {
		if err == nil {
			_, _ = p.Execute(context.Background())
		}
	}
	return map[string]func(context.Context){
		"list": func(ctx context.Context) {
			for storage.Sleep(ctx, 10*time.Millisecond) {
				_, _ = n.Account.List(ctx, account.Source{}, func(account.Found) {})
			}
		},
		"app": n.app,
		"requeue": func(ctx context.Context) {
			ignore(n.operator(t).PlanRetryPoison(ctx, account.Source{}, operation.Retry{}))
		},
		"keeper": func(ctx context.Context) {
			_, _ = operation.NewKeeper(n.operator(t).Account, []string{poisonQueue}).Run(ctx, nil)
		},
		"cancel": func(ctx context.Context) {
			ignore(n.operator(t).PlanDeleteScheduled(ctx, everything(), false))
		},
		"expedite": func(ctx context.Context) {
			ignore(n.operator(t).PlanRetryScheduled(ctx, everything(), journal.Pace{}))
		},
		"undo": func(ctx context.Context) {
			for _, s := range summaries(t, n.Operations) { //nolint:contextcheck // that of the test
				ignore(n.PlanUndo(ctx, s.Run))
			}
		},
		"nothing": func(context.Context) {},
	}
}

// TestBeside carries out each operation while something else happens to the same messages, on slow storage, and checks
// that no call is lost or made twice, and that what is reported is true.
func TestBeside(t *testing.T) {
	const messages = 16
	type change struct {
		scheduled bool
		plan      func(ctx context.Context, n *neighbourhood) (*operation.Plan, error)
	}
	requeue := func(ctx context.Context, n *neighbourhood) (*operation.Plan, error) {
		return n.PlanRetryPoison(ctx, account.Source{}, operation.Retry{})
	}
	operations := map[string]change{
		"requeue": {plan: requeue},
		"move": {plan: func(ctx context.Context, n *neighbourhood) (*operation.Plan, error) {
			return n.PlanMove(ctx, account.Source{}, parking)
		}},
		"delete": {plan: func(ctx context.Context, n *neighbourhood) (*operation.Plan, error) {
			return n.PlanDeletePoison(ctx, account.Source{}, operation.Delete{})
		}},
		"undo": {plan: func(ctx context.Context, n *neighbourhood) (*operation.Plan, error) {
			done := execute(t, mustPlan(t)(requeue(ctx, n))) //nolint:contextcheck // a plan is carried out to its end
			return n.PlanUndo(ctx, done.Run)
		}},
		"cancel": {true, func(ctx context.Context, n *neighbourhood) (*operation.Plan, error) {
			return n.PlanDeleteScheduled(ctx, everything(), true)
		}},
		"expedite": {true, func(ctx context.Context, n *neighbourhood) (*operation.Plan, error) {
			return n.PlanRetryScheduled(ctx, everything(), journal.Pace{})
		}},
	}
	for name, o := range operations {
		for other := range others(t, &neighbourhood{}) {
			t.Run(name+"/"+other, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newQueues(t, 0)
					n := &neighbourhood{
						store: &tap{Queues: store, takes: 500 * time.Millisecond}, table: &memory.Table{},
						delivered: map[string]int{},
					}
					n.Operations = n.operator(t)
					for i := range messages {
						id := fmt.Sprintf("r%d", i)
						switch {
						case o.scheduled:
							schedule(t, store, n.table, plannedCall(id, later), later)
						case i%2 == 0:
							put(t, store, poisonQueue, hostCopy(id), week)
						default:
							put(t, store, poisonQueue, deadLetter(id, mainQueue), 0)
						}
					}
					if o.scheduled && other == "app" {
						advance(later - time.Second)
					}
					plan := mustPlan(t)(o.plan(t.Context(), n))
					n.beside(t, other, plan)
				})
			})
		}
	}
}

// beside executes a plan while something else happens, waits until all claims have ended, and judges the result.
func (n *neighbourhood) beside(t *testing.T, other string, plan *operation.Plan) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { others(t, n)[other](ctx) })
	r, err := plan.Execute(context.Background())
	if err != nil || !r.Finished() || r.PossibleDuplicates > 0 || r.Unknown > 0 || r.Done+r.Skipped != plan.Total {
		t.Errorf("%+v, %v", r, err)
	}
	stop()
	working.Wait()
	advance(time.Hour)
	j, err := n.Journals.Read(r.Run)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	for i, p := range j.Steps() {
		s, err := j.Step(i)
		if err != nil {
			t.Fatal(err)
		}
		isGone := p.State == journal.Done && s.Put == nil && s.Set == nil
		switch copies := n.copies(s.RequestID); {
		case isGone && copies != 0:
			t.Errorf("%s: %d copies of what was deleted", s.RequestID, copies)
		case !isGone && copies != 1 && other != "cancel":
			t.Errorf("%s: %d copies, after %s: %s", s.RequestID, copies, p.State, p.Why)
		case copies > 1:
			t.Errorf("%s: %d copies", s.RequestID, copies)
		}
		if told := n.copies(s.RequestID + ".callback"); s.Then != nil && (told > 0) != isGone {
			t.Errorf("%s: %d callbacks after %s", s.RequestID, told, p.State)
		}
	}
}
