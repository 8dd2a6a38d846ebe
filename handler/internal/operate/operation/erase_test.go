package operation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// erasedCounts returns what was found and deleted, and fails the test if there is a problem.
func erasedCounts(t *testing.T, a *operation.Operations, e operation.Erasure, remove bool) string {
	t.Helper()
	places, err := a.Erase(t.Context(), e, remove)
	if err != nil {
		t.Fatal(err)
	}
	var counts []string
	for _, p := range places {
		if p.Problem != "" || p.Hidden > 0 {
			t.Errorf("%+v", p)
		}
		counts = append(counts, fmt.Sprintf("%s %d/%d", p.Place, p.Deleted, p.Found))
	}
	return strings.Join(counts, ", ")
}

// newErasable returns an account that has calls r0 to r39 as poison and as scheduled messages, with their history and
// their outcomes of a run.
func newErasable(t *testing.T) (*operation.Operations, *memory.Queues, *memory.Table) {
	t.Helper()
	a, store, table := newScheduled(t, 40)
	outcomes, tables := &memory.Table{}, &memory.Tables{}
	h := history.New(tables, week, zerolog.Nop())
	for i := range 40 {
		id := fmt.Sprintf("r%d", i)
		put(t, store, poisonQueue, deadLetter(id, mainQueue), 0)
		e, err := envelope.Parse(plannedCall(id, later))
		if err != nil {
			t.Fatal(err)
		}
		entry := h.NewEntry(e, time.Now())
		entry.Reason = history.Delivered
		h.Acknowledge(t.Context(), entry, time.Now())
		row := record.Outcome{Key: storage.Key{Partition: "TOKEN", ID: id + ".1.called"}, RequestID: id}
		if err := rows.Put(t.Context(), outcomes, row); err != nil {
			t.Fatal(err)
		}
	}
	h.Close(time.Minute)
	a.Outcomes, a.History = outcomes, tables
	return a, store, table
}

// TestErase: a request id and its callback are erased everywhere, and nothing else. There is no journal, and the list
// of runs has who erased how many messages, and when, but not what.
func TestErase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newErasable(t)
		a.Operator = journal.Operator{User: "ann", Machine: "vm", Filter: "r1", CommandLine: "erase --request-id r1"}
		put(t, store, poisonQueue, callbackOf("r1"), 0)
		put(t, store, poisonQueue, deadLetter("r1.callback", mainQueue), 0) // another sender's
		e := operation.Erasure{RequestID: "r1"}
		want := "poison queues 0/2, scheduled calls 0/1, outcomes 0/1, history 0/1"
		if got := erasedCounts(t, a, e, false); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		want = "poison queues 2/2, scheduled calls 1/1, outcomes 1/1, history 1/1"
		if got := erasedCounts(t, a, e, true); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		advance(leasesEnd)
		want = "poison queues 0/0, scheduled calls 0/0, outcomes 0/0, history 0/0"
		if got := erasedCounts(t, a, e, false); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		left := []int{len(store.All(poisonQueue)), len(store.All(mainQueue)), len(allRows(t, table))}
		if !slices.Equal(left, []int{40, 39, 39 + 2}) { // and the marks of two dead letters
			t.Errorf("%d poison messages, scheduled ones and rows are left", left)
		}
		if places, err := a.Erase(t.Context(), e, false); err != nil || places[0].Unknown != 1 {
			t.Errorf("%+v, %v", places, err)
		}
		want = "poison queues 1/1, scheduled calls 0/0, outcomes 0/0, history 0/0"
		if got := erasedCounts(t, a, operation.Erasure{RequestID: "r1.callback"}, true); got != want {
			t.Errorf("by its own request id: %s, want %s", got, want)
		}
		if _, err := os.Stat(string(a.Journals)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a folder for journals: %v", err)
		}
		all := summaries(t, a)
		if len(all) != 2 || all[0].Done != 1 {
			t.Fatalf("%+v", all)
		}
		want = "erase finished 3/3 by (ann@vm)"
		got := fmt.Sprintf("%s %s %d/%d by %s", all[1].Command, all[1].State, all[1].Done, all[1].Total, all[1].By())
		content, err := json.Marshal(all)
		if got != want || all[1].KeepsJournal() || err != nil || strings.Contains(string(content), "r1") {
			t.Errorf("%s, want %s: %s, %v", got, want, content, err)
		}
	})
}

// callbackOf returns the callback of a call that the handler has given up.
func callbackOf(requestID string) string {
	return storage.Base64.Encode(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"%s.callback",`+
		`"call":{"url":"https://s.example/","json":{"Id":%q,"StatusCode":400}},"deadLetter":{"reason":"rejected"}}`,
		requestID, requestID))
}

// TestEraseForeignCallback: in the history and among the outcomes, what only has the request id of a callback is left.
func TestEraseForeignCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := newErasable(t)
		tables, isMemory := a.History.(*memory.Tables)
		if !isMemory {
			t.Fatal("no history")
		}
		h := history.New(tables, week, zerolog.Nop())
		for i, id := range []string{"r1", "r1.callback", "r1.callback"} {
			e, err := envelope.Parse(plannedCall(id, later))
			if err != nil {
				t.Fatal(err)
			}
			entry := h.NewEntry(e, time.Now())
			entry.Reason, entry.TraceID = history.Delivered, []string{"t", "t", "other"}[i]
			entry.MessageID = id + strconv.Itoa(i)
			h.Acknowledge(t.Context(), entry, time.Now())
		}
		h.Close(time.Minute)
		key := storage.Key{Partition: "TOKEN", ID: "r1.callback.1.called"}
		row := record.Outcome{Key: key, RequestID: "r1.callback"}
		if err := rows.Put(t.Context(), a.Outcomes, row); err != nil {
			t.Fatal(err)
		}
		places, err := a.Erase(t.Context(), operation.Erasure{RequestID: "r1"}, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range places[2:] {
			if p.Deleted != p.Found || p.Unknown != 1 {
				t.Errorf("%+v", p)
			}
		}
		const want = "poison queues 0/0, scheduled calls 0/0, outcomes 1/1, history 1/1"
		if got := erasedCounts(t, a, operation.Erasure{RequestID: "r1.callback"}, true); got != want {
			t.Errorf("by its own request id: %s, want %s", got, want)
		}
	})
}

// TestEraseTenant: the same id of another tenant is another call.
func TestEraseTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, _ := newScheduled(t, 0)
		put(t, store, poisonQueue, storage.Base64.Encode([]byte(nexusOf(0, 0, 0))), 0)
		put(t, store, poisonQueue, deadLetter("n1", mainQueue), 0)
		a.Outcomes, a.History = &memory.Table{}, &memory.Tables{}
		tenant := envelope.Tenant{Organization: "o", Environment: "e"}
		const want = "poison queues 1/1, scheduled calls 0/0, outcomes 0/0, history 0/0"
		for _, e := range []operation.Erasure{{RequestID: "n1", Tenant: tenant}, {RequestID: "n1"}} {
			if got := erasedCounts(t, a, e, true); got != want {
				t.Errorf("%+v: %s, want %s", e, got, want)
			}
		}
	})
}

// TestEraseText: a text is found in messages only, and journals that have a copy or cannot be searched are named.
func TestEraseText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := newErasable(t)
		remove := func(id string) string {
			source := account.Source{IDs: []string{id}}
			run := execute(t, mustPlan(t)(a.PlanDeletePoison(t.Context(), source, operation.Delete{}))).Run
			advance(leasesEnd)
			return run
		}
		deleted, other := remove("r2"), remove("r3")
		e := operation.Erasure{Text: "/ORDERS/R2"}
		const want = "poison queues 10/10, scheduled calls 0/0" // r20 to r29
		if got := erasedCounts(t, a, e, true); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for _, e := range []operation.Erasure{e, {RequestID: "r2"}} {
			copies, err := a.FindCopies(e)
			if err != nil || !slices.Equal(copies, []string{deleted}) {
				t.Errorf("%q, %v", copies, err)
			}
		}
		writeJournal(t, a, other, []byte("{}\n"))
		copies, err := a.FindCopies(e)
		if err != nil || !slices.Equal(copies, []string{other, deleted}) {
			t.Errorf("%q, %v", copies, err)
		}
	})
}

// TestEraseReceived: what the app receives meanwhile, or what gets no answer, is not said to be erased. The copy in the
// record of a message that the app has received is.
func TestEraseReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 3)
		all := store.All(mainQueue)
		if _, err := store.Update(t.Context(), mainQueue, all[0].ID, all[0].PopReceipt, all[0].Text, 0); err != nil {
			t.Fatal(err)
		}
		places, err := a.Erase(t.Context(), operation.Erasure{Text: "orders"}, true)
		if err != nil {
			t.Fatal(err)
		}
		if p := places[1]; p.Found != 3 || p.Deleted != 2 || p.Left() != 1 {
			t.Errorf("%+v", p)
		}
		if left := store.All(mainQueue); len(left) != 1 || len(allRows(t, table)) != 0 {
			t.Errorf("%d messages, %d rows", len(left), len(allRows(t, table)))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 2)
		a.Account.Store = &tap{Queues: store, queue: mainQueue, before: func(operation string) error {
			if operation == "delete" {
				return errNoAnswer
			}
			return nil
		}}
		places, err := a.Erase(t.Context(), operation.Erasure{Text: "orders"}, true)
		if err != nil {
			t.Fatal(err)
		}
		if p := places[1]; p.Deleted != 0 || p.Problem == "" || len(allRows(t, table)) != 2 {
			t.Errorf("%+v, %d rows", p, len(allRows(t, table)))
		}
		table.Fail(storage.ErrDenied)
		places, err = a.Erase(t.Context(), operation.Erasure{RequestID: "r1"}, false)
		if err != nil || places[1].Problem == "" || places[2].Problem == "" || places[3].Problem == "" {
			t.Errorf("%+v, %v", places, err)
		}
	})
}

// TestEraseLateRow: a row that the app writes only after its message was erased does not bring back what was erased.
func TestEraseLateRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 0)
		m := put(t, store, poisonQueue, deadLetter("r1", mainQueue), 0)
		if _, err := a.Erase(t.Context(), operation.Erasure{RequestID: "r1"}, true); err != nil {
			t.Fatal(err)
		}
		late := operation.RowOf(a.Account.Rules, poisonQueue, m.ID, m.Text)
		if err := rows.Insert(t.Context(), table, late); err != nil {
			t.Fatal(err)
		}
		if left, _ := deadRows(t, table); len(left) > 0 {
			t.Errorf("the record has %s", left)
		}
	})
}

// TestEraseHidden: a message that another client has received is not reported as erased because its row was.
func TestEraseHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, _ := newRecorded(t, 1)
		minutes(t, a, store, 1, func(int) {}) // the dead letter has a row
		if _, err := store.Receive(t.Context(), poisonQueue, 1, time.Hour); err != nil {
			t.Fatal(err)
		}
		places, err := a.Erase(t.Context(), operation.Erasure{RequestID: "r0"}, true)
		if p := places[0]; err != nil || p.Found != 1 || p.Deleted != 0 || p.Hidden != 1 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// TestEraseLeft: AC-monitor can record a dead letter again that an erase has left on its queue.
func TestEraseLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newRecorded(t, 1)
		minutes(t, a, store, 1, func(int) {}) // the dead letter has a row
		a.Account.Store = &tap{Queues: store, before: func(operation string) error {
			if operation == "delete" {
				return storage.ErrDenied
			}
			return nil
		}}
		places, err := a.Erase(t.Context(), operation.Erasure{RequestID: "r0"}, true)
		if rows, _ := deadRows(t, table); err != nil || places[0].Left() != 1 || len(rows) != 0 {
			t.Fatalf("%+v, %v; %d rows after the erase", places, err, len(rows))
		}
		advance(leasesEnd)
		minutes(t, a, store, 15, func(int) {})
		wantAgreement(t, store, table)
	})
}
