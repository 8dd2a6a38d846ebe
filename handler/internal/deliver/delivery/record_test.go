package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// observed counts the rows that are written and removed, and checks each new receipt.
type observed struct {
	memory.Table
	b                *bench
	t                *testing.T
	written, removed int
	paths            []string
}

func (o *observed) Put(ctx context.Context, entities []storage.Entity) error {
	for _, entity := range entities {
		row := rows.Decode[record.Row](entity)
		all := o.b.store.All(row.Partition)
		if len(all) != 1 || all[0].ID != row.ID || all[0].PopReceipt != row.PopReceipt ||
			all[0].Text != storage.Base64.Encode(row.Content) {
			o.t.Errorf("row %+v does not fit the queue's %+v", row, all)
		}
		if wait := all[0].NextVisibleAt.Sub(row.NextAttemptAt).Abs(); wait > time.Second ||
			row.Deadline.Sub(row.CreatedAt) != 7*24*time.Hour {
			o.t.Errorf("the row's next attempt is at %v, the message's at %v", row.NextAttemptAt, all[0].NextVisibleAt)
		}
		o.paths = append(o.paths, fmt.Sprint(row.TargetHost, row.PathPattern, row.Status, row.Reason, row.Attempts))
	}
	o.written += len(entities)
	return o.Table.Put(ctx, entities)
}

func (o *observed) Delete(ctx context.Context, keys []storage.Key) error {
	o.removed += len(keys)
	return o.Table.Delete(ctx, keys)
}

// TestRecord: only reschedules by 30 s or more are recorded, each is removed when its message arrives, and in the end
// nothing is left. The delays are 5 s, 10 s, 20 s, 40 s, 80 s.
func TestRecord(t *testing.T) {
	for _, mode := range []string{"enqueue", "update"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, recovering(5))
				rows := &observed{b: b, t: t}
				if mode == "update" {
					b.inUpdateMode(b.store)
				}
				b.Record = record.NewWriter(rows, 1<<20, zerolog.Nop())
				b.send(t, fmt.Sprintf(plain, ""))

				b.runHost(t)
				b.Record.Close(time.Second)

				if rows.written != 2 || rows.removed != 2 {
					t.Errorf("%d rows were written and %d removed, want 2 each", rows.written, rows.removed)
				}
				if got := fmt.Sprint(rows.paths); got != "[target.example:8443/orders503temporary_status4 "+
					"target.example:8443/orders503temporary_status5]" {
					t.Errorf("rows %s", got)
				}
				wantRows(t, &rows.Table, 0)
			})
		})
	}
}

// TestOneSpelling: rows and the log have one spelling of a target, and its call has that of the sender.
func TestOneSpelling(t *testing.T) {
	for url, want := range map[string]string{
		"https://h.example/x": "h.example", "https://H.Example.:0443/x": "h.example",
		"http://h.example.:80":    "h.example",
		"https://h.example.:80/x": "h.example:80", "https://B\u00fccher.example/": "xn--bcher-kva.example",
		"https://[2001:DB8::0:1]:8443/": "[2001:db8::1]:8443",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, answers(decision.Outcome{Status: 503}))
			b.Guard = guard.Rules{}
			rows := &observed{b: b, t: t}
			b.Record = record.NewWriter(rows, 1<<20, zerolog.Nop())
			content := fmt.Sprintf(`{"asyncCaller":1,"run":"T","attempts":5,"call":{"url":"%s"}}`, url)
			outcome := outcomes(t, b, content)
			b.Record.Close(time.Second)

			line := b.linesWith(t, "settled")[0]
			if len(rows.paths) != 1 || !strings.HasPrefix(rows.paths[0], want+"/") ||
				len(outcome) != 1 || !strings.HasSuffix(outcome[0], " at "+want) || line["target_host"] != want {
				t.Errorf("%s: rows %q and %q, line %v, want %s", url, rows.paths, outcome, line, want)
			}
			if called := b.target.calls[0].url; called != strings.ReplaceAll(url, `\u00fc`, "ü") {
				t.Errorf("called %s, want %s", called, url)
			}
		})
	}
}

// TestRecordBusy: a message that waits for a slot is recorded like any other, so that it is listed and can be
// cancelled.
func TestRecordBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 200}))
		rows := &observed{b: b, t: t}
		b.Record = record.NewWriter(rows, 1<<20, zerolog.Nop())
		profiles, err := targets.Parse([]byte(`{"*": {"rate": "30/h"}}`), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Rules.Profiles = profiles
		b.deliver(fmt.Sprintf(plain, "")) // takes the only token
		b.send(t, fmt.Sprintf(plain, ""))

		b.runHost(t)
		b.Record.Close(time.Second)

		if got := fmt.Sprint(rows.paths); !strings.HasPrefix(got, "[target.example:8443/orders0busy0") {
			t.Errorf("rows %s", got)
		}
		if len(b.target.calls) != 2 || rows.removed != rows.written {
			t.Errorf("%d calls, %d rows written, %d removed", len(b.target.calls), rows.written, rows.removed)
		}
		if line := b.linesWith(t, "settled")[1]; line["reason"] != "busy" || line["next_attempt_at"] == nil {
			t.Errorf("log line %v, want the time of the next attempt", line)
		}
	})
}

// TestRowsLeft: the row of a message that was delivered or given up goes, that of another is left alone, and a dead
// letter gets one.
func TestRowsLeft(t *testing.T) {
	later := fmt.Sprintf(plain, `,"attempts":3,"nextAttemptAt":"1999-12-31T23:59:00Z"`)
	for name, test := range map[string]struct {
		outcome  decision.Outcome
		content  string
		leased   bool
		rowsLeft int
	}{
		"delivered": {outcome: decision.Outcome{Status: 200}, content: later, leased: true, rowsLeft: 0},
		"short_delay": {
			outcome: decision.Outcome{Status: 503}, content: fmt.Sprintf(plain, ""), leased: true,
			rowsLeft: 1,
		},
		"text_mode": {outcome: decision.Outcome{Status: 200}, content: later, leased: false, rowsLeft: 1},
		"malformed": {content: "{", leased: true, rowsLeft: 2},
		"interrupted": {
			outcome: decision.Outcome{Failure: decision.FailureInterrupted},
			content: fmt.Sprintf(plain, ""), leased: true, rowsLeft: 1,
		},
		"gives_up": {outcome: decision.Outcome{Status: 400}, content: later, leased: true, rowsLeft: 1},
		"long_ago_but_at_once": {
			outcome: decision.Outcome{Status: 200}, content: fmt.Sprintf(plain, ""), leased: true,
			rowsLeft: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(test.outcome))
				var table memory.Table
				b.Record = record.NewWriter(&table, 1<<20, zerolog.Nop())
				row := record.Row{Key: storage.Key{Partition: mainQueue, ID: messageID}}
				if err := rows.Put(t.Context(), &table, row); err != nil {
					t.Fatal(err)
				}
				m := on(mainQueue, test.content)
				if test.leased {
					m.Lease.ID, m.Lease.InsertedAt = messageID, midnight.Add(-time.Hour)
				}

				b.Deliver(b.ctx, m)
				b.Record.Close(time.Second)

				wantRows(t, &table, test.rowsLeft)
			})
		})
	}
}

// TestRecordRepeatedWrite: the row of a message says that its write got no answer at first, so that there may be
// another one.
func TestRecordRepeatedWrite(t *testing.T) {
	for _, test := range []struct {
		lost int
		want bool
	}{{0, false}, {1, true}} {
		t.Run(fmt.Sprintf("%d_answers_lost", test.lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 503}))
				b.Settler = settle.New(&losesAnswers{Store: b.store, left: test.lost}, storage.Base64)
				var table memory.Table
				b.Record = record.NewWriter(&table, 1<<20, zerolog.Nop())
				later := fmt.Sprintf(plain, `,"attempts":6,"nextAttemptAt":"1999-12-31T23:59:00Z"`)

				b.Deliver(b.ctx, on(mainQueue, later))
				b.Record.Close(time.Second)

				var found []record.Row
				see := func(row record.Row) error { found = append(found, row); return nil }
				err := record.ListScheduled(t.Context(), &table, record.Query{}, see)
				if err != nil || len(found) != 1 || found[0].Repeated != test.want ||
					len(b.store.All(mainQueue)) != 1+test.lost {
					t.Errorf("%d messages, rows %+v, %v", len(b.store.All(mainQueue)), found, err)
				}
			})
		})
	}
}

// losesAnswers loses the answers of the first writes.
type losesAnswers struct {
	settle.Store
	left int
}

func (s *losesAnswers) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	put, err := s.Store.Put(ctx, name, item)
	if s.left > 0 && err == nil {
		s.left--
		return storage.Message{}, errors.New("no answer")
	}
	return put, err
}

func wantRows(t *testing.T, rows *memory.Table, want int) {
	t.Helper()
	got := 0
	err := rows.List(t.Context(), storage.Query{}, func(storage.Entity) error { got++; return nil })
	if err != nil || got != want {
		t.Errorf("%d rows are left, want %d; error %v", got, want, err)
	}
}
