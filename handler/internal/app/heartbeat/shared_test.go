package heartbeat_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// only returns the app of an account that has one.
func (l life) only() heartbeat.App {
	l.Helper()
	apps, err := heartbeat.Read(l.Context(), l.table)
	if err != nil || len(apps) != 1 {
		l.Fatalf("%+v, %v", apps, err)
	}
	return apps[0]
}

// TestLaterBeat: the later beat of an app says which adapter serves which queues, and why it makes no calls.
func TestLaterBeat(t *testing.T) {
	inAccount(t, func(l life) {
		for _, beat := range []struct {
			timer            string
			adapter, problem string
			queues           []string
		}{
			{functionapp.MonitorTimer, heartbeat.Host, "", []string{"async-caller", "orders"}},
			{functionapp.KeeperTimer, heartbeat.Worker, "hold mode: x", []string{"orders"}},
			{functionapp.MonitorTimer, "", "hold mode: y", nil}, // an older version
			{functionapp.MonitorTimer, "", "", nil},             // corrected
		} {
			<-time.After(time.Minute)
			app := heartbeat.App{Name: "shop", Adapter: beat.adapter, Problem: beat.problem, Queues: beat.queues}
			l.beatAs(app, beat.timer)
			got := l.only()
			if got.Adapter != app.Adapter || got.Problem != app.Problem || !slices.Equal(got.Queues, app.Queues) {
				t.Errorf("read %+v, want %+v", got, app)
			}
		}
	})
}

// TestManyQueues: the queues of a beat are as many as a row takes, each with its whole name.
func TestManyQueues(t *testing.T) {
	inAccount(t, func(l life) {
		var queues []string
		for n := range 200 {
			queues = append(queues, fmt.Sprintf("orders-in-%03d", n))
		}
		l.beatAs(heartbeat.App{Name: "shop", Queues: queues}, functionapp.MonitorTimer)
		got := l.only().Queues
		const fit = (rows.MaxText + 1) / 14
		if len(got) != fit || !slices.Equal(got, queues[:fit]) {
			l.Errorf("%d queues, want %d: %q", len(got), fit, got)
		}
	})
}

// TestHostileRow: what a row says is bounded and printable, and nothing that can be no adapter or queue is read.
func TestHostileRow(t *testing.T) {
	inAccount(t, func(l life) {
		l.put(functionapp.MonitorTimer+",shop", heartbeat.Row{
			App: "shop", Adapter: "host\x1b[2J", Queues: "async-caller,,A_B,\x1b[2J," + strings.Repeat("q", 64),
		})
		if got := l.only(); got.Adapter != "" || !slices.Equal(got.Queues, []string{"async-caller"}) {
			t.Errorf("read %q %q", got.Adapter, got.Queues)
		}
		key := storage.Key{Partition: record.Heartbeats, ID: functionapp.MonitorTimer + ",shop"}
		err := l.table.Put(l.Context(), []storage.Entity{{Key: key, Values: map[string]any{
			"app": "shop", "cause": strings.Repeat("\x1b[2J", 500), "queues": strings.Repeat("abc,", 10_000),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		got := l.only()
		if len(got.Queues) > rows.MaxText/4 || len(got.Problem) > 2000 || strings.Contains(got.Problem, "\x1b") {
			t.Errorf("%d queues, problem %q", len(got.Queues), got.Problem)
		}
	})
}

// TestShared: apps that run and serve the same queues are named, and nothing is claimed of what is unknown.
func TestShared(t *testing.T) {
	now := time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC)
	app := func(name, adapter string, queues ...string) heartbeat.App {
		return heartbeat.App{Name: name, Adapter: adapter, Queues: queues, Monitor: now.Add(-time.Minute)}
	}
	host, worker := app("shop", heartbeat.Host, "a-1", "a-2", "a-3", "a-4"), app("shop-w", heartbeat.Worker, "a-1")
	stopped, holds := worker, worker
	stopped.Monitor = now.Add(-4 * time.Minute)
	holds.Problem = "hold mode: x"
	all := worker
	all.Queues = host.Queues
	const counts = ": each of them counts limits of targets on its own"
	for name, test := range map[string]struct {
		apps []heartbeat.App
		want string
	}{
		"none":     {nil, ""},
		"one":      {[]heartbeat.App{host}, ""},
		"apart":    {[]heartbeat.App{host, app("shop-w", heartbeat.Worker, "b-1")}, ""},
		"unknown":  {[]heartbeat.App{host, app("old", "")}, ""},
		"stopped":  {[]heartbeat.App{host, stopped}, ""},
		"in_hold":  {[]heartbeat.App{host, holds}, ""},
		"repeated": {[]heartbeat.App{app("shop", heartbeat.Host, "a-1", "a-1")}, ""},
		"two": {
			[]heartbeat.App{host, worker, app("other", heartbeat.Host, "b-1")},
			"the apps shop (host), shop-w (worker) serve the same queues, a-1" + counts,
		},
		"many": {
			[]heartbeat.App{host, all, app("x", "", "a-1"), app("y", "", "a-2"), app("z\x1b", "", "a-1")},
			"the apps shop (host), shop-w (worker), x, and 2 more serve the same queues, a-1, a-2, a-3, and 1 more" +
				counts,
		},
	} {
		if got := heartbeat.Shared(test.apps, now); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
