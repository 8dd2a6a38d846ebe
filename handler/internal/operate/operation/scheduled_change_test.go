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

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// later is the delay of the scheduled messages of these tests.
const later = 2 * time.Hour

// plannedCall returns a call that has a callback and was rescheduled by a delay.
func plannedCall(requestID string, delay time.Duration) []byte {
	now := time.Now().UTC()
	return fmt.Appendf(nil,
		`{"asyncCaller":1,"requestId":%q,"call":{"url":"https://t.example/orders/1","json":{"a": 1}},`+
			`"callback":{"url":"https://s.example/done"},"context":{"x":"y"},"custom":[1, `+
			`2],"createdAt":%q,"attempts":3,"latestAttemptAt":%q,`+
			`"nextAttemptAt":%q,"trail":[{"at":%[4]q,"status":503,"tookMs":7}]}`,
		requestID, now.Add(-time.Hour).Format(time.RFC3339), now.Add(-time.Minute).Format(time.RFC3339), now.Add(delay).
			Format(time.RFC3339))
}

// schedule puts a message with a delay on the main queue, and records it.
func schedule(
	t *testing.T, store storage.Queues, table storage.Table, content []byte, delay time.Duration,
) record.Row {
	t.Helper()
	text := storage.Base64.Encode(content)
	m, err := store.Put(t.Context(), mainQueue, storage.Item{Text: text, Delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	row := record.Row{
		Key:        storage.Key{Partition: mainQueue, ID: m.ID},
		PopReceipt: m.PopReceipt, RequestID: requestID(text), TargetHost: "t.example",
		PathPattern: "/orders/{n}",
		Reason:      "temporary_status", Status: 503, Attempts: 3, CreatedAt: time.Now().Add(-time.Hour),
		NextAttemptAt: time.Now().Add(delay),
		Content:       content,
	}
	if e, err := envelope.Parse(content); err == nil {
		row.Deadline = e.GiveUpAt(week)
	}
	if err := rows.Put(t.Context(), table, row); err != nil {
		t.Fatal(err)
	}
	return row
}

// newScheduled returns an account with n scheduled messages.
func newScheduled(t *testing.T, n int) (*operation.Operations, *memory.Queues, *memory.Table) {
	t.Helper()
	store, table := newQueues(t, 0), &memory.Table{}
	for i := range n {
		schedule(t, store, table, plannedCall(fmt.Sprintf("r%d", i), later), later)
	}
	a := newAccount(t, store)
	a.Account.Table = table
	return a, store, table
}

// allRows returns the rows of a table.
func allRows(t *testing.T, table storage.Table) (all []record.Row) {
	t.Helper()
	err := rows.ListWhole(context.Background(), table, storage.Query{}, func(row record.Row) error {
		all = append(all, row)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func everything() account.Source { return account.Source{} }

func planExpedite(ctx context.Context, a *operation.Operations, pace journal.Pace) (*operation.Plan, error) {
	return a.PlanRetryScheduled(ctx, everything(), pace)
}

// TestExpediteScheduled checks that expedite makes messages due at once and changes nothing else, except that a message
// loses the token of an earlier run.
func TestExpediteScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 5)
		ofRun := strings.Replace(string(plannedCall("r5", later)), `"call"`, `"run":"0LD","call"`, 1)
		schedule(t, store, table, []byte(ofRun), later)
		r := execute(t, mustPlan(t)(planExpedite(t.Context(), a, journal.Pace{})))
		if r.Done != 6 || r.PossibleDuplicates != 0 || len(hidden(store, mainQueue)) != 0 ||
			len(allRows(t, table)) != 0 {
			t.Fatalf("%+v, %d are invisible, %d rows", r, len(hidden(store, mainQueue)), len(allRows(t, table)))
		}
		for _, m := range store.All(mainQueue) {
			content := a.Account.Rules.Content(m.Text)
			e, err := envelope.Parse(content)
			if err != nil {
				t.Fatal(err)
			}
			want, err := envelope.Parse(plannedCall(e.RequestID, later))
			if err != nil {
				t.Fatal(err)
			}
			if e.DueAt().After(time.Now()) || e.Attempts != 3 || !e.CreatedAt.Equal(want.CreatedAt) ||
				len(e.Trail) != 1 || !e.Deadline.Equal(want.Deadline) ||
				!bytes.Equal(e.Call.Body.Bytes(), want.Call.Body.Bytes()) ||
				string(e.Context) != string(want.Context) ||
				!strings.Contains(string(content), `"custom":[1, 2]`) || e.Run != "" {
				t.Fatalf("it was changed to %s", content)
			}
		}
		_, err := a.PlanUndo(t.Context(), r.Run)
		if !errors.Is(err, run.ErrNothingLeft) {
			t.Errorf("undo: %v", err)
		}
		wantError(t, err, "due or delivered")
	})
}

// nexusOf returns a Nexus message. Its times count from now; a deadline of 0 is none.
func nexusOf(created, due, deadline time.Duration) string {
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	deadlineAt := "0001-01-01T00:00:00"
	if deadline != 0 {
		deadlineAt = at(deadline)
	}
	raw := storage.Base64.Encode([]byte("GET /orders/1 HTTP/1.1\r\nHost: t.example\r\n\r\n"))
	return fmt.Sprintf(`{"Id":"8a3bcb6e-4b8a-4f3f-9d0c-3a3a3a3a3a3a","RawRequest":{"CallOut":%q,`+
		`"CallOutUriScheme":"https","Title":"GET"},`+
		`"Organization":"o","Environment":"e","OriginalRequestId":"n1","DeliveryAttempts":2,"CreatedAt":%q,`+
		`"NextAttemptAt":%q,"DeadlineAt":%q}`,
		raw, at(created), at(due), deadlineAt)
}

// TestCancelScheduled checks that a cancel deletes messages, and that its undo restores them byte for byte for the time
// that remains, with their rows. Messages that would be due are visible then.
func TestCancelScheduled(t *testing.T) {
	for _, after := range []time.Duration{time.Hour, 2 * later} {
		synctest.Test(t, func(t *testing.T) {
			a, store, table := newScheduled(t, 20)
			schedule(t, store, table, []byte("not an envelope \x00"), later)
			before, recorded := texts(store, mainQueue), allRows(t, table)
			r := execute(t, mustPlan(t)(a.PlanDeleteScheduled(t.Context(), everything(), false)))
			if r.Done != 21 || len(store.All(mainQueue)) != 0 || len(allRows(t, table)) != 0 {
				t.Fatalf("%+v, %d are left, %d rows", r, len(store.All(mainQueue)), len(allRows(t, table)))
			}
			advance(after)
			undo := execute(t, mustPlan(t)(a.PlanUndo(t.Context(), r.Run)))
			if undo.Done != 21 || !slices.Equal(texts(store, mainQueue), before) {
				t.Errorf("%+v, not the same messages", undo)
			}
			again := allRows(t, table)
			if after > later {
				if len(again) != 0 || len(hidden(store, mainQueue)) != 0 {
					t.Errorf("%d rows, %d are invisible", len(again), len(hidden(store, mainQueue)))
				}
				return
			}
			for _, m := range store.All(mainQueue) {
				if wait := time.Until(m.NextVisibleAt); wait > time.Hour || wait < time.Hour-time.Second {
					t.Fatalf("it waits for %v", wait)
				}
			}
			if len(again) != len(recorded) || again[0].Reason != "temporary_status" ||
				!again[0].NextAttemptAt.Equal(recorded[0].NextAttemptAt) {
				t.Errorf("%d rows: %+v", len(again), again)
			}
			if r := execute(t, mustPlan(t)(planExpedite(t.Context(), a, journal.Pace{}))); r.Done != 20 {
				t.Errorf("the new rows are not valid: %+v", r)
			}
		})
	}
}

// TestCancelCallback checks that the senders are told, if they have a callback.
func TestCancelCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 1)
		schedule(t, store, table, []byte(`{"asyncCaller":1,"requestId":"mute","call":{"url":"https://t.example/"}}`),
			later)
		r := execute(t, mustPlan(t)(a.PlanDeleteScheduled(t.Context(), everything(), true)))
		all := store.All(mainQueue)
		if r.Done != 2 || len(all) != 1 || len(hidden(store, mainQueue)) != 0 {
			t.Fatalf("%+v, %d messages", r, len(all))
		}
		e, err := envelope.Parse(a.Account.Rules.Content(all[0].Text))
		if err != nil || e.Call.URL != "https://s.example/done" || e.Callback != nil {
			t.Fatalf("%+v, %v", e, err)
		}
		for _, want := range []string{
			`"Id":"r0"`, `"Context":{"x":"y"}`, `"StatusCode":503`, `"Attempts":3`,
			`"Reason":"cancelled"`,
		} {
			if !strings.Contains(string(e.Call.Body.Bytes()), want) {
				t.Errorf("the callback has no %s: %s", want, e.Call.Body.Bytes())
			}
		}
		execute(t, mustPlan(t)(a.PlanUndo(t.Context(), r.Run)))
		if len(store.All(mainQueue)) != 3 {
			t.Errorf("after undo %d messages", len(store.All(mainQueue)))
		}
	})
}

// TestRefuseScheduled checks which messages are left alone, and why.
func TestRefuseScheduled(t *testing.T) {
	ctx := t.Context()
	a, store, table := newScheduled(t, 0)
	schedule(t, store, table, []byte("not an envelope"), later)
	noDeadline := fmt.Appendf(nil, `{"asyncCaller":1,"call":{"url":"https://t.example/"},"notBefore":%q}`,
		time.Now().Add(later).UTC().Format(time.RFC3339))
	for id, row := range map[string]record.Row{
		"no-content": {PopReceipt: "x"},
		"no-receipt": {Content: []byte("x")},
		"\x1b[31m":   {PopReceipt: "x", Content: []byte("x")},
		"$(touch x)": {PopReceipt: "x", Content: []byte(`{"asyncCaller":1,"call":{"url":"https://t.example/"}}`)},
		// Only the handler knew its deadline, and has not recorded it.
		"no-deadline": {PopReceipt: "x", Content: noDeadline},
		"too-large":   {PopReceipt: "x", Content: make([]byte, storage.MaxTextBytes)},
	} {
		row.Key = storage.Key{Partition: mainQueue, ID: id}
		if err := rows.Put(ctx, table, row); err != nil {
			t.Fatal(err)
		}
	}
	p := mustPlan(t)(planExpedite(ctx, a, journal.Pace{}))
	defer p.Discard(ctx)
	if p.Total != 0 || p.Refused != 7 {
		t.Errorf("planned %d, refused %+v", p.Total, p.Refusals)
	}
	a.Account.Table = nil
	if _, err := planExpedite(ctx, a, journal.Pace{}); !errors.Is(err, account.ErrNoTable) {
		t.Errorf("without a table: %v", err)
	}
}

// changes are the commands that change scheduled messages.
func changes() map[string]func(context.Context, *operation.Operations) (*operation.Plan, error) {
	return map[string]func(context.Context, *operation.Operations) (*operation.Plan, error){
		"expedite": func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			return planExpedite(ctx, a, journal.Pace{})
		},
		"cancel": func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			return a.PlanDeleteScheduled(ctx, everything(), false)
		},
		"callback": func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			return a.PlanDeleteScheduled(ctx, everything(), true)
		},
		"edit": func(ctx context.Context, a *operation.Operations) (*operation.Plan, error) {
			set, err := edit.ParseSet("call.method=PUT")
			if err != nil {
				return nil, err
			}
			edits := operation.Edit{Options: edit.Options{Edits: edit.Edits{set}}}
			return a.PlanEdit(ctx, everything(), edits)
		},
	}
}

// TestStale checks that messages that are being delivered are left alone and reported.
func TestStale(t *testing.T) {
	for name, plan := range changes() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, store, table := newScheduled(t, 40)
				advance(later)
				p := mustPlan(t)(plan(t.Context(), a))
				received, err := store.Receive(t.Context(), mainQueue, 30, time.Minute)
				if err != nil || len(received) != 30 {
					t.Fatal(len(received), err)
				}
				r := execute(t, p)
				if r.Done != 10 || r.Skipped != 30 || len(r.Why) != 30 ||
					!strings.Contains(r.Why[0], "this run has changed nothing") {
					t.Errorf("%+v", r)
				}
				for _, m := range received { // the host's receipts are still valid
					if err := store.Delete(t.Context(), mainQueue, m.ID, m.PopReceipt); err != nil {
						t.Error(err)
					}
				}
				for _, row := range allRows(t, table) {
					isStale := slices.ContainsFunc(received, func(m storage.Message) bool { return m.ID == row.ID })
					if isStale && name != "edit" {
						t.Errorf("a row with a stale receipt is left: %s", row.ID)
					}
				}
			})
		})
	}
}

// TestScheduledCanary checks that a run waits for the delivery of its first messages, and stops if the call of one
// fails. A first message that is already being delivered is replaced by another.
func TestScheduledCanary(t *testing.T) {
	for does, want := range map[string]string{"deliver": "", "retry": "waits for attempt 5"} {
		t.Run(does, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, store, table := newScheduled(t, 20)
				for _, row := range allRows(t, table)[:4] {
					row.PopReceipt = "stale"
					if err := rows.Put(t.Context(), table, row); err != nil {
						t.Fatal(err)
					}
				}
				app{store: store, outcomes: recorded(t, a), does: always(does)}.start(t)
				r, err := mustPlan(t)(planExpedite(t.Context(), a, journal.Pace{Canary: 3})).Execute(t.Context())
				done := 3
				if want == "" {
					done = 16
				}
				isStopped := r.Stopped != ""
				if err != nil || r.Skipped != 4 || r.Done != done || isStopped != (want != "") ||
					!strings.Contains(r.Stopped, want) {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}

// keepHistory makes the app of an account one that keeps a history.
func keepHistory(t *testing.T, a *operation.Operations) *memory.Tables {
	t.Helper()
	tables := &memory.Tables{}
	a.History, a.HistoryRetention = tables, 90*24*time.Hour
	some := storage.Entity{Key: storage.Key{Partition: "0", ID: "x"}}
	if err := tables.Table(history.TablePrefix+"199912").Put(t.Context(), []storage.Entity{some}); err != nil {
		t.Fatal(err)
	}
	return tables
}

// TestCancelledInHistory checks that a cancelled call is in the history, if the app keeps one.
func TestCancelledInHistory(t *testing.T) {
	for _, isKept := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, _, _ := newScheduled(t, 3)
			tables := keepHistory(t, a)
			if !isKept {
				tables = &memory.Tables{}
				a.History = tables
			}
			find := func(id string) []history.Entry {
				t.Helper()
				entries, _, err := history.Find(t.Context(), tables, envelope.Tenant{}, id)
				if err != nil {
					t.Fatal(err)
				}
				return entries
			}
			source := account.Source{IDs: []string{"r1"}}
			cancelled := execute(t, mustPlan(t)(a.PlanDeleteScheduled(t.Context(), source, false)))
			entries := find("r1")
			found := len(entries) == 1 && entries[0].Reason == string(decision.Cancelled) &&
				entries[0].Queue == mainQueue && entries[0].Attempts == 3 && entries[0].Trail[0].Status == 503
			if found != isKept || !isKept && len(entries) > 0 || len(find("r2")) > 0 {
				t.Errorf("history kept %v: %+v", isKept, entries)
			}
			execute(t, mustPlan(t)(a.PlanUndo(t.Context(), cancelled.Run)))
			names, err := tables.TableNames(t.Context(), "")
			if len(find("r1")) > 0 || !isKept && len(names) > 0 || err != nil {
				t.Errorf("history kept %v: after undo %+v, tables %v, %v", isKept, find("r1"), names, err)
			}
		})
	}
}
