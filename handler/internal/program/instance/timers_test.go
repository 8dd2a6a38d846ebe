package instance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/background"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// timerApp is an app whose timer functions work on an account and tables in memory.
type timerApp struct {
	store    *memory.Queues
	rows     memory.Table
	outcomes memory.Table
	targets  memory.Table
	numbers  memory.Table
	account  *account.Account
	tasks    map[string]ingress.Task
	log      bytes.Buffer
	ctx      context.Context
}

func newTimers(t *testing.T, scheduled ...record.Row) *timerApp {
	t.Helper()
	app := &timerApp{store: memory.New()}
	for _, name := range []string{"async-caller", "async-caller-poison"} {
		if err := app.store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Put(t.Context(), &app.rows, scheduled...); err != nil {
		t.Fatal(err)
	}
	log := zerolog.New(&app.log)
	app.ctx = log.WithContext(t.Context())
	records := records{
		scheduled: record.NewWriter(&app.rows, 1<<20, log),
		outcomes:  record.NewOutcomeWriter(&app.outcomes, 1<<20, log),
		app:       &app.targets,
		shared: background.New(background.Config{
			Table: &app.targets, Rows: "limits of targets", Bytes: 1 << 20, Log: log,
		}),
		sight: sight.New(&app.numbers, "local", "a", log),
	}
	t.Cleanup(records.close)
	app.account = &account.Account{
		Store: app.store, Name: "test", AppQueues: []string{"async-caller"},
		Rules: message.Rules{Encoding: storage.Base64},
	}
	app.tasks = timers{
		Config: Config{App: config.App{
			Functions: &functionapp.App{}, Environ: []string{"WEBSITE_HOSTNAME=shop.azurewebsites.net"},
		}},
		records: records, account: app.account,
	}.tasks(t.Context())
	return app
}

// rowAt returns a row whose message is due after a while.
func rowAt(id, host string, wait time.Duration) record.Row {
	now := time.Now()
	return record.Row{
		Key:       storage.Key{Partition: "async-caller", ID: id},
		RequestID: "r-" + id, PopReceipt: "RECEIPT", TargetHost: host,
		CreatedAt: now.Add(-time.Hour), NextAttemptAt: now.Add(wait), Deadline: now.Add(48 * time.Hour),
	}
}

// run runs a timer function, and returns its log lines, summary and error.
func (app *timerApp) run(name string) string {
	app.log.Reset()
	summary, err := app.tasks[name](app.ctx)
	return fmt.Sprintf("%s%s error: %v", app.log.String(), summary, err)
}

func (app *timerApp) put(t *testing.T, name, text string) {
	t.Helper()
	if _, err := app.store.Put(t.Context(), name, storage.Item{Text: storage.Base64.Encode([]byte(text))}); err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, got string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestMonitorLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := newTimers(t).run(functionapp.MonitorTimer)
		contains(t, idle, `"message":"alive"`, "0 of 1 queues")
		if strings.Count(idle, "\n") != 1 {
			t.Errorf("without messages, it says more than that:\n%s", idle)
		}
		app := newTimers(t, rowAt("aaaaaaaa-1", "one.example", time.Hour),
			rowAt("bbbbbbbb-2", "two.example", time.Minute))
		for _, name := range []string{"theirs", "theirs-poison"} {
			if err := app.store.Create(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		app.put(t, "theirs", "of another app")
		got := app.run(functionapp.MonitorTimer)
		contains(t, got, `"account":"test"`, `"hold_mode":false,"message":"alive"`, `"scheduled":2`,
			`"depth":0,"poison":0`, `"age":3600000`, "1 of 1 queues are not empty error: <nil>")
		if strings.Contains(got, "theirs") || strings.Count(got, `"message":"queue"`) != 1 {
			t.Errorf("a line about the queue of another app:\n%s", got)
		}
		app.put(t, "async-caller", fmt.Sprintf(`{"asyncCaller":1,"createdAt":%q,"call":{"url":"https://t.example/"}}`,
			time.Now().Add(-5*time.Hour).Format(time.RFC3339)))
		app.put(t, "async-caller-poison", "no envelope")
		contains(t, app.run(functionapp.MonitorTimer), `"depth":1,"poison":1,"scheduled":2,"oldest":"`,
			`"age":18000000`)
		const id = functionapp.MonitorTimer + ",local"
		if row, found, err := app.rows.Get(t.Context(), record.Heartbeats, id); !found ||
			time.Since(row.WrittenAt) > 5*time.Second || row.Values["hostName"] != "shop.azurewebsites.net" {
			t.Errorf("heartbeat %v, %v", row, err)
		}
	})
}

// TestBeatSaysWhatIsServed: the heartbeat has the adapter and the queues of the functions that run, or those that the
// instance was told to serve.
func TestBeatSaysWhatIsServed(t *testing.T) {
	functions := &functionapp.App{
		Functions: []functionapp.Function{
			{Name: "A", Queue: "a-1"}, {Name: "B", Queue: "b-1"}, {Name: "C", Queue: "c-1"},
		},
	}
	for name, test := range map[string]struct{ told, want []string }{
		"all": {nil, []string{"a-1", "c-1"}}, "told": {[]string{"c-1"}, []string{"c-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				app := newTimers(t)
				c := Config{Store: app.store, Adapter: heartbeat.Worker, Queues: test.told, App: config.App{
					Functions: functions, Environ: []string{"AzureWebJobs.B.Disabled=1", "CONTAINER_APP_NAME=Shop"},
				}}
				if err := c.timers(records{}).beat(t.Context(), &app.rows, functionapp.MonitorTimer); err != nil {
					t.Fatal(err)
				}
				apps, err := heartbeat.Read(t.Context(), &app.rows)
				if err != nil || len(apps) != 1 || apps[0].Name != "shop" || apps[0].Adapter != heartbeat.Worker ||
					!slices.Equal(apps[0].Queues, test.want) {
					t.Errorf("%+v, %v: want the queues %q", apps, err, test.want)
				}
			})
		})
	}
}

// TestMonitorAgeOfCallsForLater: a call for tomorrow is not late, so that no alert fires. A long delay after a failure
// takes several messages, which are not due either, and the call is late.
func TestMonitorAgeOfCallsForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forTomorrow := rowAt("aaaaaaaa-1", "one.example", 24*time.Hour)
		forTomorrow.Reason = string(decision.NotDue)
		got := newTimers(t, forTomorrow).run(functionapp.MonitorTimer)
		contains(t, got, `"scheduled":1`)
		if strings.Contains(got, `"age":`) {
			t.Errorf("the call for tomorrow has an age:\n%s", got)
		}
		failed := forTomorrow
		failed.Attempts = 3
		contains(t, newTimers(t, failed).run(functionapp.MonitorTimer), `"age":3600000`)
	})
}

// TestMonitorNamesPauses: the monitor logs which targets are paused, few of many.
func TestMonitorNamesPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := newTimers(t)
		for n := range 25 {
			p := setting.Setting{
				Host: fmt.Sprintf("h%d.example", n), Member: setting.Pause, Since: time.Now().UTC(), By: "anna@ops-7",
			}
			if n > 0 {
				p.Until = p.Since.Add(time.Hour)
			}
			if err := setting.Write(t.Context(), &app.targets, p); err != nil {
				t.Fatal(err)
			}
		}
		got := app.run(functionapp.MonitorTimer)
		contains(t, got, `"target_host":"h0.example","detail":"since 2000-01-01T00:00:00Z by anna@ops-7 until it is re`,
			", 25 targets are paused error: <nil>")
		if n := strings.Count(got, `"message":"paused"`); n != 20 {
			t.Errorf("%d lines", n)
		}
		<-time.After(time.Hour)
		contains(t, app.run(functionapp.MonitorTimer), ", 1 targets are paused")
		app.targets.Fail(fmt.Errorf("no answer"))
		contains(t, app.run(functionapp.MonitorTimer), "error: read which targets are paused: no answer")
	})
}

// TestKeeperSweepsOld: the numbers of a minute, and the outcomes of messages of runs, are removed after a day.
func TestKeeperSweepsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := newTimers(t)
		sighttest.Count(t, &app.numbers, "local", time.Now(), sight.Interval{})
		row := record.Outcome{Key: storage.Key{Partition: "T0KEN", ID: "r1.1.called"}, Action: "finish"}
		if err := rows.Put(t.Context(), &app.outcomes, row); err != nil {
			t.Fatal(err)
		}
		left := func() (n int) {
			for _, table := range []*memory.Table{&app.numbers, &app.outcomes} {
				err := table.List(t.Context(), storage.Query{}, func(storage.Entity) error { n++; return nil })
				if err != nil {
					t.Error(err)
				}
			}
			return n
		}
		<-time.After(23 * time.Hour)
		if got := app.run(functionapp.KeeperTimer); left() != 2 || strings.Contains(got, "outcomes") {
			t.Errorf("%d rows are left after 23 hours: %s", left(), got)
		}
		<-time.After(2 * time.Hour)
		contains(t, app.run(functionapp.KeeperTimer), ", removed 1 outcomes of messages of runs error: <nil>")
		if left() != 0 {
			t.Errorf("%d rows are left after a day", left())
		}
		app.numbers.Fail(fmt.Errorf("no answer"))
		app.outcomes.Fail(fmt.Errorf("list rows: no answer"))
		contains(t, app.run(functionapp.KeeperTimer), "incomplete: kept 0 messages",
			"remove old rows of what the app knows of targets: no answer",
			"remove outcomes of messages of runs: list rows: no answer")
	})
}

// TestAlerts: the queries of the documentation find the lines of the monitor.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, alerts, _ := strings.Cut(string(text), "## Alerts")
	alerts, _, _ = strings.Cut(alerts, "\n## ")
	app := newTimers(t, rowAt("aaaaaaaa-1", "one.example", time.Hour))
	app.put(t, "async-caller-poison", "no envelope")
	got := app.run(functionapp.MonitorTimer)
	queries := regexp.MustCompile(`has '("message":"(?:queue|alive)")'|line\.(queue|poison|age)\b`).
		FindAllStringSubmatch(alerts, -1)
	if len(queries) != 8 {
		t.Errorf("%d texts of the monitor in the queries", len(queries))
	}
	for _, found := range queries {
		contains(t, got, cmp.Or(found[1], `"`+found[2]+`":`))
	}
	if n := strings.Count(alerts, "traces | where"); n != 8 {
		t.Errorf("%d alerts", n)
	}
}

// unreadable has queues that cannot be counted, or whose names cannot be read.
type unreadable struct {
	storage.Queues
	name string
	err  error
}

func (u unreadable) Count(ctx context.Context, name string) (int, error) {
	if name == u.name {
		return 0, u.err
	}
	return u.Queues.Count(ctx, name)
}

func (u unreadable) Names(ctx context.Context, prefix string) ([]string, error) {
	if u.name == "" {
		return nil, u.err
	}
	return u.Queues.Names(ctx, prefix)
}

// TestMonitorUnknown: the monitor logs no number that it could not read and does not say that the app is alive, or the
// alerts would end.
func TestMonitorUnknown(t *testing.T) {
	for _, unread := range []string{"", "async-caller-poison", "async-caller"} { // "" is the account
		for _, err := range []error{storage.ErrDenied, fmt.Errorf("200 OK: %w", storage.ErrForeign)} {
			synctest.Test(t, func(t *testing.T) {
				app := newTimers(t)
				app.put(t, "async-caller", "x")
				app.put(t, "async-caller-poison", "x")
				app.account.Store = unreadable{app.store, unread, err}
				got := app.run(functionapp.MonitorTimer)
				contains(t, got, "error: ", err.Error())
				if strings.Contains(got, `"alive"`) || strings.Contains(got, `"poison"`) {
					t.Errorf("%q: it says\n%s", unread, got)
				}
			})
		}
	}
}

// TestTimersWithoutTable: the queues are watched and kept whatever happens to the table. A missing permission is logged
// once, another problem each time.
func TestTimersWithoutTable(t *testing.T) {
	for name, test := range map[string]struct {
		err         error
		first, next string
	}{
		"denied": {fmt.Errorf("list rows: %w", storage.ErrDenied), storage.TableRole, "error: <nil>"},
		"away":   {fmt.Errorf("list rows: no answer"), "error: list rows: no answer", "error: list rows: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			app := newTimers(t)
			app.rows.Fail(test.err)
			app.put(t, "async-caller", "x")
			contains(t, app.run(functionapp.MonitorTimer), test.first, `"message":"queue"`)
			got := app.run(functionapp.MonitorTimer)
			if contains(t, got, test.next, `"message":"queue"`); strings.Contains(got, storage.TableRole) {
				t.Errorf("logged again:\n%s", got)
			}
			if kept := app.run(functionapp.KeeperTimer); !strings.Contains(kept, "kept 0 messages") {
				t.Errorf("keeper: %s", kept)
			}
		})
	}
}

// TestTimersWithOneTableDenied: a table that is denied ends what is kept there, is logged once, and nothing else ends.
func TestTimersWithOneTableDenied(t *testing.T) {
	denied := fmt.Errorf("list rows: %w", storage.ErrDenied)
	for name, test := range map[string]struct {
		denied          func(*timerApp) *memory.Table
		logged          string
		beats, sayPause bool
	}{
		"scheduled": {func(app *timerApp) *memory.Table { return &app.rows }, "calls that wait are", false, true},
		"app":       {func(app *timerApp) *memory.Table { return &app.targets }, "limits of targets are", true, false},
		"numbers":   {func(app *timerApp) *memory.Table { return &app.numbers }, "calls per minute are", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				app := newTimers(t)
				paused := setting.Setting{Host: "crm.example", Member: setting.Pause, Since: time.Now()}
				if err := setting.Write(t.Context(), &app.targets, paused); err != nil {
					t.Fatal(err)
				}
				test.denied(app).Fail(denied)
				first := app.run(functionapp.MonitorTimer) + app.run(functionapp.KeeperTimer)
				if contains(t, first, test.logged); strings.Count(first, storage.TableRole) != 1 {
					t.Errorf("first:\n%s", first)
				}
				if strings.Contains(first, `"paused"`) != test.sayPause {
					t.Errorf("pauses:\n%s", first)
				}
				app.rows.Fail(nil)
				apps, err := heartbeat.Read(t.Context(), &app.rows)
				if err != nil || len(apps) == 1 != test.beats {
					t.Errorf("heartbeats %v, %v", apps, err)
				}
			})
		})
	}
}

// TestKeeperSweeps: rows are removed when their messages are long due, and the messages at the front of the queue are
// not. None is removed while an app may hold messages.
func TestKeeperSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting, overtaken := rowAt("dddddddd-4", "t.example", 30*time.Minute),
			rowAt("eeeeeeee-5", "t.example", -time.Hour)
		waiting.Partition, overtaken.Partition = "busy", "busy"
		app := newTimers(t, rowAt("aaaaaaaa-1", "t.example", -2*time.Hour), rowAt("bbbbbbbb-2", "t.example",
			270*time.Minute), rowAt("cccccccc-3", "t.example", 6*time.Hour), waiting, overtaken)
		if err := app.store.Create(t.Context(), "busy"); err != nil {
			t.Fatal(err)
		}
		app.put(t, "busy", fmt.Sprintf(`{"asyncCaller":1,"nextAttemptAt":%q,"call":{"url":"https://t.example/"}}`,
			time.Now().Add(time.Hour).Format(time.RFC3339)))
		<-time.After(4 * time.Hour)
		err := heartbeat.Beat(t.Context(), &app.rows, heartbeat.App{Name: "other", Problem: "hold mode: x"},
			functionapp.MonitorTimer)
		if err != nil {
			t.Fatal(err)
		}
		contains(t, app.run(functionapp.KeeperTimer), "removed 0 rows of scheduled calls that are gone error: <nil>")
		<-time.After(time.Hour) // the queue's message has been visible for 4 hours
		contains(t, app.run(functionapp.KeeperTimer), "removed 2 rows of scheduled calls that are gone error: <nil>")
		var left []string
		if err := app.rows.List(t.Context(), storage.Query{},
			func(r storage.Entity) error { left = append(left, r.ID); return nil }); err != nil {
			t.Fatal(err)
		}
		const want = "[bbbbbbbb-2 cccccccc-3 dddddddd-4 AC-monitor,other AC-poison-keeper,local]"
		if got := fmt.Sprint(left); got != want {
			t.Errorf("rows left: %s", got)
		}
	})
}

// TestKeeperOfRoutes: the keeper leaves a content as it is, and the monitor believes nothing that it says, even if
// routes.json is invalid.
func TestKeeperOfRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "orders-in"
		app := newTimers(t)
		route := functionapp.Function{Name: functionapp.RouteFunction(name), Queue: name}
		app.tasks = Config{
			Store: app.store,
			App:   config.App{Functions: &functionapp.App{Functions: []functionapp.Function{route}}},
		}.timers(records{}).tasks(t.Context())
		lookalike := storage.Base64.Encode(
			[]byte(`{"asyncCaller":1,"createdAt":"1999-01-01T00:00:00Z","call":{"url":"https://evil.example/"}}`))
		for queue, ttl := range map[string]time.Duration{name: 0, name + storage.PoisonSuffix: time.Hour} {
			if err := app.store.Create(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
			if _, err := app.store.Put(t.Context(), queue, storage.Item{Text: lookalike, TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		contains(t, app.run(functionapp.KeeperTimer), "kept 1 messages")
		kept := app.store.All(name + storage.PoisonSuffix)
		if len(kept) != 1 || kept[0].Text != lookalike || kept[0].Expires() {
			t.Errorf("%+v", kept)
		}
		contains(t, app.run(functionapp.MonitorTimer), `"queue":"orders-in","depth":1,"poison":1`, `"age":0`)
	})
}

// TestProfilesInTheMonitor: AC-monitor says when the first client certificate ends, in its line and to operators, and
// nothing of the pause of a host that has moved.
func TestProfilesInTheMonitor(t *testing.T) {
	pfx, err := os.ReadFile("../../rules/certificate/testdata/openssl3.pfx")
	if err != nil {
		t.Fatal(err)
	}
	app := newTimers(t)
	app.account.Rules.Decision.Profiles, err = targets.Parse([]byte(`{"a.example": {"certificate": "$CERT"},
		"old.example": {"to": "https://a.example"}}`), nil,
		func(string) string { return base64.StdEncoding.EncodeToString(pfx) })
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"old.example", "a.example"} {
		s := setting.Setting{Host: host, Member: setting.Pause, Since: time.Now()}
		if err := setting.Write(t.Context(), &app.targets, s); err != nil {
			t.Fatal(err)
		}
	}
	got := app.run(functionapp.MonitorTimer)
	contains(t, got, `"certificate_days":3`, `"certificate":"$CERT"`, "1 targets are paused")
	if strings.Contains(got, "old.example") {
		t.Errorf("got %s", got)
	}
	apps, err := heartbeat.Read(t.Context(), &app.rows)
	if err != nil || len(apps) != 1 || apps[0].Certificate != "a.example: $CERT" || apps[0].CertificateEnds.IsZero() {
		t.Errorf("got %+v, %v", apps, err)
	}
}
