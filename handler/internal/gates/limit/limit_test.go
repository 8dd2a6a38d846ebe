package limit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instance returns the limits as an instance of an app knows them. They are closed at the end of the test.
func instance(t *testing.T, table storage.Table, name string, log *bytes.Buffer) *limit.Limits {
	t.Helper()
	return instanceOf(t, table, "app", name, log)
}

// instanceOf is like instance, of the named app.
func instanceOf(t *testing.T, table storage.Table, app, name string, log *bytes.Buffer) *limit.Limits {
	t.Helper()
	l := limit.New(limit.Config{
		Table: table, App: app, Instance: name, Now: time.Now, Random: func() float64 { return 0.5 },
		Log: zerolog.New(log),
	})
	t.Cleanup(func() { l.Close(time.Second) })
	return l
}

// due returns a call that is due, with a ticket.
func due(p targets.Profile, ticket int64) *decision.Due {
	e := &envelope.Envelope{State: envelope.State{Ticket: ticket}}
	return &decision.Due{
		Intake: &decision.Intake{Envelope: e, Profile: p}, Deadline: time.Now().Add(time.Hour),
	}
}

// perMinute is a rate that lets one of two messages wait.
func perMinute(scope string) targets.Profile {
	return targets.Profile{Scope: scope, Rate: rate.Limit(1.0 / 60), Burst: 1, RateText: "1/m"}
}

func atATime(scope string, n int) targets.Profile {
	return targets.Profile{Scope: scope, Concurrency: n}
}

// mustEnter lets a call pass, and returns what ends it. mustRefuse returns why one must wait.
func mustEnter(t *testing.T, l *limit.Limits, d *decision.Due) (end func()) {
	t.Helper()
	pass, verdict := l.Enter(context.Background(), d)
	if verdict != nil {
		t.Fatalf("refused %+v", verdict.Refusal)
	}
	return func() { pass.Ended(&decision.Outcome{}, time.Now()) }
}

func mustRefuse(t *testing.T, l *limit.Limits, d *decision.Due) *decision.Refusal {
	t.Helper()
	_, verdict := l.Enter(context.Background(), d)
	if verdict == nil || verdict.Refusal == nil {
		t.Fatalf("verdict %+v", verdict)
	}
	return verdict.Refusal
}

// TestTurns: the instances share the turns. A message that must wait gets a ticket, and comes back shortly before its
// turn; a turn that was not used is given back.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		a, b := instance(t, &table, "a", &bytes.Buffer{}), instance(t, &table, "b", &bytes.Buffer{})
		p := perMinute("t.example")
		pass, _ := a.Enter(t.Context(), due(p, 0))
		refusal := mustRefuse(t, b, due(p, 0))
		if refusal.Reason != decision.Busy || refusal.Detail != "limit 1/m" || refusal.Ticket == 0 ||
			refusal.Delay < 55*time.Second || refusal.Delay > time.Minute {
			t.Errorf("refused %+v", refusal)
		}
		pass.Ended(nil, time.Now()) // a later gate has refused it
		<-time.After(time.Second)
		end := mustEnter(t, b, due(p, refusal.Ticket))
		began := time.Now()
		end()
		again := mustRefuse(t, a, due(p, 0))
		<-time.After(again.Delay)
		mustEnter(t, b, due(p, again.Ticket))()
		if waited := time.Since(began); waited < 59*time.Second || waited > 61*time.Second {
			t.Errorf("called after %v, want a minute", waited)
		}
	})
}

// skewed is a table whose clock differs from that of this machine.
type skewed struct {
	memory.Table
	ahead time.Duration
}

func (s *skewed) Now() time.Time { return time.Now().Add(s.ahead) }

// TestDeadlineByTheClockOfTheTable: a call is made until shortly before its deadline, whatever the clocks.
func TestDeadlineByTheClockOfTheTable(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			l := instance(t, &skewed{ahead: ahead}, "a", &bytes.Buffer{})
			d := due(perMinute("t.example"), 0)
			d.Deadline = time.Now().Add(time.Minute)
			mustEnter(t, l, d)()
			d.Deadline = time.Now().Add(10 * time.Second) // its turn would come later
			refusal := mustRefuse(t, l, d)
			if refusal.Delay > 10*time.Second || refusal.Ticket != 0 {
				t.Errorf("clocks differ by %v: refused %+v", ahead, refusal)
			}
		})
	}
}

// TestTwoApps: apps of two names do not share the limits of targets.
func TestTwoApps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		for _, app := range []string{"shop", "shop-worker"} {
			l := instanceOf(t, &table, app, "a", &bytes.Buffer{})
			p := atATime("t.example", 1)
			defer mustEnter(t, l, due(p, 0))()
			mustRefuse(t, l, due(p, 0))
		}
	})
}

// TestPermits: the instances share the permits as long as calls last, and those of an instance that stops renewing them
// are free after a minute.
func TestPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		lost := &cuttable{Table: &table}
		a, b := instance(t, &table, "a", &bytes.Buffer{}), instance(t, lost, "b", &bytes.Buffer{})
		p := atATime("t.example", 2)
		end := mustEnter(t, a, due(p, 0))
		endB := mustEnter(t, b, due(p, 0))
		refusal := mustRefuse(t, a, due(p, 0))
		if refusal.Detail != "limit 2 at a time" || refusal.Ticket == 0 {
			t.Errorf("refused %+v", refusal)
		}
		<-time.After(10 * time.Minute)
		refusal = mustRefuse(t, a, due(p, refusal.Ticket))
		end()
		third := mustEnter(t, a, due(p, refusal.Ticket))
		lost.isCut.Store(true)
		<-time.After(40 * time.Second)
		fourth := mustRefuse(t, a, due(p, 0))
		<-time.After(30 * time.Second)
		end = mustEnter(t, a, due(p, fourth.Ticket))
		lost.isCut.Store(false)
		for _, end := range []func(){third, end, endB} {
			end()
		}
	})
}

// cuttable is the table as an instance sees it that can lose its network.
type cuttable struct {
	storage.Table
	isCut atomic.Bool
	// err is the error meanwhile, after a while.
	err   error
	after time.Duration
}

func (c *cuttable) lost(ctx context.Context) error {
	if !c.isCut.Load() {
		return nil
	}
	storage.Sleep(ctx, c.after)
	if c.err != nil {
		return c.err
	}
	return context.DeadlineExceeded
}

func (c *cuttable) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	if err := c.lost(ctx); err != nil {
		return storage.Entity{}, false, err
	}
	return c.Table.Get(ctx, partition, id)
}

func (c *cuttable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if err := c.lost(ctx); err != nil {
		return "", err
	}
	return c.Table.Replace(ctx, entity)
}

// aheadTable is a table whose clock is ahead, as one instance sees it: from its first answer on.
type aheadTable struct {
	*memory.Table
	ahead    time.Duration
	answered atomic.Bool
}

func (a *aheadTable) Now() time.Time {
	if !a.answered.Load() {
		return time.Now()
	}
	return time.Now().Add(a.ahead)
}

func (a *aheadTable) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	defer a.answered.Store(true)
	return a.Table.Get(ctx, partition, id)
}

// TestClockOfTheTable: an instance that starts takes no permit and no turn that others have, however wrong the clocks
// of the machines are, and no message waits in it for longer.
func TestClockOfTheTable(t *testing.T) {
	for _, ahead := range []time.Duration{300 * time.Second, -300 * time.Second, 2000 * time.Hour} {
		for name, p := range map[string]targets.Profile{
			"concurrency": atATime("t.example", 2),
			"rate":        {Scope: "t.example", Rate: 1.0 / 30, Burst: 2},
		} {
			t.Run(fmt.Sprint(name, ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var table memory.Table
					old := instance(t, &aheadTable{Table: &table, ahead: ahead}, "old", &bytes.Buffer{})
					due := func(ticket int64) *decision.Due {
						d := due(p, ticket)
						d.Deadline = time.Now().Add(ahead + time.Hour)
						return d
					}
					ends := []func(){mustEnter(t, old, due(0)), mustEnter(t, old, due(0))}
					<-time.After(time.Second)
					began := time.Now()
					started := instance(t, &aheadTable{Table: &table, ahead: ahead}, "new", &bytes.Buffer{})
					refusal := mustRefuse(t, started, due(0))
					if waited := time.Since(began); waited > 5*time.Second || refusal.Ticket == 0 {
						t.Errorf("refused after %v: %+v", waited, refusal)
					}
					for _, end := range ends {
						end()
					}
					<-time.After(30 * time.Second)
					began = time.Now()
					mustEnter(t, started, due(refusal.Ticket))()
					if waited := time.Since(began); waited > time.Second {
						t.Errorf("called after %v", waited)
					}
				})
			})
		}
	}
}

// TestStop: a message that waits when the handler stops takes nothing, and what it had is given back.
func TestStop(t *testing.T) {
	for name, p := range map[string]targets.Profile{
		"permit": atATime("t.example", 1),
		"turn":   {Scope: "t.example", Rate: 0.5, Burst: 1},
		"both":   {Scope: "t.example", Rate: 0.5, Burst: 1, Concurrency: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var table memory.Table
				stopping, other := instance(t, &table, "a", &bytes.Buffer{}), instance(t, &table, "b", &bytes.Buffer{})
				end := mustEnter(t, stopping, due(p, 0))
				ctx, stop := context.WithCancel(context.Background())
				var waiting sync.WaitGroup
				for range 3 {
					waiting.Go(func() {
						_, verdict := stopping.Enter(ctx, due(p, 0))
						if verdict == nil || verdict.Outcome == nil && verdict.Refusal == nil ||
							verdict.Outcome != nil && verdict.Outcome.Failure != decision.FailureInterrupted {
							t.Errorf("verdict %+v", verdict)
						}
					})
				}
				<-time.After(500 * time.Millisecond)
				stop()
				waiting.Wait()
				end()
				stopping.Close(time.Second)
				<-time.After(2 * time.Second)
				began := time.Now()
				mustEnter(t, other, due(p, 0))()
				if waited := time.Since(began); waited > 200*time.Millisecond {
					t.Errorf("another instance waited %v", waited)
				}
			})
		})
	}
}

// TestTableAway: while the table does not answer, calls wait, and those without room for a ticket for longer with each
// delivery. At most 32 wait in the handler. The log says so once.
func TestTableAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		table := &cuttable{Table: &memory.Table{}, after: time.Hour}
		l := instance(t, table, "a", &log)
		p := targets.Profile{Scope: "t.example", Rate: 1, Burst: 1}
		table.isCut.Store(true)
		mustRefuse(t, l, due(p, 7))
		var entering sync.WaitGroup
		var waited atomic.Int32
		for range 100 {
			entering.Go(func() {
				began := time.Now()
				refusal := mustRefuse(t, l, due(p, 7))
				if refusal.Detail != "the table of limits does not answer" || refusal.Ticket != 7 ||
					refusal.Delay < 5*time.Second || refusal.Delay > 10*time.Second {
					t.Errorf("refused %+v", refusal)
				}
				if time.Since(began) > time.Second {
					waited.Add(1)
				}
			})
		}
		entering.Wait()
		if n := waited.Load(); n > 32 {
			t.Errorf("%d messages waited", n)
		}
		<-time.After(time.Hour)
		if refusal := mustRefuse(t, l, due(p, 0)); refusal.Delay < 30*time.Second || refusal.Delay > time.Minute {
			t.Errorf("refused %+v after an hour", refusal)
		}
		for visits, least := range []time.Duration{5 * time.Minute, 20 * time.Minute, 80 * time.Minute} {
			content := due(p, 0)
			content.Intake.NoRoom, content.Intake.Envelope.Attempts = true, visits
			if refusal := mustRefuse(t, l, content); refusal.Delay < least {
				t.Errorf("a content in place comes back after %v, want %v", refusal.Delay, least)
			}
		}
		table.isCut.Store(false)
		<-time.After(5 * time.Second)
		mustEnter(t, l, due(p, 0))
		if strings.Count(log.String(), "does not answer") != 1 || strings.Count(log.String(), "together again") != 1 {
			t.Errorf("log %s", log.String())
		}
	})
}

// TestNoTable: without a table each instance counts the whole limit on its own, also if the table refuses access, until
// it does not any more.
func TestNoTable(t *testing.T) {
	denied := &cuttable{Table: &memory.Table{}, err: fmt.Errorf("403: %w", storage.ErrDenied)}
	denied.isCut.Store(true)
	p := targets.Profile{Scope: "t.example", Concurrency: 1, Rate: rate.Limit(1.0 / 60), Burst: 2}
	for name, table := range map[string]storage.Table{"none": nil, "denied": denied} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				a, b := instance(t, table, "a", &log), instance(t, table, "b", &log)
				for _, l := range []*limit.Limits{a, b} {
					end := mustEnter(t, l, due(p, 0))
					refusal := mustRefuse(t, l, due(p, 0))
					end()
					mustEnter(t, l, due(p, refusal.Ticket))()
					mustRefuse(t, l, due(p, 0))
				}
				isLogged := strings.Count(log.String(), "for each instance") == 2
				if isLogged != (table == denied) {
					t.Errorf("log %s", log.String())
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a, b := instance(t, denied, "a", &log), instance(t, denied, "b", &log)
		p := atATime("t.example", 1)
		end := mustEnter(t, a, due(p, 0))
		denied.isCut.Store(false)
		<-time.After(6 * time.Minute)
		mustRefuse(t, b, due(p, 0))
		end()
	})
}

// TestManyTargets: a sender who names any number of targets takes bounded memory, and each limit still holds.
func TestManyTargets(t *testing.T) {
	const many = 5000
	for name, table := range map[string]storage.Table{"table": &memory.Table{}, "no_table": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := instance(t, table, "a", &bytes.Buffer{})
				hourly := func(scope string) targets.Profile {
					return targets.Profile{Scope: scope, Pattern: "*", Rate: rate.Limit(1.0 / 3600), Burst: 1}
				}
				mustEnter(t, l, due(hourly("victim.example"), 0))
				called := 0
				for i := range many {
					_, verdict := l.Enter(t.Context(), due(hourly(fmt.Sprintf("t%d.example", i)), 0))
					if verdict == nil {
						called++
					}
				}
				mustRefuse(t, l, due(hourly("victim.example"), 0))
				if table == nil && called > 4096+256 || table != nil && called != many {
					t.Errorf("%d calls", called)
				}
			})
		})
	}
}

// TestManyAtOnce: any use by many goroutines holds the limit, and leaves nothing behind.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		lossy := &cuttable{Table: &table, err: errors.New("reset")}
		all := []*limit.Limits{
			instance(t, &table, "a", &bytes.Buffer{}), instance(t, &table, "b", &bytes.Buffer{}),
			instance(t, lossy, "c", &bytes.Buffer{}),
		}
		p := atATime("t.example", 3)
		var inFlight, peak, calls atomic.Int32
		var working sync.WaitGroup
		for n := range 30 {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			working.Go(func() {
				ticket := int64(0)
				for range 30 {
					lossy.isCut.Store(random.IntN(20) == 0)
					pass, verdict := all[random.IntN(3)].Enter(t.Context(), due(p, ticket))
					if verdict != nil {
						ticket = verdict.Refusal.Ticket
						<-time.After(min(verdict.Refusal.Delay, 20*time.Second))
						continue
					}
					calls.Add(1)
					peak.Store(max(peak.Load(), inFlight.Add(1)))
					<-time.After(time.Duration(1 + random.IntN(1e9)))
					inFlight.Add(-1)
					pass.Ended(&decision.Outcome{}, time.Now())
				}
			})
		}
		working.Wait()
		if peak.Load() != 3 || calls.Load() < 50 {
			t.Errorf("%d calls, %d at the same time", calls.Load(), peak.Load())
		}
	})
}

// slow is a table that needs 100 ms for an operation.
type slow struct{ storage.Table }

func (s slow) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	storage.Sleep(ctx, 100*time.Millisecond)
	return s.Table.Get(ctx, partition, id)
}

func (s slow) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	storage.Sleep(ctx, 100*time.Millisecond)
	return s.Table.Replace(ctx, entity)
}

// TestForgedTicket: a sender who invents a ticket does not get the permit of a call that ends while another message
// waits in the line.
func TestForgedTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := instance(t, slow{&memory.Table{}}, "a", &bytes.Buffer{})
		p := atATime("t.example", 1)
		end := mustEnter(t, l, due(p, 0))
		<-time.After(time.Minute)
		refusal := mustRefuse(t, l, due(p, 0))
		<-time.After(time.Minute)
		var order []string
		var waiting sync.WaitGroup
		enter := func(name string, ticket int64) {
			waiting.Go(func() {
				if pass, verdict := l.Enter(t.Context(), due(p, ticket)); verdict == nil {
					order = append(order, name)
					pass.Ended(&decision.Outcome{}, time.Now())
				}
			})
		}
		enter("honest", refusal.Ticket)
		<-time.After(time.Second)
		enter("newcomer", 0)
		synctest.Wait() // an update is on its way
		enter("forged", 1)
		synctest.Wait()
		end()
		waiting.Wait()
		if len(order) == 0 || order[0] != "honest" {
			t.Errorf("called in the order %v", order)
		}
	})
}

// TestFloodOfTargets: without a table, a sender names new targets of a profile all the time. One that has no row of its
// own still gets some calls, and not more than its limit.
func TestFloodOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := instance(t, nil, "a", &bytes.Buffer{})
		hourly := func(scope string) targets.Profile {
			return targets.Profile{Scope: scope, Pattern: "*", Rate: rate.Limit(1.0 / 3600), Burst: 1}
		}
		hosts := 0
		flood := func(n int) {
			for range n {
				hosts++
				go l.Enter(t.Context(), due(hourly(fmt.Sprintf("t%d.example", hosts)), 0))
			}
		}
		flood(5000)
		synctest.Wait()
		var calls []time.Time
		ticket, next := int64(0), time.Now()
		for range 12 * 12 {
			<-time.After(5 * time.Minute)
			flood(30)
			if time.Now().Before(next) {
				continue
			}
			pass, verdict := l.Enter(t.Context(), due(hourly("innocent.example"), ticket))
			if verdict != nil {
				ticket, next = verdict.Refusal.Ticket, time.Now().Add(verdict.Refusal.Delay)
				continue
			}
			pass.Ended(&decision.Outcome{}, time.Now())
			calls, ticket = append(calls, time.Now()), 0
		}
		<-time.After(time.Minute)
		if len(calls) < 2 {
			t.Errorf("%d calls in 12 h", len(calls))
		}
		for n := range calls[min(len(calls), 1):] {
			if calls[n+1].Sub(calls[n]) < time.Hour-2*time.Second {
				t.Errorf("calls at %v", calls)
			}
		}
	})
}

// busyTable is a table in which other instances have changed a row before each of the next writes.
type busyTable struct {
	storage.Table
	conflicts, writes atomic.Int32
}

func (b *busyTable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	storage.Sleep(ctx, 100*time.Millisecond)
	if b.conflicts.Add(-1) >= 0 {
		return "", nil
	}
	b.writes.Add(1)
	return b.Table.Replace(ctx, entity)
}

// TestConflictKeepsPermit: a permit that an instance could not give back, because another one was first, is used by its
// next message at once.
func TestConflictKeepsPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &busyTable{Table: &memory.Table{}}
		l, p := instance(t, table, "a", &bytes.Buffer{}), atATime("t.example", 1)
		end := mustEnter(t, l, due(p, 0))
		table.conflicts.Store(1)
		end()
		<-time.After(105 * time.Millisecond) // the write was refused, and the next one is due soon
		began := time.Now()
		mustEnter(t, l, due(p, 0))()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited %v for a permit of its own instance", waited)
		}
	})
}

// TestConflictsSpreadUpdates: after conflicts, an instance updates the row less often, whatever happens meanwhile.
func TestConflictsSpreadUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &busyTable{Table: &memory.Table{}}
		table.conflicts.Store(10)
		l, p := instance(t, table, "a", &bytes.Buffer{}), atATime("t.example", 1000)
		mustEnter(t, l, due(p, 0))()
		table.writes.Store(0)
		for range 200 {
			go func() {
				if pass, _ := l.Enter(context.Background(), due(p, 0)); pass != nil {
					pass.Ended(&decision.Outcome{}, time.Now())
				}
			}()
			<-time.After(5 * time.Millisecond)
		}
		if n := table.writes.Load(); n == 0 || n > 3 {
			t.Errorf("%d updates in a second", n)
		}
		<-time.After(10 * time.Second)
	})
}

// TestLimitChanges: a limit that changes goes on in its line. Messages that wait keep their places before newcomers,
// and calls that began under another limit free nothing that they have not taken.
func TestLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		l := instance(t, &table, "a", &bytes.Buffer{})
		slow := perMinute("t.example")
		mustEnter(t, l, due(slow, 0))()
		waits := mustRefuse(t, l, due(slow, 0))
		fast := slow
		if err := fast.SetRate("5/s"); err != nil {
			t.Fatal(err)
		}
		newcomer := mustRefuse(t, l, due(fast, 0))
		if newcomer.Ticket != waits.Ticket+1 {
			t.Errorf("the newcomer has the ticket %d behind %d", newcomer.Ticket, waits.Ticket)
		}
		<-time.After(11 * time.Second) // the next turn was a minute ahead, and is 10 s and a burst ahead at most
		mustEnter(t, l, due(fast, waits.Ticket))()

		ends := []func(){mustEnter(t, l, due(fast, newcomer.Ticket)), mustEnter(t, l, due(fast, 0))}
		both := fast
		both.Concurrency = 2
		ends = append(ends, mustEnter(t, l, due(both, 0)))
		ends[0]() // it had no permit
		ends = append(ends, mustEnter(t, l, due(both, 0)))
		if refusal := mustRefuse(t, l, due(both, 0)); refusal.Detail != "limit 2 at a time" {
			t.Errorf("refused: %+v", refusal)
		}
		mustEnter(t, l, due(fast, 0))() // nobody counts the calls any more
		for _, end := range ends[1:] {
			end()
		}
		<-time.After(time.Minute)
		mustEnter(t, l, due(both, 0))()
		<-time.After(time.Minute)
		end, other := mustEnter(t, l, due(both, 0)), mustEnter(t, l, due(both, 0))
		mustRefuse(t, l, due(both, 0))
		end()
		other()
	})
}

// TestDamagedRow: a row that somebody has damaged counts as new.
func TestDamagedRow(t *testing.T) {
	for name, content := range map[string]string{
		"no_json": "x", "null": "null", "list": "[]", "negative": `{"issued":-5,"front":-1,"mean":-1}`,
		"far": `{"next":"9999-01-01T00:00:00Z","issued":9223372036854775807,"mean":1e300}`,
		"turn": `{"issued":5,"front":5,"next":"9999-01-01T00:00:00Z",` +
			`"holders":{"x":{"permits":9,"until":"9999-01-01T00:00:00Z"},` +
			`"y":{"permits":-9,"until":"2000-01-01T00:05:00Z"}}}`,
		"deep": strings.Repeat("[", 30_000),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var table memory.Table
				l := instance(t, &table, "a", &bytes.Buffer{})
				p := targets.Profile{Scope: "t.example", Rate: 1, Burst: 1, Concurrency: 2}
				mustEnter(t, l, due(p, 0))()
				<-time.After(time.Minute)
				all := storage.Query{Partition: limit.Partition}
				err := table.List(t.Context(), all, func(row storage.Entity) error {
					row.Values["content"] = []byte(content)
					_, err := table.Replace(t.Context(), row)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				for ticket := int64(0); ; {
					pass, verdict := l.Enter(t.Context(), due(p, ticket))
					if verdict == nil {
						pass.Ended(&decision.Outcome{}, time.Now())
						break
					}
					ticket = verdict.Refusal.Ticket
					<-time.After(verdict.Refusal.Delay)
				}
				if waited := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); waited > 90*time.Second {
					t.Errorf("called after %v", waited)
				}
			})
		})
	}
}
