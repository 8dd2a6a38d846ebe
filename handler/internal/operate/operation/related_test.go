package operation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage/rows"
)

func byID(ids ...string) account.Source {
	return account.Source{IDs: ids}
}

// warned returns the ids of the messages that warnings with this text name.
func warned(warnings []operation.Warning, why string) (ids []string) {
	for _, w := range warnings {
		if strings.Contains(w.Why, why) {
			for _, m := range w.Messages {
				ids = append(ids, m.ID)
			}
		}
	}
	return ids
}

// TestSecondMessage: a plan names a second message of a call that it changes, and a cancel does not tell the
// sender that a call was cancelled which may still be made. The row of a message that is gone is no second message.
func TestSecondMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 3)
		first := allRows(t, table)[0]
		gone := schedule(t, store, table, plannedCall("r0", 0), time.Second)
		if err := store.Delete(t.Context(), mainQueue, gone.ID, gone.PopReceipt); err != nil {
			t.Fatal(err)
		}
		advance(time.Hour)
		second := schedule(t, store, table, plannedCall("r0", later), later)
		foreign := schedule(t, store, table, plannedCall("r0", later), later)
		foreign.Organization = "another sender, who uses the same id"
		if err := rows.Put(t.Context(), table, foreign); err != nil {
			t.Fatal(err)
		}
		for name, plan := range map[string]func(s account.Source) (*operation.Plan, error){
			"expedite": func(s account.Source) (*operation.Plan, error) {
				return a.PlanExpedite(t.Context(), s, journal.Pace{})
			},
			"cancel": func(s account.Source) (*operation.Plan,
				error,
			) {
				return a.PlanCancel(t.Context(), s, false)
			},
			"callback": func(s account.Source) (*operation.Plan,
				error,
			) {
				return a.PlanCancel(t.Context(), s, true)
			},
		} {
			limited := everything()
			limited.Limit = 1
			for selection, source := range map[string]account.Source{"id": byID(first.ID), "limit": limited} {
				p := mustPlan(t)(plan(source))
				if got := warned(p.Warnings, "request id"); p.Total != 1 ||
					fmt.Sprint(got) != fmt.Sprint([]string{second.ID}) {
					t.Errorf("%s by %s: %+v", name, selection, p.Result)
				}
				if got := warned(p.Warnings, "no callback"); name == "callback" &&
					(len(p.To) > 0 || len(got) != 1 || got[0] != first.ID) {
					t.Errorf("callbacks to %v: %+v", p.To, p.Result)
				}
				p.Discard(t.Context())
			}
			for selection, source := range map[string]account.Source{
				"request_id": byID("r0"),
				"all":        everything(),
			} {
				p := mustPlan(t)(plan(source))
				if len(p.Warnings) != 0 || name == "callback" && p.To[mainQueue] != p.Total {
					t.Errorf("%s by %s: %+v, callbacks to %v", name, selection, p.Result, p.To)
				}
				p.Discard(t.Context())
			}
		}
		r := execute(t, mustPlan(t)(a.PlanCancel(t.Context(), byID(first.ID), false)))
		if len(warned(r.Warnings, "request id")) != 1 {
			t.Errorf("the result does not name it: %+v", r)
		}
	})
}

// TestManySecondMessages: a plan names only the first of many, and counts all.
func TestManySecondMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 1)
		first := allRows(t, table)[0]
		for range 500 {
			schedule(t, store, table, plannedCall("r0", later), later)
		}
		p := mustPlan(t)(a.PlanCancel(t.Context(), byID(first.ID), false))
		defer p.Discard(t.Context())
		if len(p.Warnings) != 1 || p.Warnings[0].Count != 500 || len(p.Warnings[0].Messages) > 20 {
			t.Errorf("%+v", p.Result)
		}
	})
}

// TestRepeatedWrite: when the handler's write was repeated, another message of the call may exist, of which nobody
// knows. The sender is not told that the call was cancelled, and the row of an undo still says so.
func TestRepeatedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, table := newScheduled(t, 2)
		row := allRows(t, table)[0]
		row.Repeated = true
		if err := rows.Put(t.Context(), table, row); err != nil {
			t.Fatal(err)
		}
		p := mustPlan(t)(a.PlanCancel(t.Context(), everything(), true))
		for _, why := range []string{"no callback", "did not answer"} {
			if got := warned(p.Warnings, why); len(got) != 1 || got[0] != row.ID {
				t.Errorf("%s: %+v", why, p.Result)
			}
		}
		if p.To[mainQueue] != 1 {
			t.Errorf("callbacks to %v", p.To)
		}
		r := execute(t, p)
		execute(t, mustPlan(t)(a.PlanUndo(t.Context(), r.Run)))
		repeated := 0
		for _, row := range allRows(t, table) {
			if row.Repeated {
				repeated++
			}
		}
		if repeated != 1 {
			t.Errorf("%d rows say that the write was repeated", repeated)
		}
	})
}

// TestUndoLostAnswer: the row of a message that an undo has written twice says so.
func TestUndoLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 1)
		r := execute(t, mustPlan(t)(a.PlanCancel(context.Background(), everything(), false)))
		lost := false
		a.Account.Store = &tap{Queues: store, after: func(operation string) error {
			if operation != "put" || lost {
				return nil
			}
			lost = true
			return errNoAnswer
		}}
		execute(t, mustPlan(t)(a.PlanUndo(t.Context(), r.Run)))
		if all := allRows(t, table); len(all) != 1 || !all[0].Repeated || len(store.All(mainQueue)) != 2 {
			t.Errorf("%d messages, %+v", len(store.All(mainQueue)), all)
		}
	})
}
