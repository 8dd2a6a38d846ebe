package operation_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
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

// TestSecondMessage: a cancel does not tell the sender that a call was cancelled which may still be made, because a
// second message of it is not selected. The row of a message that is gone is no second message.
func TestSecondMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 3)
		first, other := allRows(t, table)[0], allRows(t, table)[1]
		gone := schedule(t, store, table, plannedCall(other.RequestID, 0), time.Second)
		if err := store.Delete(t.Context(), mainQueue, gone.ID, gone.PopReceipt); err != nil {
			t.Fatal(err)
		}
		advance(time.Hour)
		schedule(t, store, table, plannedCall(first.RequestID, later), later)
		foreign := schedule(t, store, table, plannedCall(other.RequestID, later), later)
		foreign.Organization = "another sender, who uses the same id"
		if err := rows.Put(t.Context(), table, foreign); err != nil {
			t.Fatal(err)
		}
		limited := everything()
		limited.Limit = 1
		for name, test := range map[string]struct {
			source   account.Source
			callback bool
			total    int
			untold   bool
		}{
			"id":          {byID(first.ID), true, 1, true},
			"limit":       {limited, true, 1, true},
			"request_id":  {byID("r0"), true, 2, false},
			"all":         {everything(), true, 6, false},
			"other_call":  {byID("r2"), true, 1, false},
			"gone":        {byID(other.ID), true, 1, false},
			"no_callback": {byID(first.ID), false, 1, false},
		} {
			p := mustPlan(t)(a.PlanDeleteScheduled(t.Context(), test.source, test.callback))
			got := warned(p.Warnings, "no callback")
			if p.Total != test.total || (len(got) == 1 && got[0] == first.ID) != test.untold || len(got) > 1 {
				t.Errorf("%s: %+v", name, p.Result)
			}
			if told := p.To[mainQueue]; (told == p.Total) != (test.callback && !test.untold) {
				t.Errorf("%s: %d callbacks", name, told)
			}
			p.Discard(t.Context())
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
		p := mustPlan(t)(a.PlanDeleteScheduled(t.Context(), everything(), true))
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
		r := execute(t, mustPlan(t)(a.PlanDeleteScheduled(context.Background(), everything(), false)))
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
