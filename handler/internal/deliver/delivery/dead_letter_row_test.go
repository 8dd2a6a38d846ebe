package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// TestDeadLetterRow: the row of a dead letter says what its message says, so that lists and groups are the same from
// either. A row that comes late does not replace the mark of a message that was deleted.
func TestDeadLetterRow(t *testing.T) {
	answer := decision.Outcome{Status: 400, Body: []byte("{\"error\":\"no such order 4711\"}")}
	answer.Header = map[string][]string{"Content-Type": {"application/json"}}
	for name, test := range map[string]struct {
		outcome decision.Outcome
		content string
	}{
		"rejected":  {answer, fmt.Sprintf(plain, `,"attempts":3`)},
		"malformed": {content: "{"},
		"no_policy": {content: fmt.Sprintf(plain, `,"retry":"none"`)},
		"expired":   {content: fmt.Sprintf(plain, `,"attempts":3,"deadline":"1999-12-31T00:00:00Z"`)},
		"certificate": {
			decision.Outcome{Failure: decision.FailureCertificate},
			fmt.Sprintf(plain, `,"attempts":3,"retry":{"maxAttempts":4}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(test.outcome))
				var table memory.Table
				b.Record = record.NewWriter(&table, 1<<20, zerolog.Nop())
				b.deliver(test.content)
				dead := b.store.All(mainQueue + storage.PoisonSuffix)[0]
				rules := message.Rules{Encoding: storage.Base64, Decision: b.Rules}
				want := message.Read(rules, mainQueue+storage.PoisonSuffix, dead)
				<-time.After(2 * time.Second)
				row, _, err := rows.Get[record.Row](t.Context(), &table, want.Queue, dead.ID)
				if err != nil {
					t.Fatal(err)
				}
				got := message.FromRow(row).Message
				want.Path, want.Bytes, got.Bytes = "", 0, 0
				want.Since, got.Since = want.Since.Truncate(time.Second), got.Since.Truncate(time.Second)
				isContent := strings.HasPrefix(string(row.Content), test.content[:1])
				if diff := cmp.Diff(want, got); diff != "" || !isContent {
					t.Errorf("-message +row:\n%s", diff)
				}

				b.deliver(test.content)
				late := b.store.All(mainQueue + storage.PoisonSuffix)[1]
				if err := rows.Put(t.Context(), &table, record.Mark(want.Queue, late.ID)); err != nil {
					t.Fatal(err)
				}
				b.Record.Close(time.Second)
				row, _, err = rows.Get[record.Row](t.Context(), &table, want.Queue, late.ID)
				if err != nil || !row.IsMark() || row.Content != nil {
					t.Errorf("row %+v, %v", row, err)
				}
			})
		})
	}
}
