package record_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// TestOutcomeRows checks that each attempt of a message has a row for its call and one for refusals, whatever
// characters a sender has put into its id and the token.
func TestOutcomeRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		w := record.NewOutcomeWriter(&table, 1<<20, zerolog.Nop())
		outcome := func(id string, attempt int, called bool, reason string) {
			w.Put(record.Outcome{
				Run: "a/b", RequestID: id, Attempt: attempt, Called: called, Reason: reason, At: time.Now(),
			}.Keyed())
			<-time.After(2 * time.Second)
		}
		for _, id := range []string{"r1", "r1.1", "R1", "r/1", "r=2F1", "r1.1.called"} {
			outcome(id, 1, false, "busy")
			outcome(id, 1, true, "temporary_status")
			outcome(id, 1, false, "target_down")
			outcome(id, 1, true, "delivered")
			outcome(id, 2, false, "busy")
		}
		w.Put(record.Outcome{Run: "run", RequestID: "r1", Attempt: 1}.Keyed())
		w.Close(time.Second)
		reasons := map[string]string{}
		list := func(partition string) (n int) {
			query := storage.Query{Partition: partition}
			if err := rows.List(t.Context(), &table, query, func(row record.Outcome) error {
				n++
				if strings.ContainsAny(row.ID, "/\\#? '%") {
					t.Errorf("a table has no key %q", row.ID)
				}
				reasons[row.RequestID] += row.Reason + " "
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := list(record.Partition("a/b")); n != 18 {
			t.Errorf("%d rows", n)
		}
		for id, got := range reasons {
			if got != "delivered target_down busy " {
				t.Errorf("%s: %s", id, got)
			}
		}
		if list("run") != 0 {
			t.Error("a sender has written among the runs")
		}
	})
}
