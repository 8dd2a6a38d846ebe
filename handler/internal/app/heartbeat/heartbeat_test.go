package heartbeat_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// life is an account on which apps run.
type life struct {
	*testing.T
	table *memory.Table
}

func inAccount(t *testing.T, run func(l life)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(life{t, &memory.Table{}}) })
}

// runs lets time pass, in which the timer functions of an app run on time.
func (l life) runs(app string, minutes int) {
	l.Helper()
	for range minutes {
		<-time.After(time.Minute)
		l.beat(app, functionapp.MonitorTimer)
		if time.Now().Minute() == 0 {
			l.beat(app, functionapp.KeeperTimer)
		}
	}
}

func (l life) beat(app, timer string) { l.beatAs(heartbeat.App{Name: app, Version: "test"}, timer) }

func (l life) beatAs(app heartbeat.App, timer string) {
	l.Helper()
	if err := heartbeat.Beat(l.Context(), l.table, app, timer); err != nil {
		l.Fatal(err)
	}
}

func (l life) put(id string, row heartbeat.Row) {
	l.Helper()
	row.Key = storage.Key{Partition: record.Heartbeats, ID: id}
	if err := rows.Put(l.Context(), l.table, row); err != nil {
		l.Fatal(err)
	}
}

// want checks which timer function of each app is silent.
func (l life) want(when string, want map[string]string) {
	l.Helper()
	apps, err := heartbeat.Read(l.Context(), l.table)
	if err != nil {
		l.Fatal(err)
	}
	got := map[string]string{}
	for _, app := range apps {
		got[app.Name] = app.Silent(time.Now())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// TestAppsDoNotHideEachOther: the death of an app is seen beside one that lives, until its rows are swept.
func TestAppsDoNotHideEachOther(t *testing.T) {
	inAccount(t, func(l life) {
		l.runs("shop", 1)
		l.put("m", heartbeat.Row{RequestID: "of a queue that is called heartbeat"})
		l.runs("billing", 60)
		l.want("after an hour", map[string]string{"shop": functionapp.MonitorTimer, "billing": ""})
		l.runs("billing", 7*24*60)
		sweep := func() {
			if err := record.SweepApps(l.Context(), l.table, record.Heartbeats); err != nil {
				l.Fatal(err)
			}
		}
		sweep()
		l.want("after 7 days", map[string]string{"shop": functionapp.MonitorTimer, "billing": ""})
		l.runs("billing", 24*60)
		sweep()
		l.want("after 8 days", map[string]string{"billing": ""})
		if _, found, err := l.table.Get(l.Context(), record.Heartbeats, "m"); err != nil || !found {
			l.Errorf("the row of the message is gone: %v", err)
		}
	})
}

// TestFreshApp: a keeper is late if it has not run since the app began to run, but not before it is due.
func TestFreshApp(t *testing.T) {
	inAccount(t, func(l life) {
		l.beat("shop", functionapp.MonitorTimer)
		for range 125 {
			l.want("fresh", map[string]string{"shop": ""})
			<-time.After(time.Minute)
			l.beat("shop", functionapp.MonitorTimer)
		}
		<-time.After(time.Second)
		l.want("without keeper", map[string]string{"shop": functionapp.KeeperTimer})
		l.beat("shop", functionapp.KeeperTimer)
		l.want("with keeper", map[string]string{"shop": ""})
		<-time.After(72 * time.Hour)
		l.want("stopped", map[string]string{"shop": functionapp.MonitorTimer})
		l.runs("shop", 59)
		l.want("started again", map[string]string{"shop": ""})
	})
}
