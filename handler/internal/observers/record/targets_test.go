package record

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// bench has a table and the instances of apps that share it.
type bench struct {
	t     *testing.T
	table *countingTable
	stops []func()
}

// countingTable counts the operations on a table. Late, unless nil, is called before a row is replaced.
type countingTable struct {
	memory.Table
	lists, writes atomic.Int32
	late          func()
}

func (c *countingTable) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	c.lists.Add(1)
	return c.Table.List(ctx, q, see)
}

func (c *countingTable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if late := c.late; late != nil {
		c.late = nil
		late()
	}
	c.writes.Add(1)
	return c.Table.Replace(ctx, entity)
}

// inBubble runs a test with a fake clock.
func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, table: &countingTable{}}
		test(b)
		for _, stop := range b.stops {
			stop()
		}
	})
}

// instance starts an instance of an app.
func (b *bench) instance(app string) *Targets {
	scheduled := NewScheduledWriter(b.table, 1<<20, zerolog.Nop())
	targets := NewTargets(b.table, app, scheduled)
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { targets.Run(ctx); close(done) }()
	b.stops = append(b.stops, func() {
		stop()
		<-done
		scheduled.Close(0)
	})
	return targets
}

// after lets time pass.
func (b *bench) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// fails makes a call fail that began some time ago.
func fails(t *Targets, host, cause string, ago time.Duration) {
	began := time.Now().Add(-ago)
	t.Failed(Target{Host: host, Reason: "why", Cause: cause, Since: began, Latest: began})
}

func succeeds(t *Targets, host string) { t.Succeeded(host, time.Now()) }

// want checks the rows: the app, the host, the cause, and the seconds since the first and the latest failure.
func (b *bench) want(rows ...string) {
	b.t.Helper()
	failing, err := ReadTargets(b.t.Context(), &b.table.Table)
	if err != nil {
		b.t.Fatal(err)
	}
	var got []string
	for _, f := range failing {
		got = append(got, fmt.Sprintf("%s %s %s %.0f %.0f", f.App, f.Host, f.Cause,
			time.Since(f.Since).Seconds(), time.Since(f.Latest).Seconds()))
	}
	if strings.Join(got, ", ") != strings.Join(rows, ", ") {
		b.t.Errorf("rows %q, want %q", got, rows)
	}
}

// TestTargetFailsAndRecovers: a failure is soon in the table, and a success removes it.
func TestTargetFailsAndRecovers(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.instance("app")
		fails(a, "t.example", "503", 0)
		b.after(2 * time.Second)
		b.want("app t.example 503 2 2")
		succeeds(a, "t.example")
		b.after(2 * time.Second)
		b.want()
		fails(a, "t.example", "503", time.Second)
		b.after(2 * time.Second)
		b.want("app t.example 503 3 3")
	})
}

// TestTargetRowIsWrittenOnceAMinute: the row follows the latest cause, and costs little, also if every call fails in
// another way.
func TestTargetRowIsWrittenOnceAMinute(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.instance("app")
		for second := range 601 {
			fails(a, "t.example", fmt.Sprint(500+second%2), 0)
			b.after(time.Second)
		}
		if b.table.writes.Load() < 8 || b.table.writes.Load() > 11 {
			b.t.Errorf("%d writes in 10 minutes", b.table.writes.Load())
		}
		if b.table.lists.Load() > 25 {
			b.t.Errorf("read %d times in 10 minutes", b.table.lists.Load())
		}
		fails(a, "t.example", "timeout", 0)
		b.after(75 * time.Second)
		b.want("app t.example timeout 676 75")
		writes, lists := b.table.writes.Load(), b.table.lists.Load()
		b.after(time.Hour)
		if b.table.writes.Load() != writes || b.table.lists.Load() > lists+2 {
			b.t.Errorf("without calls: %d writes, read %d times",
				b.table.writes.Load()-writes, b.table.lists.Load()-lists)
		}
	})
}

// TestTargetOfTwoInstances: an instance that sees a success ends the failure that another instance has seen, whatever
// the order in which they write, and the first failure of any instance counts.
func TestTargetOfTwoInstances(t *testing.T) {
	inBubble(t, func(b *bench) {
		first, second := b.instance("app"), b.instance("app")
		fails(first, "t.example", "503", 0)
		b.after(10 * time.Second)
		fails(second, "t.example", "503", 0)
		b.after(90 * time.Second)
		b.want("app t.example 503 100 90")

		succeeds(second, "t.example")
		b.after(2 * time.Second)
		b.want()

		// The first instance knows nothing of the success, and fails again.
		fails(first, "t.example", "503", 0)
		b.after(80 * time.Second)
		b.want("app t.example 503 80 80")

		// A success of an instance that does not know the row yet.
		third := b.instance("app")
		succeeds(third, "t.example")
		b.after(80 * time.Second)
		b.want()

		// A failure that is written after the success of another instance, and began before it.
		b.table.late = func() { succeeds(third, "u.example") }
		fails(first, "u.example", "503", time.Second)
		b.after(2 * time.Second)
		b.want("app u.example 503 3 3")
		b.after(80 * time.Second)
		b.want()
	})
}

// TestTargetSince: the time of the first failure since the last success, of whatever instance, is kept over restarts.
func TestTargetSince(t *testing.T) {
	inBubble(t, func(b *bench) {
		fails(b.instance("app"), "t.example", "503", 0)
		b.after(10 * time.Minute)
		second := b.instance("app")
		fails(second, "t.example", "504", 0)
		b.after(90 * time.Second)
		b.want("app t.example 504 690 90")
		// Calls that began before the success say nothing about the time after it.
		succeeds(second, "t.example")
		fails(second, "t.example", "timeout", time.Minute)
		b.after(2 * time.Second)
		b.want()
	})
}

// TestTargetAtTheSameTime: of two instances that write at the same moment, the second merges its failure.
func TestTargetAtTheSameTime(t *testing.T) {
	inBubble(t, func(b *bench) {
		first, second := b.instance("app"), b.instance("app")
		fails(first, "t.example", "503", 0)
		fails(second, "t.example", "503", 5*time.Second)
		b.after(80 * time.Second)
		b.want("app t.example 503 85 80")
	})
}

// TestTargetTableAway: what was seen meanwhile is written when the table is back, and nothing that is over.
func TestTargetTableAway(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.instance("app")
		b.table.Fail(errors.New("no answer"))
		fails(a, "t.example", "503", 0)
		fails(a, "u.example", "503", 0)
		b.after(5 * time.Minute)
		if b.table.lists.Load() > 7 {
			b.t.Errorf("read %d times in 5 minutes", b.table.lists.Load())
		}
		succeeds(a, "u.example")
		b.table.Fail(nil)
		b.after(80 * time.Second)
		b.want("app t.example 503 380 380")

		b.table.Fail(errors.New("no answer"))
		succeeds(a, "t.example")
		b.after(5 * time.Second)
		b.table.Fail(nil)
		b.after(80 * time.Second)
		b.want()
	})
}

// TestTargetOfTwoApps: the success of an app says nothing about the network of another one.
func TestTargetOfTwoApps(t *testing.T) {
	inBubble(t, func(b *bench) {
		first, second := b.instance("app-1"), b.instance("app-2")
		fails(first, "t.example", "connection refused", 0)
		b.after(2 * time.Second)
		succeeds(second, "t.example")
		b.after(80 * time.Second)
		b.want("app-1 t.example connection refused 82 82")
	})
}

// TestTargetDenied: without permission nothing more is tried.
func TestTargetDenied(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.instance("app")
		b.table.Fail(storage.ErrDenied)
		fails(a, "t.example", "503", 0)
		b.after(2 * time.Second)
		lists := b.table.lists.Load()
		fails(a, "u.example", "503", 0)
		b.after(time.Hour)
		if b.table.lists.Load() != lists {
			b.t.Errorf("read %d times after the refusal", b.table.lists.Load()-lists)
		}
	})
}

// TestManyTargets: a sender who invents hosts fills neither the table nor the memory, and costs few operations.
func TestManyTargets(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.instance("app")
		for i := range 6 * maxTargets {
			fails(a, fmt.Sprintf("%d.example", i), "503", 0)
			succeeds(a, fmt.Sprintf("up-%d.example", i))
		}
		b.after(2 * time.Minute)
		failing, err := ReadTargets(b.t.Context(), &b.table.Table)
		if err != nil || len(failing) != maxTargets || len(a.success) > maxSuccesses || len(a.seen) > maxTargets {
			b.t.Errorf("%d rows, %d successes, %d failures, %v", len(failing), len(a.success), len(a.seen), err)
		}
		lists := b.table.lists.Load()
		for second := range 60 {
			fails(a, fmt.Sprintf("more-%d.example", second), "503", 0)
			b.after(time.Second)
		}
		if b.table.lists.Load() > lists+3 {
			b.t.Errorf("read %d times in a minute", b.table.lists.Load()-lists)
		}
		// The targets that have failed last have the rows, so the invented ones do not hide a real one.
		fails(a, "real.example", "503", 0)
		b.after(90 * time.Second)
		failing, err = ReadTargets(b.t.Context(), &b.table.Table)
		hasReal := slices.ContainsFunc(failing, func(f Target) bool { return f.Host == "real.example" })
		if err != nil || !hasReal || len(failing) != maxTargets {
			b.t.Errorf("%d rows, the real target among them: %t, %v", len(failing), hasReal, err)
		}
	})
}

// TestTargetAtStop: an instance that stops writes what it has seen.
func TestTargetAtStop(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.instance("app")
		fails(a, "t.example", "503", 0)
		b.stops[0]()
		b.stops = nil
		b.want("app t.example 503 0 0")
	})
}

// begins begins a call, and returns what ends it.
func (b *bench) begins(t *Targets, host string) (end func()) {
	e := &envelope.Envelope{Call: envelope.Call{Target: &url.URL{Scheme: "https", Host: host}}}
	pass, _ := t.Enter(b.t.Context(), &decision.Due{Intake: &decision.Intake{Envelope: e}, Arrived: time.Now()})
	return func() { pass.Ended(nil, time.Now()) }
}

// TestTargetHangs: a target whose calls are all in flight for long has a row before the first of them fails, until one
// is answered. How a call fails says more. Calls that are slow but answered write nothing.
func TestTargetHangs(t *testing.T) {
	inBubble(t, func(b *bench) {
		a, other := b.instance("app"), b.instance("app")
		for range 3 {
			b.begins(a, "hangs.example")
		}
		b.begins(a, "recovers.example")
		b.begins(other, "fails.example")
		slow := b.begins(a, "slow.example")
		b.begins(a, "slow.example")
		b.after(9 * time.Second)
		slow()
		succeeds(a, "slow.example")
		b.after(31 * time.Second)
		b.want("app fails.example no answer yet: 1 call 40 40", "app hangs.example no answer yet: 3 calls 40 40",
			"app recovers.example no answer yet: 1 call 40 40")
		writes := b.table.writes.Load()
		succeeds(a, "recovers.example")
		fails(a, "fails.example", "timeout", 40*time.Second)
		b.begins(a, "hangs.example")
		b.after(80 * time.Second)
		b.want("app fails.example timeout 120 120", "app hangs.example no answer yet: 4 calls 120 120")
		if n := b.table.writes.Load() - writes; n > 4 {
			t.Errorf("%d writes", n)
		}
		b.after(time.Hour)
		if n := b.table.writes.Load() - writes; n > 4 {
			t.Errorf("%d writes after an hour without news", n)
		}
	})
}

// TestTargetsAmongRowsOfOthers: rows that somebody has written under the keys of an app, with the names of other apps
// or none, do not make it list the table, and fail to write its own row, again and again.
func TestTargetsAmongRowsOfOthers(t *testing.T) {
	for name, foreign := range map[string]func(host string) Target{
		"other_app":  func(host string) Target { return Target{App: "other", Host: host} },
		"no_app":     func(host string) Target { return Target{Host: host} },
		"other_host": func(host string) Target { return Target{App: "app", Host: "not-" + host} },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				for n := range 1_000 {
					host := fmt.Sprintf("%04d.example", n)
					row := foreign(host)
					row.Since, row.Latest = time.Now(), time.Now()
					row.Key = Target{App: "app", Host: host}.key()
					if err := rows.Put(b.t.Context(), &b.table.Table, row); err != nil {
						b.t.Fatal(err)
					}
				}
				a := b.instance("app")
				for range 600 {
					fails(a, "0500.example", "503", 0)
					fails(a, "down.example", "503", 0)
					b.after(time.Second)
				}
				if n := b.table.lists.Load(); n > 45 {
					b.t.Errorf("%d lists", n)
				}
				if n := b.table.writes.Load(); n > 60 {
					b.t.Errorf("%d writes", n)
				}
				failing, err := readTargets(b.t.Context(), &b.table.Table, targetPrefix("app"))
				isOwn := func(f Target) bool { return f.App == "app" && f.Host == "down.example" }
				if err != nil || !slices.ContainsFunc(failing, isOwn) {
					b.t.Errorf("%d rows without that of the app, %v", len(failing), err)
				}
			})
		})
	}
}

// TestIsOpen: the circuit breaker counts as open if it was when the target last failed.
func TestIsOpen(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, row := range map[string]struct {
		target Target
		want   bool
	}{
		"never_open":        {Target{Latest: at}, false},
		"open":              {Target{Latest: at, OpenAt: at.Add(time.Second)}, true},
		"open_no_news":      {Target{Latest: at, OpenAt: at.Add(-time.Minute)}, true},
		"fails_without_it":  {Target{Latest: at, OpenAt: at.Add(-time.Hour)}, false},
		"open_after_a_wait": {Target{Latest: at, OpenAt: at.Add(time.Hour)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.target.IsOpen(); got != row.want {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
}

// TestSweepTargets: the row of a target that nobody calls any more is removed after some days.
func TestSweepTargets(t *testing.T) {
	inBubble(t, func(b *bench) {
		ctx, stop := context.WithCancel(b.t.Context())
		defer stop()
		a := NewTargets(b.table, "app", NewScheduledWriter(b.table, 1<<20, zerolog.Nop()))
		go a.Run(ctx)
		defer a.writer.Close(0)
		fails(a, "old.example", "503", 0)
		b.after(2 * time.Second)
		b.after(AppRetention - time.Hour)
		fails(a, "new.example", "503", 0)
		b.after(2 * time.Second)
		if err := SweepApps(b.t.Context(), b.table, TargetsPartition); err != nil {
			b.t.Fatal(err)
		}
		b.want("app new.example 503 2 2", fmt.Sprintf("app old.example 503 %.0f %.0f",
			(AppRetention-time.Hour).Seconds()+4, (AppRetention-time.Hour).Seconds()+4))
		b.after(time.Hour)
		if err := SweepApps(b.t.Context(), b.table, TargetsPartition); err != nil {
			b.t.Fatal(err)
		}
		b.want("app new.example 503 3602 3602")
	})
}

// TestTargetsAmongHostileRows: rows of somebody who can write to the table, and of other apps, do not hide the rows of
// an app from its instances, which would write them again and again.
func TestTargetsAmongHostileRows(t *testing.T) {
	inBubble(t, func(b *bench) {
		for n := range 1_500 {
			empty := Target{Key: storage.Key{Partition: TargetsPartition, ID: fmt.Sprintf("0%05d", n)}}
			other := Target{App: "0", Host: fmt.Sprint(n), Since: time.Now(), Latest: time.Now()}
			other.Key = other.key()
			if err := rows.Put(t.Context(), b.table, empty, other); err != nil {
				t.Fatal(err)
			}
		}
		targets := b.instance("app")
		for range 10 {
			targets.Failed(Target{Host: "down.example", Since: time.Now(), Latest: time.Now(), Cause: "503"})
			<-time.After(2 * time.Minute)
		}
		failing, err := readTargets(t.Context(), b.table, targetPrefix("app"))
		if err != nil || len(failing) != 1 || failing[0].Host != "down.example" {
			t.Errorf("rows %v, %v", failing, err)
		}
		if n := b.table.writes.Load(); n > 12 {
			t.Errorf("%d writes", n)
		}
	})
}

// refusingTable refuses the row of one target.
type refusingTable struct {
	memory.Table
	host string
}

func (r *refusingTable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if entity.Values["targetHost"] == r.host {
		return "", fmt.Errorf("400: %w", storage.ErrRefused)
	}
	return r.Table.Replace(ctx, entity)
}

// TestTargetsRefusedRow: the row of a target that storage refuses does not keep those of others from being written.
func TestTargetsRefusedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &refusingTable{host: "bad.example"}
		scheduled := NewScheduledWriter(&memory.Table{}, 1<<20, zerolog.Nop())
		targets := NewTargets(table, "app", scheduled)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { targets.Run(ctx); close(done) }()
		for n := range 50 {
			targets.Failed(Target{Host: fmt.Sprint(n, ".example"), Since: time.Now(), Latest: time.Now()})
		}
		targets.Failed(Target{Host: "bad.example", Since: time.Now(), Latest: time.Now()})
		<-time.After(20 * time.Second)
		if rows, err := ReadTargets(t.Context(), table); err != nil || len(rows) != 50 {
			t.Errorf("%d rows, %v", len(rows), err)
		}
		stop()
		<-done
		scheduled.Close(time.Second)
	})
}

// TestSweepMany: one pass removes the rows of a day in which a sender names 12,000 new hosts.
func TestSweepMany(t *testing.T) {
	inBubble(t, func(b *bench) {
		for n := range 120 {
			var old []storage.Entity
			for k := range 100 {
				key := storage.Key{Partition: "limit", ID: fmt.Sprintf("%03d%03d", n, k)}
				old = append(old, storage.Entity{Key: key, Values: map[string]any{"app": "a"}})
			}
			if err := b.table.Put(b.t.Context(), old); err != nil {
				b.t.Fatal(err)
			}
		}
		b.after(AppRetention + time.Second)
		if err := SweepApps(b.t.Context(), b.table, "limit"); err != nil {
			b.t.Fatal(err)
		}
		left := 0
		err := b.table.List(b.t.Context(), storage.Query{Partition: "limit"}, func(storage.Entity) error {
			left++
			return nil
		})
		if left > 0 || err != nil {
			b.t.Errorf("%d rows left, %v", left, err)
		}
	})
}
