package limit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/limit"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/targets"
)

// instances returns the limits as the instances of an app know them.
func instances(table storage.Table, app string, log *bytes.Buffer, names ...string) (all []*limit.Limits) {
	for _, name := range names {
		all = append(all, limit.New(limit.Config{
			Table: table, App: app, Instance: name, MaxInstances: 20, Now: time.Now,
			Random: func() float64 { return 0.5 }, Log: zerolog.New(log),
		}))
	}
	return all
}

func request(id string, p targets.Profile, reserved string) limit.Request {
	return limit.Request{Profile: p, RequestID: id, Deadline: time.Now().Add(time.Hour), Reserved: reserved}
}

// onePerMinute is a rate that lets one of two messages wait.
func onePerMinute(scope string) targets.Profile {
	return targets.Profile{Scope: scope, Rate: rate.Limit(1.0 / 60), RateText: "1/m", Burst: 1}
}

// mustEnter enters, and mustRefuse is refused, without an error.
func mustEnter(t *testing.T, l *limit.Limits, q limit.Request) (leave func()) {
	t.Helper()
	leave, refusal, err := l.Enter(context.Background(), q)
	if refusal != nil || err != nil {
		t.Fatalf("%s: refused %+v, error %v", q.RequestID, refusal, err)
	}
	return leave
}

func mustRefuse(t *testing.T, l *limit.Limits, q limit.Request) *decision.Refusal {
	t.Helper()
	_, refusal, err := l.Enter(context.Background(), q)
	if refusal == nil || err != nil {
		t.Fatalf("%s: refused %+v, error %v", q.RequestID, refusal, err)
	}
	return refusal
}

// TestReservation: a message is called at the time that it has reserved, by whatever instance, and by no question to
// the table.
func TestReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		both := instances(&table, "app", &bytes.Buffer{}, "a", "b")
		profile := onePerMinute("t.example")
		mustEnter(t, both[0], request("r1", profile, ""))
		second := mustRefuse(t, both[0], request("r2", profile, ""))
		third := mustRefuse(t, both[1], request("r3", profile, ""))
		if second.Delay < 55*time.Second || second.Delay > time.Minute || third.Delay < 115*time.Second ||
			third.Delay > 2*time.Minute || second.Reason != decision.Busy || second.Detail != "rate" {
			t.Fatalf("refused %+v, then %+v", second, third)
		}
		early := mustRefuse(t, both[1], request("r2", profile, second.Reserved))
		if early.Delay.Round(time.Second) != second.Delay {
			t.Errorf("it came early, and waits %v, want %v", early.Delay, second.Delay)
		}
		<-time.After(second.Delay)
		table.Fail(errors.New("away"))
		mustEnter(t, both[1], request("r2", profile, second.Reserved))
		if waited := time.Since(begin(t)); waited < 59*time.Second || waited > 61*time.Second {
			t.Errorf("it was called after %v, want a minute", waited)
		}
		table.Fail(nil)
	})
}

// begin is when a bubble's clock starts.
func begin(*testing.T) time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// TestForgedReservation: nothing that a sender can write makes a message go before others.
func TestForgedReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		l := instances(&table, "app", &bytes.Buffer{}, "a")[0]
		other := instances(&table, "other app", &bytes.Buffer{}, "a")[0]
		profile := onePerMinute("t.example")
		mustEnter(t, l, request("r1", profile, ""))
		mustEnter(t, l, request("r1", onePerMinute("other.example"), ""))
		mustEnter(t, other, request("r1", profile, ""))
		genuine := mustRefuse(t, l, request("r2", profile, "")).Reserved
		_, seal, _ := cutLast(genuine)
		for name, forged := range map[string]string{
			"none":              "",
			"no_seal":           "946684800000.0.946684800000",
			"empty_seal":        "946684800000.0.946684800000.",
			"its_seal":          "946684800000.0.946684800000." + seal,
			"first_in_line":     strings.Replace(genuine, ".0.", ".1.", 1),
			"years_ahead":       "4102444800000.0.946684800000." + seal,
			"of_another_id":     mustRefuse(t, l, request("r3", profile, "")).Reserved,
			"of_another_target": mustRefuse(t, l, request("r2", onePerMinute("other.example"), "")).Reserved,
			"of_another_app":    mustRefuse(t, other, request("r2", profile, "")).Reserved,
			"long":              strings.Repeat("9", 100) + ".9.9." + seal,
			"text":              "a.b.c." + seal,
		} {
			before := mustRefuse(t, l, request("next", profile, ""))
			if got := mustRefuse(t, l, request("r2", profile, forged)); got.Delay < before.Delay {
				t.Errorf("%s: back in %v, want behind the others, after %v", name, got.Delay, before.Delay)
			}
		}
		changed := profile
		changed.RateText, changed.Rate = "2/m", rate.Limit(2.0/60)
		<-time.After(time.Minute)
		mustEnter(t, l, request("first", changed, ""))
		if got := mustRefuse(t, l, request("r2", changed, genuine)); got.Delay < 25*time.Second {
			t.Errorf("a reservation of the old limit: back in %v, want behind the others", got.Delay)
		}
		mustEnter(t, l, request("r2", profile, genuine)) // the genuine one
	})
}

func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndexByte(text, '.')
	return text[:i], text[i+1:], i >= 0
}

// TestMissedTime: a message that missed its time does not wait behind all others.
func TestMissedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		l := instances(&table, "app", &bytes.Buffer{}, "a")[0]
		profile := onePerMinute("t.example")
		mustEnter(t, l, request("r1", profile, ""))
		missed := mustRefuse(t, l, request("r2", profile, "")).Reserved
		also := mustRefuse(t, l, request("r3", profile, "")).Reserved
		for i := range 30 {
			mustRefuse(t, l, request(fmt.Sprintf("other%d", i), profile, ""))
		}
		<-time.After(3 * time.Minute)
		mustEnter(t, l, request("r2", profile, missed))
		if got := mustRefuse(t, l, request("r3", profile, also)); got.Delay > 6*time.Minute {
			t.Errorf("back in %v, want after six times the interval", got.Delay)
		}
	})
}

// TestNoTimeBeforeTheDeadline: a message for which no time is free comes back before its deadline for a last look.
func TestNoTimeBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		l := instances(&table, "app", &bytes.Buffer{}, "a")[0]
		profile := onePerMinute("t.example")
		mustEnter(t, l, request("r1", profile, ""))
		short := request("r2", profile, "")
		short.Deadline = time.Now().Add(30 * time.Second)
		if got := mustRefuse(t, l, short); got.Delay != 25*time.Second {
			t.Errorf("back in %v, want 5 s before the deadline", got.Delay)
		}
		if got := mustRefuse(t, l, request("r3", profile, "")); got.Delay > time.Minute {
			t.Errorf("back in %v: the other has taken a time", got.Delay)
		}
	})
}

// cuttable is the table as an instance sees it that can lose its network.
type cuttable struct {
	storage.Table
	table *memory.Table
	isCut atomic.Bool
}

func (c *cuttable) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	if c.isCut.Load() {
		return storage.Entity{}, false, context.DeadlineExceeded
	}
	return c.table.Get(ctx, partition, id)
}

func (c *cuttable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if c.isCut.Load() {
		return "", context.DeadlineExceeded
	}
	return c.table.Replace(ctx, entity)
}

// TestPermits: instances share the permits as long as calls last, and those of an instance that stops renewing them are
// free after a minute.
func TestPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		lost := &cuttable{table: &table}
		a := instances(&table, "app", &bytes.Buffer{}, "a")[0]
		b := instances(lost, "app", &bytes.Buffer{}, "b")[0]
		profile := targets.Profile{Scope: "t.example", Concurrency: 2}
		leave := mustEnter(t, a, request("r1", profile, ""))
		leaveB := mustEnter(t, b, request("r2", profile, ""))
		refusal := mustRefuse(t, a, request("r3", profile, ""))
		if refusal.Detail != "concurrency" || refusal.Reserved == "" {
			t.Errorf("refused %+v", refusal)
		}
		<-time.After(10 * time.Minute)
		mustRefuse(t, a, request("r3", profile, refusal.Reserved))
		leave()
		third := mustEnter(t, a, request("r3", profile, refusal.Reserved))
		lost.isCut.Store(true)
		<-time.After(40 * time.Second)
		fourthAgain := mustRefuse(t, a, request("r4", profile, ""))
		<-time.After(20 * time.Second)
		fourth := mustEnter(t, a, request("r4", profile, fourthAgain.Reserved))
		lost.isCut.Store(false)
		for _, end := range []func(){third, fourth, leaveB} {
			end()
		}
		<-time.After(time.Minute)
	})
}

// TestStopWhileWaiting: a message that waits for a permit when the handler stops waits no more, and takes none.
func TestStopWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		l := instances(&table, "app", &bytes.Buffer{}, "a")[0]
		profile := targets.Profile{Scope: "t.example", Concurrency: 1}
		leave := mustEnter(t, l, request("r1", profile, ""))
		ctx, stop := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, stop)
		_, refusal, err := l.Enter(ctx, request("r2", profile, ""))
		if !errors.Is(err, context.Canceled) || refusal != nil {
			t.Errorf("refused %+v, error %v", refusal, err)
		}
		leave()
		mustEnter(t, l, request("r3", profile, ""))()
		<-time.After(time.Minute)
	})
}

// TestTableAway: without the table, each instance makes its part of the calls, and the log says so once.
func TestTableAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		var log bytes.Buffer
		l := instances(&table, "app", &log, "a")[0]
		perSecond := targets.Profile{Scope: "t.example", Rate: 1, RateText: "1/s", Burst: 1}
		forty := targets.Profile{Scope: "t.example", Concurrency: 40}
		table.Fail(errors.New("away"))
		calls := 0
		for range 120 { // messages come back every second
			if _, refusal, _ := l.Enter(context.Background(), request("r", perSecond, "")); refusal == nil {
				calls++
			}
			<-time.After(time.Second)
		}
		if calls < 5 || calls > 7 {
			t.Errorf("%d calls in two minutes, want a twentieth of 120", calls)
		}
		var entering sync.WaitGroup
		var leaves []func()
		var mu sync.Mutex
		for i := range 10 {
			entering.Go(func() {
				leave, refusal, err := l.Enter(context.Background(), request(fmt.Sprint(i), forty, ""))
				mu.Lock()
				defer mu.Unlock()
				if refusal == nil && err == nil {
					leaves = append(leaves, leave)
				}
			})
		}
		entering.Wait()
		if len(leaves) != 2 {
			t.Errorf("%d calls at a time, want a twentieth of 40", len(leaves))
		}
		table.Fail(nil)
		for _, leave := range leaves {
			leave()
		}
		<-time.After(time.Minute)
		mustEnter(t, l, request("last", perSecond, ""))
		if strings.Count(log.String(), "divided") != 1 || strings.Count(log.String(), "together again") != 1 {
			t.Errorf("log %s", log.String())
		}
	})
}

// TestDamagedRow: a row that somebody has damaged counts as new.
func TestDamagedRow(t *testing.T) {
	for name, content := range map[string]string{
		"no_json": "x", "null": "null", "list": "[]", "negative": `{"issued":-5,"front":-1,"mean":-1}`,
		"far":  `{"next":"9999-01-01T00:00:00Z","issued":9223372036854775807,"mean":1e300}`,
		"deep": strings.Repeat("[", 30_000),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var table memory.Table
				l := instances(&table, "app", &bytes.Buffer{}, "a")[0]
				profile := targets.Profile{Scope: "t.example", Rate: 1, RateText: "1/s", Burst: 1, Concurrency: 2}
				mustEnter(t, l, request("r1", profile, ""))()
				<-time.After(time.Minute)
				err := table.List(t.Context(), storage.Query{Partition: "limit"}, func(row storage.Entity) error {
					row.Values["content"] = []byte(content)
					_, err := table.Replace(t.Context(), row)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				leave, _, err := l.Enter(context.Background(), request("r2", profile, ""))
				if err != nil {
					t.Error(err)
				}
				leave()
				<-time.After(time.Minute)
			})
		})
	}
}

// TestManyTargets: a sender who names any number of targets takes bounded memory, and each limit still holds.
func TestManyTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table memory.Table
		l := instances(&table, "app", &bytes.Buffer{}, "a")[0]
		mustEnter(t, l, request("r1", onePerMinute("victim.example"), ""))
		for i := range 10_000 {
			mustEnter(t, l, request("r", onePerMinute(fmt.Sprintf("t%d.example", i)), ""))
		}
		mustRefuse(t, l, request("r2", onePerMinute("victim.example"), ""))
	})
}
