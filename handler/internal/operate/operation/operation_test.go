package operation_test

import (
	"context"
	"errors"
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
	_, err = a.PlanMove(t.Context(), account.Source{}, mainQueue)
	if !errors.Is(err, account.ErrAppQueue) {
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
		p := mustPlan(t)(a.PlanMove(ctx, account.Source{Filter: message.Filter{Text: "orders/r1"}}, parking))
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
		store := newQueues(t, 40)
		a := newAccount(t, store)
		r := execute(t, mustPlan(t)(a.PlanMove(t.Context(), account.Source{Limit: 10}, parking)))
		advance(10 * time.Second)
		moved, left, away := len(store.All(parking)), len(store.All(poisonQueue)), len(hidden(store, poisonQueue))
		if r.Done != 10 || moved != 10 || left != 30 || away > 0 {
			t.Errorf("%+v; %d moved, %d left, %d of them hidden", r, moved, left, away)
		}
	})
}

// TestRequeue: messages are sent to their own queues, whichever a dead letter names, and the refused ones have a
// reason. A preview says the same, and changes nothing.
func TestRequeue(t *testing.T) {
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
		for who, why := range map[string]string{
			"lost": "--to", "parked": "--to", message.Undecodable: "--fix-encoding", message.Malformed: "malformed",
		} {
			if !strings.Contains(refused[who], why) || len(refused) != 4 {
				t.Errorf("%s is refused: %q of %q", who, refused[who], refused)
			}
		}
		_, _, err = a.Preview(t.Context(), source, operation.Retry{To: "other"}, see)
		if err != nil || homes["lost"] != "other" {
			t.Errorf("with --to it goes to %q, %v", homes["lost"], err)
		}
		wasTaken := func(m storage.Message) bool { return m.DequeueCount > 0 }
		isTaken := slices.ContainsFunc(store.All(poisonQueue), wasTaken)
		if contents(store) != before || isTaken || len(must(a.Journals.List())) > 0 {
			t.Error("the preview has changed something")
		}
		p := mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{}))
		if p.Total != 6 || p.Refused != 2 || len(p.Refusals) != 2 || p.Reasons["rejected"] != 5 ||
			p.Hosts["t.example"] != 6 || p.Tenants["no tenant"] != 6 {
			t.Errorf("%+v", p)
		}
		execute(t, p)
		sent := map[string]int{"r0": 1, "r1": 1, "r2": 1, "host": 1, "live": 1, "liar": 1, "other": 1}
		if diff := cmp.Diff(sent, calls(store, mainQueue, "other")); diff != "" {
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
		requeue := func(to string) (*operation.Plan, error) {
			return a.PlanRetryPoison(ctx, account.Source{}, operation.Retry{To: to})
		}
		move := func(to string) (*operation.Plan, error) { return a.PlanMove(ctx, account.Source{}, to) }
		for name, plan := range map[string]func(string) (*operation.Plan, error){"requeue": requeue, "move": move} {
			_, err := plan("parkign")
			if !errors.Is(err, storage.ErrNoQueue) {
				t.Errorf("%s to a misspelt queue: %v", name, err)
			}
			wantError(t, err, "did you mean parking?", "orders-poison", "queue create --name parkign")
			mustPlan(t)(plan(parking)).Discard(ctx)
		}
		_, _, err := a.Preview(ctx, account.Source{}, operation.Retry{To: "parkign"},
			func(account.Found, string, []byte, error) {})
		if !errors.Is(err, storage.ErrNoQueue) {
			t.Errorf("preview: %v", err)
		}
		for _, to := range []string{"async-caller-1", "orders"} { // of the app, and of another one
			mustPlan(t)(requeue(to)).Discard(ctx)
		}
		for to, warns := range map[string]bool{
			"": false, "parking": true, "async-caller-1": false, "orders": false, mainQueue: false,
		} {
			warning, err := a.CheckRetry(ctx, operation.Retry{To: to})
			if err != nil || strings.Contains(warning, "no function of the app reads parking") != warns {
				t.Errorf("%q: %q, %v", to, warning, err)
			}
		}
	})
}
