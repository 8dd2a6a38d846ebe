package operation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// setting returns edits that set members, as --set does.
func setting(t *testing.T, arguments ...string) operation.Edit {
	t.Helper()
	var e operation.Edit
	for _, argument := range arguments {
		set, err := edit.ParseSet(argument)
		if err != nil {
			t.Fatal(err)
		}
		e.Options.Edits = append(e.Options.Edits, set)
	}
	return e
}

// onlyMessage returns the only message of the main queue, and its envelope.
func onlyMessage(t *testing.T, a *operation.Operations, store *memory.Queues) (storage.Message, *envelope.Envelope) {
	t.Helper()
	all := store.All(mainQueue)
	if len(all) != 1 {
		t.Fatalf("%d messages", len(all))
	}
	e, err := envelope.Parse(a.Account.Rules.Content(all[0].Text))
	if err != nil {
		t.Fatal(err)
	}
	return all[0], e
}

// onlyRow returns the only row of a table.
func onlyRow(t *testing.T, table storage.Table) record.Row {
	t.Helper()
	all := allRows(t, table)
	if len(all) != 1 {
		t.Fatalf("%d rows", len(all))
	}
	return all[0]
}

// withTicket returns a planned call that has a place in the line of a limit.
func withTicket(requestID string) []byte {
	return []byte(strings.Replace(string(plannedCall(requestID, later)), `"attempts"`, `"reserved":7,"attempts"`, 1))
}

// TestEdit: an edit changes the call of a message and its row. The rest stays, but for the ticket, and the undo
// restores the message and its row.
func TestEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 0)
		row := schedule(t, store, table, withTicket("r0"), later)
		before, was := onlyMessage(t, a, store)
		if was.Ticket != 7 {
			t.Fatalf("ticket %d", was.Ticket)
		}
		advance(time.Minute + 300*time.Millisecond)
		r := execute(t, mustPlan(t)(a.PlanEdit(t.Context(), everything(),
			setting(t, "call.url=https://u.example/carts/7", "call.json.a=2"))))
		m, e := onlyMessage(t, a, store)
		if r.Done != 1 || m.ID != before.ID || string(e.Call.Body.Bytes()) != `{"a":2}` ||
			e.Call.URL != "https://u.example/carts/7" {
			t.Fatalf("%+v: %+v", r, e)
		}
		if e.Attempts != was.Attempts || !e.CreatedAt.Equal(was.CreatedAt) || !e.Deadline.Equal(was.Deadline) ||
			!e.NextAttemptAt.Equal(was.NextAttemptAt) || len(e.Trail) != 1 || string(e.Context) != `{"x":"y"}` ||
			e.Ticket != 0 || e.Run != "" || e.RequestID != "r0" {
			t.Errorf("the delivery has changed: %+v", e)
		}
		if late := m.NextVisibleAt.Sub(row.NextAttemptAt); late < 0 || late > time.Second {
			t.Errorf("it is visible %v after it is due", late)
		}
		changed := onlyRow(t, table)
		if changed.PopReceipt != m.PopReceipt || changed.TargetHost != "u.example" ||
			changed.PathPattern != "/carts/{n}" || !changed.NextAttemptAt.Equal(row.NextAttemptAt) ||
			!changed.Deadline.Equal(row.Deadline) || changed.Reason != row.Reason ||
			storage.Base64.Encode(changed.Content) != m.Text {
			t.Errorf("%+v", changed)
		}
		advance(time.Minute)
		undo := execute(t, mustPlan(t)(a.PlanUndo(t.Context(), r.Run)))
		m, _ = onlyMessage(t, a, store)
		restored := onlyRow(t, table)
		if undo.Done != 1 || m.Text != before.Text || m.NextVisibleAt.Before(row.NextAttemptAt) ||
			restored.PopReceipt != m.PopReceipt || restored.TargetHost != "t.example" ||
			!restored.Deadline.Equal(row.Deadline) {
			t.Errorf("%+v: %+v, %+v", undo, m, restored)
		}
		if r := execute(t, mustPlan(t)(a.PlanDeleteScheduled(t.Context(), everything(), false))); r.Done != 1 {
			t.Errorf("the row is not valid: %+v", r)
		}
	})
}

// TestEditUndoLate: an undo after the message was due makes it due at once if it is still there.
func TestEditUndoLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, _ := newScheduled(t, 1)
		before, _ := onlyMessage(t, a, store)
		r := execute(t, mustPlan(t)(a.PlanEdit(t.Context(), everything(), setting(t, "call.method=PUT"))))
		advance(2 * later)
		execute(t, mustPlan(t)(a.PlanUndo(t.Context(), r.Run)))
		if m, _ := onlyMessage(t, a, store); m.Text != before.Text || len(hidden(store, mainQueue)) != 0 {
			t.Errorf("%+v", m)
		}
	})
}

// TestEditNewRequestID: the id differs for each message, and the rows have it.
func TestEditNewRequestID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, table := newScheduled(t, 3)
		execute(t, mustPlan(t)(a.PlanEdit(t.Context(), everything(), operation.Edit{NewRequestID: true})))
		ids := map[string]bool{}
		for _, row := range allRows(t, table) {
			ids[row.RequestID] = true
		}
		if len(ids) != 3 || ids[""] || ids["r0"] || ids["r1"] || ids["r2"] {
			t.Errorf("%v", ids)
		}
	})
}

// TestEditNexus: a Nexus message keeps its format and what the C# app needs.
func TestEditNexus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 0)
		row := schedule(t, store, table, []byte(nexusOf(-time.Hour, later, 5*time.Hour)), later)
		execute(t, mustPlan(t)(a.PlanEdit(t.Context(), everything(), setting(t, "call.url=https://u.example/2"))))
		_, e := onlyMessage(t, a, store)
		if e.Format() != envelope.FormatNexus || e.Call.Target.Host != "u.example" ||
			!e.Deadline.Equal(row.Deadline) || e.OriginalRequestID != "n1" && e.RequestID != "n1" {
			t.Errorf("%+v", e)
		}
	})
}

// TestEditRefused: the plan refuses messages that the handler would refuse, and edits that are none.
func TestEditRefused(t *testing.T) {
	past := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	soon := time.Now().Add(later / 2).UTC().Format(time.RFC3339)
	for name, test := range map[string]struct {
		argument string
		want     string // empty if it is not refused
	}{
		"malformed":       {"call.url=none", "would be malformed"},
		"retry":           {"retry=no-such", "retry policy"},
		"private":         {"call.url=https://169.254.169.254/", "must not be called"},
		"too_large":       {"call.url=https://t.example/" + strings.Repeat("x", 48<<10), "bytes"},
		"no_room":         {"call.body=" + strings.Repeat("x", 48<<10-len(plannedCall("r0", later))-50), "no room for"},
		"same":            {"call.method=POST", ""},
		"same_url":        {"call.url=https://t.example/orders/1", "change nothing"},
		"attempts":        {"attempts=0", "stay"},
		"next":            {"nextAttemptAt=" + past, "stay"},
		"run":             {"run=T0KEN", "stay"},
		"ticket":          {"reserved=3", "stay"},
		"dead_letter":     {`deadLetter={"reason":"x"}`, "stay"},
		"deadline_passed": {"deadline=" + past, "has passed"},
		"deadline_early":  {"deadline=" + soon, "before the next attempt"},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, _ := newScheduled(t, 1)
			p, err := a.PlanEdit(t.Context(), everything(), setting(t, test.argument))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Discard(context.Background())
			switch {
			case test.want == "" && p.Total != 1:
				t.Errorf("refused: %+v", p.Refusals)
			case test.want != "" && (p.Refused != 1 || !strings.Contains(p.Refusals[0].Why, test.want)):
				t.Errorf("planned %d, refused %+v, want %q", p.Total, p.Refusals, test.want)
			}
		})
	}
}

// TestEditRefusedMessages: some messages cannot be edited, or not like this.
func TestEditRefusedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 0)
		schedule(t, store, table, []byte("not an envelope"), later)
		n := schedule(t, store, table, []byte(nexusOf(-time.Hour, later, 5*time.Hour)), later)
		timeless := schedule(t, store, table, plannedCall("r1", later), later)
		timeless.NextAttemptAt = time.Time{}
		if err := rows.Put(t.Context(), table, timeless); err != nil {
			t.Fatal(err)
		}
		jq, err := edit.ParseJQ(`.call.method = "PUT"`)
		if err != nil {
			t.Fatal(err)
		}
		p := mustPlan(t)(a.PlanEdit(t.Context(), everything(), operation.Edit{Options: edit.Options{
			Edits: edit.Edits{jq},
		}}))
		defer p.Discard(context.Background())
		if p.Total != 0 || p.Refused != 3 {
			t.Errorf("%+v", p.Refusals)
		}
		a.Account.Rules.Routed = []string{mainQueue}
		source := account.Source{IDs: []string{n.ID}}
		routed := mustPlan(t)(a.PlanEdit(t.Context(), source, setting(t, "call.method=PUT")))
		defer routed.Discard(context.Background())
		if routed.Refused != 1 || !strings.Contains(routed.Refusals[0].Why, "route") {
			t.Errorf("%+v", routed.Refusals)
		}
		e := operation.Edit{Original: []byte("older"), Options: edit.Options{Edited: plannedCall("r1", later)}}
		source.IDs = []string{timeless.ID}
		timeless.NextAttemptAt = time.Now().Add(later)
		if err := rows.Put(t.Context(), table, timeless); err != nil {
			t.Fatal(err)
		}
		a.Account.Rules.Routed = nil
		old := mustPlan(t)(a.PlanEdit(t.Context(), source, e))
		defer old.Discard(context.Background())
		if old.Refused != 1 || !strings.Contains(old.Refusals[0].Why, "editor") {
			t.Errorf("%+v", old.Refusals)
		}
	})
}

// TestEditWithoutEffect: an edit that adds a member without effect stops the plan, unless it is forced.
func TestEditWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, _ := newScheduled(t, 2)
		e := setting(t, "call.jsn.quantity=1")
		_, err := a.PlanEdit(t.Context(), everything(), e)
		if !errors.Is(err, operation.ErrNoEffect) {
			t.Errorf("%v", err)
		}
		wantError(t, err, "call.jsn", "did you mean call.json?", "--force")
		if runs := must(a.Journals.List()); len(runs) != 0 {
			t.Errorf("it has left %v", runs)
		}
		shown := 0
		e.Force, e.Show = true, func(_ message.Message, before, after []byte) {
			if string(before) != string(after) {
				shown++
			}
		}
		p := mustPlan(t)(a.PlanEdit(t.Context(), everything(), e))
		if len(p.Warnings) != 1 || p.Warnings[0].Count != 2 || shown != 2 {
			t.Errorf("%+v, %d shown", p.Warnings, shown)
		}
		execute(t, p)
		for _, m := range store.All(mainQueue) {
			if !strings.Contains(string(a.Account.Rules.Content(m.Text)), `"jsn"`) {
				t.Error("not sent")
			}
		}
	})
}

// TestEditRow: the row is written only if it is still that of the message that was edited.
func TestEditRow(t *testing.T) {
	for _, left := range []string{"", "/newer"} { // the path pattern of the row that is left, if there is one
		synctest.Test(t, func(t *testing.T) {
			a, _, table := newScheduled(t, 1)
			p := mustPlan(t)(a.PlanEdit(t.Context(), everything(), setting(t, "call.url=https://u.example/x")))
			row := onlyRow(t, table)
			var err error
			if left == "" {
				err = table.Delete(t.Context(), []storage.Key{row.Key})
			} else {
				row.PopReceipt, row.PathPattern = "newer", left
				err = rows.Put(t.Context(), table, row)
			}
			if err != nil {
				t.Fatal(err)
			}
			r := execute(t, p)
			got := ""
			for _, row := range allRows(t, table) {
				got += row.PathPattern
			}
			if r.Done != 1 || got != left {
				t.Errorf("%+v, rows %q, want %q", r, got, left)
			}
		})
	}
}

// awayTable is a table that does not answer writes.
type awayTable struct{ *memory.Table }

func (awayTable) Replace(context.Context, storage.Entity) (string, error) { return "", errNoAnswer }

// TestEditRowLost: a table that does not answer delays a run once, and the run says that the record is out of date.
func TestEditRowLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, table := newScheduled(t, 50)
		a.Account.Table = awayTable{table}
		said := &notes{}
		a.Observer = said
		began := time.Now()
		r := execute(t, mustPlan(t)(a.PlanEdit(t.Context(), everything(), setting(t, "call.method=PUT"))))
		if took := time.Since(began); r.Done != 50 || took > 20*time.Second {
			t.Errorf("%+v after %v", r, took)
		}
		if len(said.said) != 1 || !strings.Contains(said.said[0], "the record of 50 messages is out of date") {
			t.Errorf("%q", said.said)
		}
	})
}

// TestEditLostAnswer: without an answer it is not known whether a message was changed. Its row stays.
func TestEditLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 1)
		lost := false
		a.Account.Store = &tap{Queues: store, after: func(operation string) error {
			if operation == "update" && !lost {
				lost = true
				return errNoAnswer
			}
			return nil
		}}
		r, err := mustPlan(t)(a.PlanEdit(t.Context(), everything(), setting(t, "call.method=PUT"))).Execute(t.Context())
		if err != nil || r.Unknown != 1 || !strings.Contains(r.Why[0], "changed, or unchanged until its next attempt") {
			t.Errorf("%+v, %v", r, err)
		}
		onlyRow(t, table)
		_, err = a.PlanUndo(t.Context(), r.Run)
		wantError(t, err, "not known")
	})
}
