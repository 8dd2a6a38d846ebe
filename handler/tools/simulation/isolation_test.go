package simulation

import (
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// quick is how fast a target answers that is well.
const quick = 50 * time.Millisecond

// TestIsolation: nine in ten of 40 calls a second for each instance go to targets that hang, and the calls to the other
// targets begin in time. docs/performance.md quotes the figures.
func TestIsolation(t *testing.T) {
	rows := []isolation{
		{name: "answer_once", slots: shipped, instances: 3, answers: func(call int) bool { return call == 1 }},
		{name: "answer_every_other", slots: shipped, instances: 3, answers: func(call int) bool { return call%2 == 1 }},
		{name: "128_slots", slots: hostJSON{32, 96}, instances: 1},
		{name: "20_instances", slots: shipped, instances: 20},
		{name: "2_instances", slots: shipped, instances: 2},
		{name: "3_instances", slots: shipped, instances: 3},
		{name: "1_instance", slots: shipped, instances: 1},
		{name: "1_instance_with_deadlines", slots: shipped, instances: 1, lifetime: 5 * time.Minute},
	}
	hang := []int{1, 5, 20, 60, 300, 1000}
	if isShort {
		rows, hang = rows[len(rows)-2:], []int{60}
	}
	for _, row := range rows {
		for _, hanging := range hang {
			if row.instances == 20 && hanging < 1000 { // takes as long as all others together
				continue
			}
			t.Run(fmt.Sprintf("%s_%d_hang_from_the_start", row.name, hanging), func(t *testing.T) {
				t.Parallel()
				row.run(t, hanging, 0)
			})
			t.Run(fmt.Sprintf("%s_%d_begin_to_hang", row.name, hanging), func(t *testing.T) {
				t.Parallel()
				row.run(t, hanging, time.Minute)
			})
		}
	}
}

// isolation is an app whose calls have so long until their deadlines, if they have any.
type isolation struct {
	name      string
	slots     hostJSON
	instances int
	lifetime  time.Duration
	// answers says which calls the targets that hang answer nevertheless, counted from 1. If it is nil, none.
	answers func(call int) bool
}

// trouble returns the outcomes of the calls to a target that hangs.
func (row isolation) trouble() func() decision.Outcome {
	calls := 0
	return func() decision.Outcome {
		calls++
		if row.answers != nil && row.answers(calls) {
			return answers(200, quick)()
		}
		return hangs()
	}
}

func (row isolation) run(t *testing.T, hanging int, healthyFor time.Duration) {
	t.Helper()
	const trouble = 5 * time.Minute
	a, end := newApp(row.slots, row.instances), healthyFor+trouble
	seconds := int(end.Seconds()) * row.instances
	send := func(calls int, name string, answer func() decision.Outcome) *target {
		x := a.target(name, answer)
		x.from, x.lifetime = healthyFor, row.lifetime
		x.send(calls, 0, end, 0)
		return x
	}
	healthy := send(4*seconds, "healthy", answers(200, quick))
	var others []*target
	for i := range hanging {
		others = append(others, send(36*seconds/hanging, fmt.Sprintf("t%d", i),
			a.during(healthyFor, end, row.trouble(), answers(200, quick))))
	}
	var rare []*target // healthy ones that are called once a minute
	for i := range 30 {
		rare = append(rare, send(seconds/60, fmt.Sprintf("rare%d", i), answers(200, quick)))
	}
	a.run(end)
	reschedules, transactions := 0, a.transactions
	for _, other := range others {
		reschedules += other.busy + other.down
	}
	a.run(end + 2*time.Hour)
	mustDeliver(t, healthy)
	var waits []time.Duration
	for _, x := range rare {
		mustDeliver(t, x)
		waits = append(waits, x.waits...)
	}
	p99, longest, rareP90 := percentile(healthy.waits, 0.99), percentile(healthy.waits, 1), percentile(waits, 0.9)
	t.Logf("p99 %v, longest %v; called once a minute: p90 %v, longest %v; "+
		"%d reschedules of %d calls and %d transactions within %v", p99.Round(time.Millisecond),
		longest.Round(time.Millisecond), rareP90.Round(time.Millisecond),
		percentile(waits, 1).Round(time.Millisecond), reschedules, 36*seconds, transactions, end)
	switch {
	case p99 > 500*time.Millisecond || longest > time.Minute || healthy.expired > 0:
		t.Errorf("p99 is %v, the longest wait %v, and %d calls expired", p99, longest, healthy.expired)
	case row.instances <= 2 && healthy.busy > 0: // of more, one can receive no call to the target for seconds
		t.Errorf("%d calls were refused", healthy.busy)
	case row.slots == shipped && row.instances == 1 && hanging <= 60 && rareP90 > 500*time.Millisecond:
		t.Errorf("p90 of targets called once a minute is %v", rareP90)
	case row.lifetime == 0 && reschedules > 60*seconds:
		t.Errorf("%d reschedules", reschedules)
	}
}

// TestSlowTarget: a healthy target that takes 2 s for a call gets many of them, and its messages are rescheduled once
// as a rule.
func TestSlowTarget(t *testing.T) {
	const took, long = 2 * time.Second, 5 * time.Minute
	for name, row := range map[string]struct {
		instances int
		// backlog is how many calls are due at once, perSecond how many more come in each second.
		backlog, perSecond int
		// rate is the least number of calls a second, mean the largest mean number of reschedules, longest the longest
		// wait.
		rate, mean float64
		longest    time.Duration
	}{
		"backlog":              {1, 3000, 0, 25, 1.6, 3 * time.Minute},
		"backlog_2_instances":  {2, 6000, 0, 2 * 21, 1.7, 3 * time.Minute},
		"backlog_3_instances":  {3, 9000, 0, 3 * 20, 1.8, 3 * time.Minute},
		"backlog_and_more":     {1, 3000, 20, 25, 1.5, 10 * time.Minute},
		"overload":             {1, 0, 40, 25, 1.5, 20 * time.Minute},
		"overload_2_instances": {2, 0, 80, 2 * 24, 1.5, 20 * time.Minute},
		"nine_tenths":          {1, 0, 25, 24.5, 0.5, time.Minute},
	} {
		if isShort && name != "backlog_and_more" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(shipped, row.instances)
			slow := a.target("slow", answers(200, took))
			slow.send(row.backlog, 0, 0, 0)
			slow.send(row.perSecond*int(long.Seconds()), 0, long, 0)
			a.run(24 * time.Hour)
			mustDeliver(t, slow)
			longest := percentile(slow.waits, 1)
			t.Logf("%.1f calls a second, %.2f reschedules, 95th percentile %d, most %d; p50 %v, p99 %v, longest "+
				"wait %v, at most %d calls at once", slow.rate(),
				slow.mean(), percentile(slow.reschedules, 0.95), percentile(slow.reschedules, 1),
				percentile(slow.waits, 0.5).Round(time.Millisecond),
				percentile(slow.waits, 0.99).Round(time.Second), longest.Round(time.Second), slow.most)
			if slow.rate() < row.rate || slow.mean() > row.mean || longest > row.longest {
				t.Errorf("want at least %v calls a second, at most %v reschedules and a wait of %v", row.rate, row.mean,
					row.longest)
			}
		})
	}
}

// TestTargetDown: a target is down for an hour, and many calls wait for it. docs/performance.md quotes the figures.
func TestTargetDown(t *testing.T) {
	for name, row := range map[string]struct {
		trouble  func() decision.Outcome
		calls    int
		over     time.Duration // in which the calls become due
		attempts int           // of each call before the outage
		// transactions is how many storage transactions there may be for each call.
		transactions float64
		drain        time.Duration
	}{
		"503_sent_at_first":      {answers(503, 20*time.Millisecond), 100_000, time.Minute, 0, 30, 20 * time.Minute},
		"503_sent_over_the_hour": {answers(503, 20*time.Millisecond), 100_000, time.Hour, 0, 12, 20 * time.Minute},
		// A call that failed twice as a probe comes back 43 min later.
		"503_late_in_the_backoff": {answers(503, 20*time.Millisecond), 100_000, time.Hour, 8, 12, 50 * time.Minute},
		"hangs_sent_at_first":     {hangs, 20_000, time.Minute, 0, 22, 20 * time.Minute},
	} {
		if isShort && name != "503_sent_over_the_hour" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(shipped, 1)
			x := a.target("down", a.during(0, time.Hour, row.trouble, answers(200, quick)))
			x.send(row.calls/divisor, 0, row.over, row.attempts)
			a.run(24 * time.Hour)
			mustDeliver(t, x)
			perCall, drain := float64(a.transactions)/float64(x.sent), x.last()-time.Hour
			t.Logf("%d failed calls, %.2f reschedules and %.2f transactions a call", x.failed, x.mean(), perCall)
			t.Logf("after the return at most %d calls a second, %d at once, the last after %v",
				x.peak(time.Hour), x.most, drain.Round(time.Second))
			if x.failed > 200 || perCall > row.transactions || drain > row.drain {
				t.Errorf("want at most 200 failed calls, %v transactions a call, and the last call within %v",
					row.transactions, row.drain)
			}
			if x.most > 56 {
				t.Errorf("%d calls at once, want at most the target's share", x.most)
			}
		})
	}
}

// TestLineAfterTrouble: some minutes after a target has recovered, its calls wait for nothing.
func TestLineAfterTrouble(t *testing.T) {
	for name, trouble := range map[string]func() decision.Outcome{
		"hangs": hangs, "slow": answers(200, 20*time.Second),
		"down": answers(503, 0),
	} {
		if isShort && name != "hangs" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(shipped, 1)
			x := a.target("t", a.during(time.Minute, 6*time.Minute, trouble, answers(200, quick)))
			x.from = 20 * time.Minute
			x.send(25*60*40, 0, 25*time.Minute, 0)
			a.run(time.Hour)
			mustDeliver(t, x)
			if p99 := percentile(x.waits, 0.99); p99 > 500*time.Millisecond {
				t.Errorf("p99 is %v", p99)
			}
		})
	}
}
