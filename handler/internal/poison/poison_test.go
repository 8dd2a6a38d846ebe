package poison_test

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

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// mixed returns a store with every kind of message on the poison queue, and messages on other queues.
func mixed(t *testing.T) *memory.Queues {
	t.Helper()
	store := newQueues(t, 3)
	put(t, store, poisonQueue, hostCopy("host"), week)
	put(t, store, poisonQueue, "not base64", week)
	put(t, store, poisonQueue, storage.Base64.Encode([]byte("not JSON")), 0)
	for _, name := range []string{"other", "other-poison", parking} {
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	put(t, store, "other-poison", deadLetter("other", "other"), 0)
	put(t, store, parking, deadLetter("parked", mainQueue), 0)
	put(t, store, parking, deadLetter("lost", "evil"), 0)
	put(t, store, mainQueue, hostCopy("live"), 0)
	return store
}

// found returns the request ID of a message or, if it has none, its reason.
func found(m message.Message) string {
	if m.RequestID == "" {
		return m.Reason
	}
	return m.RequestID
}

func TestList(t *testing.T) {
	for name, c := range map[string]struct {
		source poison.Source
		want   []string
	}{
		"every_poison_queue": {poison.Source{}, []string{"r0", "r1", "r2", "host", "undecodable", "malformed", "other"}},
		"one_queue":          {poison.Source{Queues: []string{"other-poison"}}, []string{"other"}},
		"a_queue_beside":     {poison.Source{Queues: []string{parking}}, []string{"parked", "lost"}},
		"live_by_force":      {poison.Source{Queues: []string{mainQueue}, Force: true}, []string{"live"}},
		"ids":                {poison.Source{IDs: []string{"r2", "host", "nobody"}}, []string{"r2", "host"}},
		"ids_and_filter":     {poison.Source{IDs: []string{"r2", "host"}, Filter: message.Filter{Reasons: []string{"rejected"}}}, []string{"r2"}},
		"filter":             {poison.Source{Filter: message.Filter{Reasons: []string{message.HostGaveUp}}}, []string{"host"}},
		"limit":              {poison.Source{Limit: 2}, []string{"r0", "r1"}},
		"limit_and_filter":   {poison.Source{Limit: 1, Filter: message.Filter{Text: "orders/r2"}}, []string{"r2"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := mixed(t)
				before := store.All(poisonQueue)
				var got []string
				listed, err := newAccount(t, store).List(t.Context(), c.source, func(f poison.Found) { got = append(got, found(f.Message)) })
				if err != nil || listed.Matched != len(c.want) || listed.Hidden != 0 {
					t.Errorf("%+v, %v", listed, err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if diff := cmp.Diff(before, store.All(poisonQueue)); diff != "" {
					t.Errorf("the queue has changed:\n%s", diff)
				}
			})
		})
	}
}

func TestListRefused(t *testing.T) {
	store := mixed(t)
	put(t, store, "other", hostCopy("x"), 0)
	a := newAccount(t, store)
	for name, words := range map[string][]string{
		mainQueue: {"a function app reads it", "async-caller-poison", "--force"},
		"other":   {"it has a poison queue", "other-poison"},
		"nowhere": {"does not exist", "async-caller-poison, other-poison"},
	} {
		_, err := a.List(t.Context(), poison.Source{Queues: []string{name}}, func(f poison.Found) { t.Errorf("%s: shown %s", name, f.ID) })
		wantError(t, err, append(words, name)...)
		_, err = a.PlanDelete(t.Context(), poison.Source{Queues: []string{name}}, poison.Delete{})
		wantError(t, err, append(words, name)...)
	}
	if _, err := a.PlanMove(t.Context(), poison.Source{}, poison.Move{To: mainQueue, Create: true}); !errors.Is(err, poison.ErrAppQueue) {
		t.Errorf("move to a live queue: %v", err)
	}
	if _, err := a.PlanMove(t.Context(), poison.Source{}, poison.Move{To: "No Queue", Create: true}); err == nil {
		t.Error("move to an invalid name")
	}
	if _, err := a.PlanRequeue(t.Context(), poison.Source{}, poison.Requeue{To: "No Queue"}); err == nil {
		t.Error("requeue to an invalid name")
	}
	if n := len(must(a.Runs.List())); n != 0 {
		t.Errorf("%d journals of runs that were refused", n)
	}
}

func TestQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		began := time.Now().UTC()
		advance(time.Hour)
		put(t, store, "other-poison", deadLetter("later", "other"), 0)
		must(store.Receive(t.Context(), "other-poison", 1, time.Minute))
		got, err := newAccount(t, store).Queues(t.Context())
		want := []poison.QueueSummary{
			{
				Queue: poisonQueue, Main: mainQueue, Messages: 6, Oldest: began, Newest: began, Expiring: 2, NextExpiry: began.Add(week),
				Reasons: []poison.ReasonCount{{"rejected", 3}, {"host_gave_up", 1}, {"malformed", 1}, {"undecodable", 1}},
			},
			{
				Queue: "other-poison", Main: "other", Messages: 2, Hidden: 1, Oldest: began.Add(time.Hour), Newest: began.Add(time.Hour),
				Reasons: []poison.ReasonCount{{"rejected", 1}},
			},
			{Queue: parking, Moved: true, Messages: 2, Oldest: began, Newest: began, Reasons: []poison.ReasonCount{{"rejected", 2}}},
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	})
}

// TestQueuesMoved checks which queues count as queues to which messages were moved.
func TestQueuesMoved(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"dead_letter":     {deadLetter("r1", mainQueue), true},
		"raw_dead_letter": {string(must(storage.Base64.Decode(deadLetter("r1", mainQueue)))), true},
		"malformed":       {storage.Base64.Encode([]byte("{")), false},
		"envelope":        {hostCopy("r1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				store := newQueues(t, 0)
				a := newAccount(t, store)
				if err := store.Create(ctx, parking); err != nil {
					t.Fatal(err)
				}
				put(t, store, parking, c.text, 0)
				put(t, store, mainQueue, deadLetter("moved back", mainQueue), 0) // a function reads it
				got := must(a.Queues(ctx))
				if moved := got[1:]; len(moved) > 0 != c.want || c.want && (moved[0].Queue != parking || !moved[0].Moved || moved[0].Messages != 1) {
					t.Errorf("%+v", got)
				}
				for _, m := range store.All(parking) {
					if m.DequeueCount > 0 {
						t.Errorf("a message was received: %+v", m)
					}
				}
			})
		})
	}
}

func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		put(t, store, poisonQueue, deadLetter("r0", mainQueue), 0)
		a := newAccount(t, store)
		first := store.All(poisonQueue)[1]
		for _, id := range []string{"r1", first.ID, strings.ToUpper(first.ID)} {
			f, err := a.Find(t.Context(), poison.Source{}, id)
			if err != nil || f.ID != first.ID || f.Text != first.Text || !strings.HasPrefix(string(f.Content), "{") {
				t.Errorf("%s: %+v, %v", id, f, err)
			}
		}
		_, err := a.Find(t.Context(), poison.Source{}, "r0")
		if !errors.Is(err, poison.ErrAmbiguous) {
			t.Errorf("two with one id: %v", err)
		}
		wantError(t, err, store.All(poisonQueue)[0].ID, poisonQueue)
		if _, err = a.Find(t.Context(), poison.Source{}, first.ID[:8]); !errors.Is(err, poison.ErrAmbiguous) {
			t.Errorf("a common prefix: %v", err)
		}
		_, err = a.Find(t.Context(), poison.Source{}, "nobody\x1b[31m")
		if !errors.Is(err, poison.ErrNothing) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("nobody: %q", err)
		}
		must(store.Receive(t.Context(), poisonQueue, 3, time.Hour))
		_, err = a.Find(t.Context(), poison.Source{}, "r1")
		wantError(t, err, "3 messages cannot be seen")
	})
}

// TestPlan checks that a plan reserves only the selected messages, and changes nothing.
func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueues(t, 100)
		before := texts(store, poisonQueue)
		a := newAccount(t, store)
		p := mustPlan(t)(a.PlanMove(ctx, poison.Source{Filter: message.Filter{Text: "orders/r1"}}, poison.Move{To: parking, Create: true}))
		meant := 11 // r1 and r10 to r19
		want := map[string]int{poisonQueue: meant}
		if p.Total != meant || p.Hidden != 0 || p.Refused != 0 || !cmp.Equal(p.From, want) || !cmp.Equal(p.To, map[string]int{parking: meant}) {
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
		r := execute(t, mustPlan(t)(a.PlanMove(t.Context(), poison.Source{Limit: 40}, poison.Move{To: parking, Create: true})))
		advance(10 * time.Second)
		if r.Done != 40 || len(store.All(parking)) != 40 || len(store.All(poisonQueue)) != 60 || len(hidden(store, poisonQueue)) > 0 {
			t.Errorf("%+v; %d moved, %d left, %d of them hidden", r, len(store.All(parking)), len(store.All(poisonQueue)), len(hidden(store, poisonQueue)))
		}
	})
}

// TestRequeue checks that messages are sent to their own queues, and that the refused ones have a reason.
func TestRequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		a := newAccount(t, store)
		p := mustPlan(t)(a.PlanRequeue(t.Context(), poison.Source{}, poison.Requeue{}))
		if p.Total != 5 || p.Refused != 2 || len(p.Refusals) != 2 {
			t.Errorf("%+v", p)
		}
		for _, r := range p.Refusals {
			want := map[string]string{message.Undecodable: "--fix-encoding", message.Malformed: "malformed"}[r.Message.Reason]
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
		see := func(f poison.Found, to string, after []byte, why error) {
			if why != nil {
				refused[found(f.Message)] = why.Error()
				return
			}
			if len(after) == 0 || strings.Contains(string(after), "deadLetter") {
				t.Errorf("%s would be %s", f.ID, after)
			}
			homes[found(f.Message)] = to
		}
		source := poison.Source{Queues: []string{poisonQueue, "other-poison", parking}}
		listed, err := a.Preview(t.Context(), source, poison.Requeue{}, see)
		if err != nil || listed.Matched != 10 {
			t.Errorf("%+v, %v", listed, err)
		}
		want := map[string]string{
			"r0": mainQueue, "r1": mainQueue, "r2": mainQueue, "host": mainQueue, "liar": mainQueue, "other": "other",
		}
		if diff := cmp.Diff(want, homes); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if len(refused) != 4 || !strings.Contains(refused["lost"], "--to") || !strings.Contains(refused["parked"], "--to") {
			t.Errorf("refused: %q", refused)
		}
		if _, err = a.Preview(t.Context(), source, poison.Requeue{To: "third", Create: true}, see); err != nil || homes["lost"] != "third" {
			t.Errorf("with --to it goes to %q, %v", homes["lost"], err)
		}
		if contents(store) != before || len(hidden(store, poisonQueue)) > 0 || len(must(a.Runs.List())) > 0 {
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
	for _, operation := range []string{"put", "delete"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 100)
				ctx, cancel := context.WithCancel(context.Background())
				n := 0
				a := newAccount(t, &tap{Queues: store, before: func(o string) error {
					if o == operation {
						if n++; n == 30 {
							cancel()
						}
					}
					return nil
				}})
				p := mustPlan(t)(a.PlanMove(ctx, poison.Source{}, poison.Move{To: parking, Create: true}))
				r, err := p.Execute(ctx)
				if err != nil || r.NotDeleted != 0 || r.Left == 0 || r.Left+r.Done != 100 || r.Done < 29 || r.Done > 30+2*inFlight || r.Finished() {
					t.Errorf("%+v, %v", r, err)
				}
				advance(run.ClaimTime + time.Minute)
				if len(store.All(poisonQueue)) != r.Left || len(hidden(store, poisonQueue)) > 0 || len(calls(store, parking)) != r.Done {
					t.Errorf("%d left, %d of them hidden, %d moved: %+v",
						len(store.All(poisonQueue)), len(hidden(store, poisonQueue)), len(calls(store, parking)), r)
				}
				if s := summaries(t, a); len(s) != 1 || s[0].State != "interrupted" || s[0].Done != r.Done || s[0].Total != 100 {
					t.Errorf("%+v", s)
				}
				if r, err = a.Resume(context.Background(), r.Run); err != nil || r.Done != 100 || !r.Finished() || r.PossibleDuplicates != 0 {
					t.Errorf("resumed: %+v, %v", r, err)
				}
				if len(calls(store, parking)) != 100 || len(store.All(parking)) != 100 {
					t.Errorf("%d of 100 moved", len(store.All(parking)))
				}
			})
		})
	}
}

// TestTakenMeanwhile checks that a run skips messages that somebody else receives after the plan.
func TestTakenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueues(t, 10)
		a := newAccount(t, store)
		p := mustPlan(t)(a.PlanMove(ctx, poison.Source{}, poison.Move{To: parking, Create: true}))
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
		move := execute(t, mustPlan(t)(a.PlanMove(ctx, poison.Source{}, poison.Move{To: parking, Create: true})))
		advance(time.Second)
		undo := execute(t, mustPlan(t)(a.PlanUndo(ctx, move.Run)))
		advance(time.Second)
		open := mustPlan(t)(a.PlanMove(ctx, poison.Source{Limit: 2}, poison.Move{To: parking, Create: true}))
		defer open.Discard(ctx)
		var got []string
		for _, s := range summaries(t, a) {
			got = append(got, fmt.Sprintf("%s %s %d/%d of=%s by=%s", s.Command, s.State, s.Done, s.Total, s.Of, s.UndoneBy))
		}
		want := []string{
			"move running 0/2 of= by=", "undo finished 5/5 of=" + move.Run + " by=", "move undone 5/5 of= by=" + undo.Run,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestUnknownQueue checks that messages are not sent to a queue that nobody reads and that does not exist, unless the
// user wants it.
func TestUnknownQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueues(t, 3)
		for _, name := range []string{"parking", "orders-poison"} {
			if err := store.Create(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		a := newAccount(t, store)
		a.AppQueues = append(a.AppQueues, "async-caller-1")
		requeue := func(to string, create bool) error {
			request := poison.Requeue{To: to, Create: create}
			p, err := a.PlanRequeue(ctx, poison.Source{}, request)
			if err == nil {
				p.Discard(ctx)
			}
			_, previewed := a.Preview(ctx, poison.Source{}, request, func(poison.Found, string, []byte, error) {})
			if errors.Is(err, storage.ErrNoQueue) != errors.Is(previewed, storage.ErrNoQueue) {
				t.Errorf("%s: %v, but the preview says %v", to, err, previewed)
			}
			return err
		}
		move := func(to string, create bool) error {
			p, err := a.PlanMove(ctx, poison.Source{}, poison.Move{To: to, Create: create})
			if err == nil {
				p.Discard(ctx)
			}
			return err
		}
		for name, do := range map[string]func(string, bool) error{"requeue": requeue, "move": move} {
			err := do("parkign", false)
			if !errors.Is(err, storage.ErrNoQueue) {
				t.Errorf("%s to a misspelt queue: %v", name, err)
			}
			wantError(t, err, "did you mean parking?", "orders-poison", "--create")
			if err := do("parkign", true); err != nil {
				t.Errorf("%s with --create: %v", name, err)
			}
			if err := do("parking", false); err != nil {
				t.Errorf("%s to a queue that exists: %v", name, err)
			}
		}
		for _, to := range []string{"async-caller-1", "orders"} { // of the app, and of another one
			if err := requeue(to, false); err != nil {
				t.Errorf("requeue to %s: %v", to, err)
			}
		}
		for to, warns := range map[string]bool{"": false, "parking": true, "async-caller-1": false, "orders": false, mainQueue: false} {
			warning, err := a.CheckRequeue(ctx, poison.Requeue{To: to})
			if err != nil || strings.Contains(warning, "no function of the app reads parking") != warns {
				t.Errorf("%q: %q, %v", to, warning, err)
			}
		}
	})
}
