package sight_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const app = "app"

// instance is an instance of the app, with what it writes.
type instance struct {
	*sight.Sight
	log bytes.Buffer
	// stop ends the instance, and kill does it without its last rows.
	stop, kill func()
	// open says that its circuit breakers are open.
	open bool
}

// start starts an instance. The test ends when its rows are written.
func start(t *testing.T, table storage.Table, name string) *instance {
	t.Helper()
	i := &instance{}
	log := zerolog.New(&i.log)
	reached := &losing{Table: table}
	i.Sight = sight.New(reached, app, name, log)
	i.IsOpen = func(*url.URL) bool { return i.open }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		i.Run(ctx)
		close(done)
	}()
	i.stop = func() {
		cancel()
		<-done
		i.Close(background.HandlerClose)
	}
	i.kill = func() {
		reached.isLost.Store(true)
		i.stop()
	}
	return i
}

// losing is a table that loses what a dead instance would write.
type losing struct {
	storage.Table
	isLost atomic.Bool
}

func (l *losing) Put(ctx context.Context, entities []storage.Entity) error {
	if l.isLost.Load() {
		return nil
	}
	return l.Table.Put(ctx, entities)
}

func (l *losing) Delete(ctx context.Context, keys []storage.Key) error {
	if l.isLost.Load() {
		return nil
	}
	return l.Table.Delete(ctx, keys)
}

// count observes what came of a message for a host.
func (i *instance) count(host string, d decision.Decision, v *decision.Verdict) {
	i.Observe(report(host, d, v))
}

// report is that of a message that was received before.
func report(host string, d decision.Decision, v *decision.Verdict) *delivery.Report {
	target := &url.URL{Scheme: "https", Host: host}
	e := &envelope.Envelope{Call: envelope.Call{Target: target}}
	e.Attempts = 1
	return &delivery.Report{
		Result:  delivery.Result{Decision: d, Identity: &decision.Identity{TargetHost: targets.Host(target)}},
		Intake:  &decision.Intake{Envelope: e},
		Verdict: v, World: decision.World{Arrived: time.Now(), Now: time.Now()},
	}
}

func (i *instance) deliver(host string) {
	i.count(host, decision.Decision{Reason: decision.Delivered, Judged: decision.Delivered},
		&decision.Verdict{Outcome: &decision.Outcome{Status: 200, Took: 20 * time.Millisecond}})
}

func (i *instance) fail(host string, failure decision.Failure) {
	i.count(host, decision.Decision{Reason: decision.Expired, Judged: decision.Reason(failure)},
		&decision.Verdict{Outcome: &decision.Outcome{Failure: failure, Took: 20 * time.Second}})
}

func (i *instance) refuse(host string, reason decision.Reason) {
	i.count(host, decision.Decision{Reason: reason}, &decision.Verdict{Refusal: &decision.Refusal{Reason: reason}})
}

// read reads the numbers of a host as a status does.
func read(t *testing.T, r *sight.Reader, host string) sight.Series {
	t.Helper()
	numbers, err := r.Read(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	of, all := numbers.Of(host), numbers.All()
	if all.LastHour.Messages() < of.LastHour.Messages() || len(all.Minutes) < len(of.Minutes) {
		t.Errorf("of all hosts %+v, of one %+v", all, of)
	}
	return of
}

func rowsOf(t *testing.T, table storage.Table) (keys []string) {
	t.Helper()
	err := table.List(t.Context(), storage.Query{}, func(e storage.Entity) error {
		keys = append(keys, e.Partition+" "+e.ID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestCollector: what came of each message is counted by host, each instance writes one row a minute if anything
// happened and one when it stops, and a status shows the sum.
func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		a, b := start(t, &table, "a"), start(t, &table, "b")
		a.deliver("One.example")
		a.deliver("one.example")
		a.fail("one.example", decision.FailureTimeout)
		a.fail("one.example", decision.FailureInterrupted)
		b.refuse("one.example", decision.Busy)
		b.count("one.example", decision.Decision{Reason: decision.Duplicate}, &decision.Verdict{Delivered: time.Now()})
		b.deliver("two.example:8443")
		b.count("no.example", decision.Decision{Reason: decision.NotDue}, nil)
		<-time.After(5 * time.Minute)
		a.deliver("one.example")
		a.stop()
		b.stop()
		want := "[20000101T00 20000101T0000,app,a 20000101T00 20000101T0000,app,b 20000101T00 20000101T0005,app,a]"
		if got := fmt.Sprint(rowsOf(t, &table)); got != want {
			t.Errorf("rows %s, want %s", got, want)
		}
		<-time.After(75 * time.Second)
		one := read(t, sight.NewReader(&table), "one.example")
		if got := fmt.Sprint(one.LastHour.Delivered, one.LastHour.Failed, one.LastHour.Refused, one.LastHour.Durations,
			one.LastHour.P50, one.LastHour.P99); got !=
			"3 map[interrupted:1 timeout:1] map[busy:1 duplicate:1] [0 3 0 0 0 0 0 1 0 0]<30ms<30s" {
			t.Errorf("in the last hour %s", got)
		}
		if last := one.Last5Minutes; last.Delivered != 1 || last.FailedCalls() != 0 || len(one.Minutes) != 2 ||
			one.Minutes[1].At.Minute() != 5 || one.Minutes[1].Delivered != 1 {
			t.Errorf("in the last five minutes %+v, by minute %+v", last, one.Minutes)
		}
		if two := read(t, sight.NewReader(&table), "two.example:8443"); two.LastHour.Delivered != 1 {
			t.Errorf("the other target has %+v", two)
		}
	})
}

// TestNew: a message counts as new once, however it was rescheduled, and also one that came back to its line.
func TestNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		a := start(t, &table, "a")
		for _, state := range []envelope.State{
			{}, {Attempts: 1}, {NextAttemptAt: time.Now()}, {Ticket: 7},
		} {
			r := report("one.example", decision.Decision{Reason: decision.Busy},
				&decision.Verdict{Refusal: &decision.Refusal{Reason: decision.Busy}})
			r.Intake.Envelope.State = state
			a.Observe(r)
		}
		a.stop()
		<-time.After(75 * time.Second)
		if one := read(t, sight.NewReader(&table), "one.example"); one.LastHour.New != 1 {
			t.Errorf("%d new messages, want 1", one.LastHour.New)
		}
	})
}

// TestTableAway: while the table is away, calls do not wait, and the log says that minutes are missing.
func TestTableAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		table.Fail(context.DeadlineExceeded)
		a := start(t, &table, "a")
		<-time.After(30 * time.Second)
		for range 5 {
			began := time.Now()
			a.deliver("one.example")
			if took := time.Since(began); took > 0 {
				t.Errorf("an observation took %v", took)
			}
			<-time.After(time.Minute)
		}
		table.Fail(nil)
		a.deliver("one.example")
		a.stop()
		if got := len(rowsOf(t, &table)); got != 1 {
			t.Errorf("%d rows", got)
		}
		if !strings.Contains(a.log.String(), "calls per minute were not recorded") {
			t.Errorf("log %s", a.log.String())
		}
	})
}

// TestNoPermission: without permission there is one warning and no number.
func TestNoPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		table.Fail(fmt.Errorf("%w", storage.ErrDenied))
		a := start(t, &table, "a")
		for range 20 {
			a.deliver("one.example")
			<-time.After(time.Minute)
		}
		a.stop()
		if got := a.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, storage.TableRole) {
			t.Errorf("log %s", got)
		}
	})
}
