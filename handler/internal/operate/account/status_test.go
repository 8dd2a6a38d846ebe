package account_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"

	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// TestStatusOfRecord: the status counts the scheduled messages of each queue, and those that are gone apart, and has
// the targets that fail or are paused. What of the tables cannot be read is unknown, and the rest is there.
func TestStatusOfRecord(t *testing.T) {
	noAnswer := errors.New("no answer")
	for name, test := range map[string]struct {
		failRecord, failApp error
		scheduled           string
		problems            string
		known               bool
	}{
		"readable":       {nil, nil, "5 scheduled, 1 stale; h.example: 1 failing; p.example is paused", "||", true},
		"record_unknown": {noAnswer, nil, "unknown; h.example: 1 failing; p.example is paused", "no answer||", false},
		"targets_unknown": {
			nil, noAnswer, "5 scheduled, 1 stale", "|read which targets fail: no answer|" +
				"read the settings of targets: no answer", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 0)
				var table, app, known memory.Table
				a := newAccount(store)
				a.Table, a.AppTable, a.Sight = &table, &app, sight.NewReader(&known)
				now := time.Now().Add(time.Hour)
				// A message at the front of the queue became visible 10 minutes ago: what was due later may be behind.
				put(t, store, mainQueue, storage.Base64.Encode(fmt.Appendf(nil,
					`{"asyncCaller":1,"nextAttemptAt":%q,"call":{"url":"https://h.example/"}}`,
					now.Add(-10*time.Minute).UTC().Format(time.RFC3339))), 0)
				advance(time.Hour)
				for id, due := range map[string]time.Duration{
					"gone": -40 * time.Minute, "held": -20 * time.Minute, "behind": -5 * time.Minute, "now": 0, "later": time.Hour,
				} {
					err := rows.Put(t.Context(), &table, record.Row{
						Key:       storage.Key{Partition: mainQueue, ID: id},
						RequestID: id, TargetHost: "h.example", Reason: "busy", NextAttemptAt: now.Add(due),
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				sighttest.Fail(t, &known, sight.Target{
					App: "app", Host: "h.example", Reason: "connect", Cause: "connection refused",
					Since: now, Latest: now,
				})
				paused := setting.Setting{Host: "p.example", Member: setting.Pause, Since: now}
				if err := setting.Write(t.Context(), &app, paused); err != nil {
					t.Fatal(err)
				}
				table.Fail(test.failRecord)
				app.Fail(test.failApp)
				known.Fail(test.failApp)

				status, err := a.Status(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got := "unknown"
				if group := status.Queues[0].Scheduled; group != nil {
					got = fmt.Sprintf("%d scheduled, %d stale", group.Count, group.Stale)
				}
				for _, target := range status.Targets {
					if n := len(target.Failing); n > 0 {
						got += fmt.Sprintf("; %s: %d failing", target.Key, n)
					}
				}
				for _, p := range status.Settings {
					got += "; " + p.Host + " is paused"
				}
				problems := status.RecordProblem + "|" + status.TargetProblem + "|" + status.SettingProblem
				if got != test.scheduled || problems != test.problems || status.IsKnown() != test.known {
					t.Errorf("%s, problems %q, known %t", got, problems, status.IsKnown())
				}
				if n := status.Queues[0].Messages; n == nil || *n != 1 {
					t.Errorf("messages %v", n)
				}
			})
		})
	}
}

// TestPresenceOfLongDue: no message is called gone without a look at its queue, nor while an app holds messages, or
// has held them so lately that they have not all come back.
func TestPresenceOfLongDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 0)
		beat := func(problems ...string) *memory.Table {
			table := &memory.Table{}
			for i, problem := range problems {
				if i > 0 {
					advance(time.Minute)
				}
				app := heartbeat.App{Name: "app", Problem: problem}
				if err := heartbeat.Beat(t.Context(), table, app, "AC-monitor"); err != nil {
					t.Fatal(err)
				}
			}
			return table
		}
		ended, old := beat("hold mode: x"), beat("hold mode: x")
		for range 59 {
			advance(time.Minute)
			if err := heartbeat.Beat(t.Context(), ended, heartbeat.App{Name: "app"}, "AC-monitor"); err != nil {
				t.Fatal(err)
			}
		}
		failing := &memory.Table{}
		failing.Fail(errors.New("no answer"))
		denied := unreadable{Queues: store, err: storage.ErrDenied, is: func(string) bool { return true }}
		advance(time.Hour)
		due := record.Row{Key: storage.Key{Partition: mainQueue, ID: "1"}}
		due.NextAttemptAt = time.Now().Add(-time.Hour)
		for name, test := range map[string]struct {
			queues storage.Queues
			table  *memory.Table
			want   record.Presence
		}{
			"unreadable":         {denied, &memory.Table{}, record.Expected},
			"empty":              {store, &memory.Table{}, record.Gone},
			"held":               {store, beat("hold mode: x"), record.Unseen},
			"held_until_now":     {store, beat("", "hold mode: x", ""), record.Unseen},
			"held_until_lately":  {store, beat("hold mode: x", "", "", ""), record.Unseen},
			"held_long_ago":      {store, ended, record.Gone},
			"app_has_ended":      {store, old, record.Gone},
			"heartbeats_unknown": {store, failing, record.Unseen},
		} {
			a := newAccount(test.queues)
			a.Table = test.table
			if got := a.PresenceCheck(t.Context(), time.Now())(due); got != test.want {
				t.Errorf("%s: presence %d, want %d", name, got, test.want)
			}
		}
	})
}
