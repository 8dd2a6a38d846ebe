package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// newScheduledSession returns a session with n scheduled messages, and as many that are being delivered.
func newScheduledSession(t *testing.T, n, stale int) *testSession {
	t.Helper()
	d := newTestSession(t)
	table := &memory.Table{}
	d.account.Table = table
	for i := range n + stale {
		content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/%d"},`+
			`"callback":{"url":"https://s.example/"}}`, i, i)
		m, err := d.store.Put(t.Context(), "async-caller",
			storage.Item{Text: storage.Base64.Encode(content), Delay: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if i >= n {
			m.PopReceipt = "stale"
		}
		row := record.Row{
			Key:        storage.Key{Partition: "async-caller", ID: m.ID},
			PopReceipt: m.PopReceipt, RequestID: fmt.Sprintf("r%d", i), TargetHost: "t.example", Status: 503,
			Reason: "temporary_status", CreatedAt: time.Now(), NextAttemptAt: time.Now().Add(time.Hour),
			Content: content,
		}
		if err := rows.Put(t.Context(), table, row); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// TestChangeScheduled: what was delivered meanwhile is skipped, and the exit code says so.
func TestChangeScheduled(t *testing.T) {
	for name, test := range map[string]struct {
		n, stale         int
		code             int
		printed, failure string
	}{
		"nothing": {0, 0, exitNothing, "", "no message matches in test"},
		"some":    {2, 1, exitPartly, "deleted 2 of 3 in test\n  skipped: r2 (", "not deleted: 1 message"},
		"none":    {0, 2, exitPartly, "deleted 0 of 2 in test\n  skipped: r0 (", "not deleted: 2 messages"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newScheduledSession(t, test.n, test.stale)
				plan, err := d.operations.PlanDeleteScheduled(t.Context(), account.Source{}, false)
				err = d.execute(t.Context(), plan, err)
				if codeOf(err) != test.code || !strings.Contains(err.Error(), test.failure) ||
					!strings.Contains(d.err.String(), test.printed) {
					t.Errorf("exit code %d, want %d: %v, printed %s", codeOf(err), test.code, err, d.err.String())
				}
			})
		})
	}
}

// TestWarnings checks that a dry run and a run say of which messages a second one may exist, and why no callback is
// sent.
func TestWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newScheduledSession(t, 2, 0)
		d.json = true
		var ids []string
		err := rows.ListWhole(t.Context(), d.account.Table, storage.Query{}, func(row record.Row) error {
			row.RequestID, row.Repeated = "order-1", len(ids) == 0
			ids = append(ids, row.ID)
			return rows.Put(t.Context(), d.account.Table, row)
		})
		if err != nil {
			t.Fatal(err)
		}
		source := account.Source{IDs: ids[:1]}
		plan, err := d.operations.PlanDeleteScheduled(t.Context(), source, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.preview(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"warning: 1 message: no callback is sent, because there may be a second message of the call: order-1 (" +
				shortID(ids[0]) + ") on async-caller\n",
			"warning: 1 message: storage did not answer when the message was written",
		} {
			if !strings.Contains(d.err.String(), want) {
				t.Errorf("no %q in\n%s", want, d.err.String())
			}
		}
		d.stdout.Reset()
		plan, err = d.operations.PlanDeleteScheduled(t.Context(), source, true)
		if err := d.execute(t.Context(), plan, err); err != nil {
			t.Fatal(err)
		}
		var got operation.Result
		if err := json.Unmarshal(d.stdout.Bytes(), &got); err != nil || len(got.Warnings) != 2 ||
			got.Warnings[0].Messages[0].ID != ids[0] {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestSelectCalls checks what the flags of a change select, and which criteria a state lacks.
func TestSelectCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for text, want := range map[string]string{
			"":                                            "select calls by ids or filters, or give --all",
			"--all":                                       "give --state scheduled or --state poison, or ids",
			"--state scheduled":                           "select calls by ids or filters, or give --all",
			"--state poison --force":                      "select calls by ids or filters, or give --all",
			"--state poison --reason expired":             "",
			"--state poison --queue a-poison":             "",
			"--state poison --limit 1":                    "",
			"--state poison --all --reason expired":       "",
			"--state dead --all":                          "--state: \"dead\": want scheduled or poison",
			"--state scheduled --all":                     "",
			"--state scheduled --due-within 1h":           "",
			"--state poison --due-within 1h":              "no dead letter has what --due-within selects",
			"--state scheduled --due-within -1h":          "--due-within: \"-1h\": want a duration",
			"--state poison --host=":                      "--host: want a host",
			"--state scheduled --reason expired":          "no scheduled call has what --reason expired selects",
			"--state scheduled --reason temporary_status": "",
			// as list --group-by queue shows it
			"--state scheduled --group queue=other": "",
			// the row does not have it
			"--state scheduled --group answer=locked": "no scheduled call has what --group answer selects",
			"--state poison --group answer=locked":    "",
			"--state poison --group cause=x":          "no dead letter has what --group cause selects",
			"--state poison --organization acme":      "",
		} {
			flags := flagsOf(&cobra.Command{})
			s := requireCalls(flags)
			if err := flags.Parse(strings.Fields(text)); err != nil {
				t.Fatal(err)
			}
			_, states, err := s.source(nil)
			if want == "" && (err != nil || len(states) != 1) ||
				want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q: %q, %v, want %q", text, states, err, want)
			}
			if s.state == "scheduled" && text == "--state scheduled --due-within 1h" &&
				!s.selected.DueBefore.Equal(now.Add(time.Hour)) {
				t.Errorf("%q: %+v", text, s.selected)
			}
		}
	})
}

// TestSelectStates checks which states a list looks at.
func TestSelectStates(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "scheduled poison",
		"--state poison":                    "poison",
		"--reason timeout":                  "scheduled poison",
		"--reason expired":                  "poison",
		"--reason expired,temporary_status": "scheduled poison",
		"--reason busy":                     "scheduled",
		"--due-within 1h":                   "scheduled",
		"--group error=x":                   "poison",
		"--group-by cause":                  "scheduled",
		"--group-by host":                   "scheduled poison",
		"--due-within 1h --reason expired":  "",
	} {
		flags := flagsOf(&cobra.Command{})
		s := selectCalls(flags)
		groupByFlag(flags, &s.by, allCriteria())
		if err := flags.Parse(strings.Fields(text)); err != nil {
			t.Fatal(err)
		}
		_, states, err := s.source(nil)
		if got := strings.Join(states, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}
