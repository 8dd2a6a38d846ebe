package sight_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// failing describes the targets that fail, as a status does.
func failing(t *testing.T, table storage.Table) string {
	t.Helper()
	targets, err := sight.NewReader(table).Failing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(targets))
	for n, f := range targets {
		breaker := ""
		if f.IsOpen() {
			breaker = " open"
		}
		texts[n] = fmt.Sprintf("%s %s since %s%s", f.Host, f.Cause, f.Since.Format("15:04"), breaker)
	}
	return strings.Join(texts, "; ")
}

func want(t *testing.T, table storage.Table, wanted string) {
	t.Helper()
	if got := failing(t, table); got != wanted {
		t.Errorf("at %s:\n%q, want\n%q", time.Now().UTC().Format("15:04:05"), got, wanted)
	}
}

func nowRows(t *testing.T, table storage.Table) []string {
	t.Helper()
	return slices.DeleteFunc(rowsOf(t, table), func(key string) bool { return !strings.HasPrefix(key, "now ") })
}

// TestRowOfTheDead: what a dead instance has seen stays known while its target fails, whoever takes it over, and not
// any longer, although nobody who has seen it fail calls the target again.
func TestRowOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		dead, other := start(t, &table, "dead"), start(t, &table, "other")
		dead.open = true
		dead.fail("h.example", decision.FailureConnection)
		<-time.After(2 * time.Minute)
		want(t, &table, "h.example connection since 00:00 open")
		dead.kill()
		for range 20 {
			other.deliver("ok.example")
			<-time.After(time.Minute)
		}
		want(t, &table, "h.example connection since 00:00 open")
		if got := fmt.Sprint(nowRows(t, &table)); got != "[now app,other]" {
			t.Errorf("rows %s", got)
		}
		other.fail("h.example", decision.FailureTimeout)
		<-time.After(2 * time.Minute)
		want(t, &table, "h.example timeout since 00:00")
		other.deliver("h.example")
		<-time.After(2 * time.Minute)
		want(t, &table, "")
		if got := nowRows(t, &table); len(got) != 0 {
			t.Errorf("rows %v", got)
		}
		other.stop()
	})
}

// TestIdleInstance: a target that recovers is well, although the instance that has seen it fail is idle for hours, and
// then calls another one.
func TestIdleInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		idle, busy := start(t, &table, "idle"), start(t, &table, "busy")
		idle.fail("h.example", decision.FailureTimeout)
		<-time.After(2 * time.Minute)
		for minute := range 180 {
			busy.deliver("h.example")
			<-time.After(time.Minute)
			if minute >= 1 {
				want(t, &table, "")
			}
		}
		for range 60 {
			busy.deliver("other.example")
			<-time.After(time.Minute)
		}
		idle.fail("k.example", decision.FailureTimeout)
		<-time.After(2 * time.Minute)
		want(t, &table, "k.example timeout since 04:02")
		idle.stop()
		busy.stop()
	})
}

// TestInventions: whoever writes to the table, or invents hosts, hides no target.
func TestInventions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		i := start(t, &table, "a")
		i.fail("h.example", decision.FailureTimeout)
		future := time.Now().Add(time.Hour)
		sighttest.Fail(t, &table, sight.Target{App: app, Host: "later.example", Since: future, Latest: future})
		sighttest.Fail(t, &table, sight.Target{App: app, Host: "no-time.example"})
		sighttest.Count(t, &table, app, future, sight.Interval{
			Hosts: map[string]*sight.Counts{"invented.example": {Delivered: 1000}},
		})
		for id, view := range map[string]string{
			"1": `{"succeeded":{"h.example":"9999-12-31T00:00:00Z"}}`, "2": `[`,
			"3": `{"failing":[{"host":"` + strings.Repeat("x", 1000) +
				`","since":"2000-01-01T00:00:00Z","latest":"1999-01-01T00:00:00Z"}]}`,
		} {
			row := storage.Entity{Key: storage.Key{Partition: "now", ID: "app," + id}, Values: map[string]any{
				"app": app, "view": []byte(view),
			}}
			if err := table.Put(t.Context(), []storage.Entity{row}); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Minute)
		for n := range 500 { // a minute later
			i.fail(fmt.Sprintf("invented-%d.example", n), decision.FailureTimeout)
			i.refuse(fmt.Sprintf("counted-%d.example", n), decision.Paused)
		}
		i.fail("h.example", decision.FailureTimeout)
		<-time.After(2 * time.Minute)
		if got := failing(t, &table); !strings.HasPrefix(got, "h.example timeout since 00:00; invented-") ||
			strings.Count(got, ";") != 99 {
			t.Errorf("got %s", got)
		}
		<-time.After(time.Until(future) + 2*time.Minute)
		if n := read(t, sight.NewReader(&table), "invented.example").LastHour.Delivered; n > 0 {
			t.Errorf("%d calls of the future were delivered", n)
		}
		i.stop()
	})
}

// counting counts the transactions of a table.
type counting struct {
	memory.Table
	n atomic.Int64
}

func (c *counting) Put(ctx context.Context, entities []storage.Entity) error {
	c.n.Add(1)
	return c.Table.Put(ctx, entities)
}

func (c *counting) Delete(ctx context.Context, keys []storage.Key) error {
	c.n.Add(1)
	return c.Table.Delete(ctx, keys)
}

func (c *counting) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	c.n.Add(1)
	return c.Table.List(ctx, q, see)
}

// TestTransactions: an instance that calls all the time, one of whose targets fails, needs at most three transactions a
// minute; one that has been idle for some minutes needs none.
func TestTransactions(t *testing.T) {
	const minutes = 30
	for _, count := range []int{1, 5} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var table counting
				instances := make([]*instance, count)
				for n := range instances {
					instances[n] = start(t, &table, fmt.Sprint(n))
				}
				for range minutes {
					for _, i := range instances {
						i.deliver("ok.example")
						i.fail("h.example", decision.FailureTimeout)
					}
					<-time.After(time.Minute)
				}
				perMinute := float64(table.n.Load()) / minutes / float64(count)
				if perMinute > 3.1 {
					t.Errorf("%.2f transactions per instance and minute", perMinute)
				}
				<-time.After(7 * time.Minute)
				before := table.n.Load()
				<-time.After(time.Hour)
				if n := table.n.Load() - before; n > 0 {
					t.Errorf("%d transactions of idle instances", n)
				}
				for _, i := range instances {
					i.stop()
				}
			})
		})
	}
}
