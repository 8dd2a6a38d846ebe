package operation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/storage"
)

func TestPlanRefused(t *testing.T) {
	store := newQueues(t, 3)
	a := newAccount(t, store)
	_, err := a.PlanDeletePoison(t.Context(), account.Source{Queues: []string{mainQueue}}, operation.Delete{})
	wantError(t, err, mainQueue, "a function app reads it", poisonQueue, "--force")
	if _, err := a.PlanMove(t.Context(), account.Source{}, mainQueue); !errors.Is(err,
		account.ErrAppQueue) {
		t.Errorf("move to a live queue: %v", err)
	}
	if _, err := a.PlanMove(t.Context(), account.Source{}, "No Queue"); err == nil {
		t.Error("move to an invalid name")
	}
	if _, err := a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{To: "No Queue"}); err == nil {
		t.Error("requeue to an invalid name")
	}
	if n := len(must(a.Journals.List())); n != 0 {
		t.Errorf("%d journals of runs that were refused", n)
	}
}

// TestPlan checks that a plan reserves only the selected messages, and changes nothing.
func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueues(t, 100)
		before := texts(store, poisonQueue)
		a := newAccount(t, store)
		p := mustPlan(t)(a.PlanMove(ctx, account.Source{Filter: message.Filter{Text: "orders/r1"}},
			parking))
		meant := 11 // r1 and r10 to r19
		want := map[string]int{poisonQueue: meant}
		if p.Total != meant || p.Hidden != 0 || p.Refused != 0 || !cmp.Equal(p.From, want) ||
			!cmp.Equal(p.To, map[string]int{parking: meant}) {
			t.Errorf("%+v", p)
		}
		advance(run.ClaimTime - time.Minute)
		away := hidden(store, poisonQueue)
		if len(away) != meant || len(store.All(parking)) > 0 {
			t.Errorf("%d are leased, %d written, before the confirmation", len(away), len(store.All(parking)))
		}
		for _, m := range store.All(poisonQueue) {
			if strings.HasPrefix(requestID(m.Text), "r1") != slices.Contains(away, m.ID) {
				t.Errorf("%s is leased: %v", requestID(m.Text), slices.Contains(away, m.ID))
			}
		}
		p.Discard(ctx)
		advance(10 * time.Second)
		if len(hidden(store, poisonQueue)) > 0 || !slices.Equal(texts(store, poisonQueue), before) {
			t.Errorf("after discard %d are hidden", len(hidden(store, poisonQueue)))
		}
		if _, err := a.Resume(ctx, p.Run); err == nil {
			t.Error("a discarded plan was resumed")
		}
	})
}

func TestPlanLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 100)
		a := newAccount(t, store)
		r := execute(t,
			mustPlan(t)(a.PlanMove(t.Context(), account.Source{Limit: 40}, parking)))
		advance(10 * time.Second)
		if r.Done != 40 || len(store.All(parking)) != 40 || len(store.All(poisonQueue)) != 60 ||
			len(hidden(store, poisonQueue)) > 0 {
			t.Errorf("%+v; %d moved, %d left, %d of them hidden", r, len(store.All(parking)),
				len(store.All(poisonQueue)), len(hidden(store, poisonQueue)))
		}
	})
}

// TestRequeue checks that messages are sent to their own queues, and that the refused ones have a reason.
func TestRequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		a := newAccount(t, store)
		p := mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{}))
		if p.Total != 5 || p.Refused != 2 || len(p.Refusals) != 2 {
			t.Errorf("%+v", p)
		}
		for _, r := range p.Refusals {
			want := map[string]string{
				message.Undecodable: "--fix-encoding",
				message.Malformed:   "malformed",
			}[r.Message.Reason]
			if want == "" || !strings.Contains(r.Why, want) {
				t.Errorf("%s is refused: %s", r.Message.Reason, r.Why)
			}
		}
		execute(t, p)
		want := map[string]int{"r0": 1, "r1": 1, "r2": 1, "host": 1, "live": 1}
		if diff := cmp.Diff(want, calls(store, mainQueue)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int{"other": 1}, calls(store, "other")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		for _, m := range store.All(mainQueue) {
			content := must(storage.Base64.Decode(m.Text))
			if strings.Contains(string(content), "deadLetter") || m.ExpiresAt.Year() != 9999 {
				t.Errorf("sent again as %s, expires %v", content, m.ExpiresAt)
			}
		}
	})
}

// TestHome checks that no dead letter chooses the queue to which it is requeued.
func TestHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		put(t, store, poisonQueue, deadLetter("liar", "evil"), 0)
		a := newAccount(t, store)
		homes, refused := map[string]string{}, map[string]string{}
		before := contents(store)
		see := func(f account.Found, to string, after []byte, why error) {
			if why != nil {
				refused[found(f.Message)] = why.Error()
				return
			}
			if len(after) == 0 || strings.Contains(string(after), "deadLetter") {
				t.Errorf("%s would be %s", f.ID, after)
			}
			homes[found(f.Message)] = to
		}
		source := account.Source{Queues: []string{poisonQueue, "other-poison", parking}}
		listed, _, err := a.Preview(t.Context(), source, operation.Retry{}, see)
		if err != nil || listed.Matched != 10 {
			t.Errorf("%+v, %v", listed, err)
		}
		want := map[string]string{
			"r0": mainQueue, "r1": mainQueue, "r2": mainQueue, "host": mainQueue, "liar": mainQueue, "other": "other",
		}
		if diff := cmp.Diff(want, homes); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if len(refused) != 4 || !strings.Contains(refused["lost"], "--to") ||
			!strings.Contains(refused["parked"], "--to") {
			t.Errorf("refused: %q", refused)
		}
		_, _, err = a.Preview(t.Context(), source, operation.Retry{To: "other"}, see)
		if err != nil || homes["lost"] != "other" {
			t.Errorf("with --to it goes to %q, %v", homes["lost"], err)
		}
		if contents(store) != before || len(hidden(store, poisonQueue)) > 0 || len(must(a.Journals.List())) > 0 {
			t.Error("the preview has changed something")
		}
		for _, m := range store.All(poisonQueue) {
			if m.DequeueCount > 0 {
				t.Errorf("%s was taken", m.ID)
			}
		}
	})
}

// TestCancelled checks that a cancelled run completes the steps that it has begun, and that the rest is visible
// again soon.
func TestCancelled(t *testing.T) {
	for _, write := range []string{"put", "delete"} {
		t.Run(write, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 100)
				ctx, cancel := context.WithCancel(context.Background())
				n := 0
				a := newAccount(t, &tap{Queues: store, before: func(o string) error {
					if o == write {
						n++
						if n == 30 {
							cancel()
						}
					}
					return nil
				}})
				p := mustPlan(t)(a.PlanMove(ctx, account.Source{}, parking))
				r, err := p.Execute(ctx)
				if err != nil || r.NotDeleted != 0 || r.Left == 0 || r.Left+r.Done != 100 || r.Done < 29 ||
					r.Done > 30+2*inFlight || r.Finished() {
					t.Errorf("%+v, %v", r, err)
				}
				advance(run.ClaimTime + time.Minute)
				if len(store.All(poisonQueue)) != r.Left || len(hidden(store, poisonQueue)) > 0 ||
					len(calls(store, parking)) != r.Done {
					t.Errorf("%d left, %d of them hidden, %d moved: %+v",
						len(store.All(poisonQueue)), len(hidden(store, poisonQueue)), len(calls(store, parking)), r)
				}
				if s := summaries(t, a); len(s) != 1 || s[0].State != "interrupted" || s[0].Done != r.Done ||
					s[0].Total != 100 {
					t.Errorf("%+v", s)
				}
				r, err = a.Resume(context.Background(), r.Run)
				if err != nil || r.Done != 100 || !r.Finished() ||
					r.PossibleDuplicates != 0 {
					t.Errorf("resumed: %+v, %v", r, err)
				}
				if len(calls(store, parking)) != 100 || len(store.All(parking)) != 100 {
					t.Errorf("%d of 100 moved", len(store.All(parking)))
				}
			})
		})
	}
}

// TestPlanInterrupted: a plan that Ctrl-C ends says until when the messages are invisible that it has received.
func TestPlanInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		said := &notes{}
		a := newAccount(t, &tap{Queues: newQueues(t, 100), after: func(operation string) error {
			if operation == "receive" {
				cancel()
			}
			return nil
		}})
		a.Observer = said
		_, err := a.PlanMove(ctx, account.Source{Queues: []string{poisonQueue}}, parking)
		if err == nil || !strings.Contains(strings.Join(said.said, "\n"), "invisible until 2000-01-01T00:0") {
			t.Errorf("%v: %q", err, said.said)
		}
	})
}

// TestTakenMeanwhile checks that a run skips messages that somebody else receives after the plan.
func TestTakenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueues(t, 10)
		a := newAccount(t, store)
		p := mustPlan(t)(a.PlanMove(ctx, account.Source{}, parking))
		for _, m := range store.All(poisonQueue)[:3] {
			if err := store.Delete(ctx, poisonQueue, m.ID, m.PopReceipt); err != nil {
				t.Fatal(err)
			}
		}
		advance(time.Hour) // the claims have ended
		must(store.Receive(ctx, poisonQueue, 2, time.Hour))
		r, err := p.Execute(ctx)
		if err != nil || r.Done != 5 || r.Skipped+r.Left != 5 {
			t.Errorf("%+v, %v", r, err)
		}
		if len(calls(store, parking)) != 5 || len(store.All(parking)) != 5 {
			t.Errorf("%d were moved", len(store.All(parking)))
		}
	})
}

func TestSummaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueues(t, 5)
		a := newAccount(t, store)
		if got := summaries(t, a); len(got) != 0 {
			t.Errorf("no run yet: %+v", got)
		}
		move := execute(t, mustPlan(t)(a.PlanMove(ctx, account.Source{}, parking)))
		advance(time.Second)
		undo := execute(t, mustPlan(t)(a.PlanUndo(ctx, move.Run)))
		advance(time.Second)
		open := mustPlan(t)(a.PlanMove(ctx, account.Source{Limit: 2}, parking))
		defer open.Discard(ctx)
		var got []string
		for _, s := range summaries(t, a) {
			got = append(got, fmt.Sprintf("%s %s %d/%d of=%s by=%s", s.Command, s.State, s.Done, s.Total, s.Of,
				s.UndoneBy))
		}
		want := []string{
			"move running 0/2 of= by=", "undo finished 5/5 of=" + move.Run + " by=",
			"move undone 5/5 of= by=" + undo.Run,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestUnknownQueue checks that messages are not sent to a queue that nobody reads and that does not exist.
func TestUnknownQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueues(t, 3)
		if err := store.Create(ctx, "orders-poison"); err != nil {
			t.Fatal(err)
		}
		a := newAccount(t, store)
		a.Account.AppQueues = append(a.Account.AppQueues, "async-caller-1")
		requeue := func(to string) error {
			request := operation.Retry{To: to}
			p, err := a.PlanRetryPoison(ctx, account.Source{}, request)
			if err == nil {
				p.Discard(ctx)
			}
			_, _, previewed := a.Preview(ctx, account.Source{}, request, func(account.Found, string, []byte, error) {})
			if errors.Is(err, storage.ErrNoQueue) != errors.Is(previewed, storage.ErrNoQueue) {
				t.Errorf("%s: %v, but the preview says %v", to, err, previewed)
			}
			return err
		}
		move := func(to string) error {
			p, err := a.PlanMove(ctx, account.Source{}, to)
			if err == nil {
				p.Discard(ctx)
			}
			return err
		}
		for name, do := range map[string]func(string) error{"requeue": requeue, "move": move} {
			err := do("parkign")
			if !errors.Is(err, storage.ErrNoQueue) {
				t.Errorf("%s to a misspelt queue: %v", name, err)
			}
			wantError(t, err, "did you mean parking?", "orders-poison", "queue create --name parkign")
			if err := do("parking"); err != nil {
				t.Errorf("%s to a queue that exists: %v", name, err)
			}
		}
		for _, to := range []string{"async-caller-1", "orders"} { // of the app, and of another one
			if err := requeue(to); err != nil {
				t.Errorf("requeue to %s: %v", to, err)
			}
		}
		for to, warns := range map[string]bool{
			"": false, "parking": true, "async-caller-1": false, "orders": false,
			mainQueue: false,
		} {
			warning, err := a.CheckRetry(ctx, operation.Retry{To: to})
			if err != nil || strings.Contains(warning, "no function of the app reads parking") != warns {
				t.Errorf("%q: %q, %v", to, warning, err)
			}
		}
	})
}
