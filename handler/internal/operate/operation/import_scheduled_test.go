package operation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// exportedCall returns the line of a scheduled call in an export.
func exportedCall(queue string, due time.Time, content []byte) string {
	return fmt.Sprintf(`{"queue":%q,"id":"old","reason":"temporary_status","status":503,"attempts":3,`+
		`"requestId":"forged","host":"forged.example","createdAt":%q,"nextAttemptAt":%q,"deadline":%q,`+
		`"answer":"down","state":"waiting","text":%q}`,
		queue, due.Add(-3*time.Hour).UTC().Format(time.RFC3339), due.UTC().Format(time.RFC3339),
		due.Add(time.Hour).UTC().Format(time.RFC3339), storage.Base64.Encode(content))
}

// rowsOf returns the rows of the messages of a queue.
func rowsOf(t *testing.T, table storage.Table, queue string) []record.Row {
	t.Helper()
	return slices.DeleteFunc(allRows(t, table), func(r record.Row) bool { return r.Partition != queue })
}

// TestImportScheduled: a scheduled call is due when it would have been, and its row describes its content.
func TestImportScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 0)
		due := time.Now().Add(later).Truncate(time.Second)
		content := plannedCall("r1", later)
		file := exportedCall(mainQueue, due, content) + "\n" +
			`{"queue":"async-caller-poison","text":"` + deadLetter("dead", mainQueue) + `","state":"poison"}`
		to := operation.Import{To: "other-poison", Force: true}
		p := mustPlan(t)(a.PlanImport(t.Context(), strings.NewReader(file), to))
		if p.To[mainQueue] != 1 || p.To["other-poison"] != 1 || p.Hosts["t.example:443"]+p.Hosts["t.example"] != 2 {
			t.Errorf("%+v, %+v", p.To, p.Hosts)
		}
		imported := execute(t, p)
		all, rows := store.All(mainQueue), allRows(t, table)
		if len(all) != 1 || !all[0].NextVisibleAt.Equal(due) || all[0].Text != storage.Base64.Encode(content) {
			t.Fatalf("%+v, due %v", all, due)
		}
		isRight := false
		for _, row := range rows {
			isRight = isRight || row.ID == all[0].ID && row.Partition == mainQueue && row.RequestID == "r1" &&
				strings.HasPrefix(row.TargetHost, "t.example") && row.NextAttemptAt.Equal(due) && row.Status == 503 &&
				row.Attempts == 3 && row.Answer == "down" && string(row.Content) == string(content)
		}
		if !isRight {
			t.Errorf("rows %+v", rows)
		}
		// The row has the receipt: the call can be changed.
		edited := execute(t, mustPlan(t)(a.PlanEdit(t.Context(), everything(), setting(t, "call.method=PUT"))))
		if edited.Done != 1 {
			t.Errorf("edit: %+v", edited)
		}
		// An undo after that takes nothing away, and leaves the row.
		if undone := execute(t, mustPlan(t)(a.PlanUndo(t.Context(), imported.Run))); undone.Skipped == 0 ||
			len(store.All(mainQueue)) != 1 || len(rowsOf(t, table, mainQueue)) != 1 {
			t.Errorf("%+v; rows %+v", undone, allRows(t, table))
		}
	})
}

// TestUndoImportScheduled: the undo takes away call and row, and the history does not have it as a cancelled call.
func TestUndoImportScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store, table := newScheduled(t, 0)
		tables := keepHistory(t, a)
		file := exportedCall(mainQueue, time.Now().Add(later), plannedCall("r1", later))
		imported := execute(t, mustPlan(t)(a.PlanImport(t.Context(), strings.NewReader(file), operation.Import{})))
		undone := execute(t, mustPlan(t)(a.PlanUndo(t.Context(), imported.Run)))
		cancelled, _, err := history.Find(t.Context(), tables, envelope.Tenant{}, "r1")
		left := len(store.All(mainQueue)) + len(allRows(t, table)) + len(cancelled)
		if undone.Done != 1 || left > 0 || err != nil {
			t.Errorf("%+v: %v, %+v, %+v, %v", undone, store.All(mainQueue), allRows(t, table), cancelled, err)
		}
	})
}

// TestImportScheduledLate: a call whose time is past is due at once, and has no row. No file makes one wait for longer
// than storage can.
func TestImportScheduledLate(t *testing.T) {
	for _, test := range []struct {
		due, want time.Duration
		rows      int
	}{{-time.Hour, 0, 0}, {9000 * time.Hour, storage.MaxDelay, 1}} {
		synctest.Test(t, func(t *testing.T) {
			a, store, table := newScheduled(t, 0)
			file := exportedCall(mainQueue, time.Now().Add(test.due), plannedCall("r1", later))
			execute(t, mustPlan(t)(a.PlanImport(t.Context(), strings.NewReader(file), operation.Import{})))
			all := store.All(mainQueue)
			if len(all) != 1 || all[0].NextVisibleAt.Sub(time.Now().Add(test.want)).Abs() > time.Second ||
				len(allRows(t, table)) != test.rows {
				t.Errorf("due after %v: %+v, %+v", test.due, all, allRows(t, table))
			}
		})
	}
}

// TestImportScheduledRefused: scheduled calls go to queues that the app reads, and have to be envelopes.
func TestImportScheduledRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := newScheduled(t, 0)
		due, good := time.Now().Add(later), plannedCall("r1", later)
		malformed := exportedCall(mainQueue, due, []byte("x"))
		for want, file := range map[string]string{
			"line 1: queue nobodys: no function of the app reads it": exportedCall("nobodys", due, good),
			"line 1: queue async-caller-poison: no function":         exportedCall(poisonQueue, due, good),
			"line 1: queue: \"../\" is not the name":                 exportedCall("../", due, good),
			"line 1: text: it is no call that can be":                malformed,
		} {
			_, err := a.PlanImport(t.Context(), strings.NewReader(file), operation.Import{})
			wantError(t, err, want)
		}
		file := strings.NewReader(exportedCall("nobodys", due, good))
		p := mustPlan(t)(a.PlanImport(t.Context(), file, operation.Import{Force: true}))
		p.Discard(t.Context())
	})
}
