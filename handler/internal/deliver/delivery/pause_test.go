package delivery_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage/memory"
)

// TestPaused: a message for a paused target is rescheduled without a call. Its deadline goes on, and its last attempt
// is not made.
func TestPaused(t *testing.T) {
	const target = "target.example:8443" // of the messages
	for name, row := range map[string]struct {
		host    string
		lasts   time.Duration // 0: until it is resumed
		members string
		denied  bool
		action  decision.Action
		reason  decision.Reason
		delay   time.Duration
		called  bool
	}{
		"host":       {host: "target.example", action: decision.Reschedule, reason: decision.Paused, delay: 9 * time.Minute},
		"port":       {host: target, action: decision.Reschedule, reason: decision.Paused, delay: 9 * time.Minute},
		"other_port": {host: "target.example:443", action: decision.Finish, reason: decision.Delivered, called: true},
		"ends_soon": {
			host: target, lasts: 4 * time.Minute, action: decision.Reschedule, reason: decision.Paused,
			delay: 4*time.Minute + 30*time.Second,
		},
		"ended": {host: target, lasts: time.Nanosecond, action: decision.Finish, reason: decision.Delivered, called: true},
		"last_attempt": {
			host: target, members: `,"deadline":"2000-01-01T00:00:05Z"`, action: decision.Reschedule,
			reason: decision.Paused, delay: 1500 * time.Millisecond,
		},
		"deadline": {
			host: target, members: `,"deadline":"2000-01-01T00:00:01Z"`, action: decision.DeadLetter,
			reason: decision.Expired,
		},
		"not_due": {
			host: target, members: `,"notBefore":"2000-01-01T01:00:00Z"`, action: decision.Reschedule,
			reason: decision.NotDue, delay: time.Hour,
		},
		"refused": {host: target, denied: true, action: decision.DeadLetter, reason: "target_refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 200}))
				if row.denied {
					b.Guard.Deny = mustDeny(t, "target.example")
				}
				var app, scheduled memory.Table
				p := setting.Setting{Host: row.host, Member: setting.Pause, Since: midnight}
				if row.lasts > 0 {
					p.Until = midnight.Add(row.lasts)
				}
				if err := setting.Write(t.Context(), &app, p); err != nil {
					t.Fatal(err)
				}
				b.Settings = setting.NewWatcher(&app, zerolog.New(b.log))
				b.Settings.Read(t.Context(), time.Second)
				if name == "ended" {
					b.Now = func() time.Time { return time.Now().Add(time.Second) }
				}
				b.Record = record.NewWriter(&scheduled, 1<<20, zerolog.Nop())
				r := b.deliver(fmt.Sprintf(plain, `,"attempts":3`+row.members))
				b.Record.Close(time.Second)
				if r.Action != row.action || r.Reason != row.reason || r.Delay != row.delay {
					t.Errorf("%s, %s in %v: %s", r.Action, r.Reason, r.Delay, r.Detail)
				}
				if called := len(b.target.calls) > 0; called != row.called {
					t.Errorf("called %t", called)
				}
				if r.Reason != decision.Paused {
					return
				}
				if r.State.Attempts != 3 || r.Attempt != 0 {
					t.Errorf("%d attempts, attempt %d", r.State.Attempts, r.Attempt)
				}
				var reasons []string
				see := func(row record.Row) error { reasons = append(reasons, row.Reason); return nil }
				err := record.ListScheduled(t.Context(), &scheduled, record.Query{}, see)
				wantRow := row.delay >= decision.MinRecordedDelay
				if err != nil || (len(reasons) == 1 && reasons[0] == "paused") != wantRow {
					t.Errorf("recorded %q, %v", reasons, err)
				}
			})
		})
	}
}

func mustDeny(t *testing.T, text string) guard.List {
	t.Helper()
	list, err := guard.ParseDeny(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestLiveLimit: a limit that an operator sets holds for the calls of a target that has none in targets.json, and its
// row says so. A target that has one gets the calls of the operator's.
func TestLiveLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 200}))
		profiles, err := targets.Parse([]byte(`{"slow.example":{"rate":"1/h"}}`), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Rules.Profiles = profiles
		var app, scheduled memory.Table
		for host, rate := range map[string]string{"t.example": "1/m", "slow.example": "3/s"} {
			s := setting.Setting{Host: host, Member: setting.Rate, Value: rate, Since: midnight}
			if err := setting.Write(t.Context(), &app, s); err != nil {
				t.Fatal(err)
			}
		}
		b.Settings = setting.NewWatcher(&app, zerolog.Nop())
		b.Settings.Read(t.Context(), time.Second)
		b.Record = record.NewWriter(&scheduled, 1<<20, zerolog.Nop())
		deliver := func(host string) string {
			r := b.deliver(fmt.Sprintf(`{"asyncCaller":1,"call":{"url":"https://%s/"}}`, host))
			return fmt.Sprint(r.Reason, " ", r.Detail)
		}
		for _, call := range [][2]string{
			{"t.example", "delivered "},
			{"t.example", "busy limit 1/m"},
			{"slow.example", "delivered "},
			{"slow.example", "delivered "},
			{"slow.example", "delivered "},
			{"other.example", "delivered "},
			{"other.example", "delivered "},
		} {
			if got := deliver(call[0]); got != call[1] {
				t.Errorf("%s: %s, want %s", call[0], got, call[1])
			}
		}
		b.Record.Close(time.Second)
		var causes []string
		see := func(row record.Row) error { causes = append(causes, row.Cause); return nil }
		err = record.ListScheduled(t.Context(), &scheduled, record.Query{}, see)
		if err != nil || len(causes) != 1 || causes[0] != "limit 1/m" {
			t.Errorf("causes %q, %v", causes, err)
		}
	})
}
