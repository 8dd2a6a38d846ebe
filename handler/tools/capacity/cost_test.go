package capacity

import (
	"testing"
	"time"
)

func items(c Cost) map[string]Item {
	all := map[string]Item{}
	for _, item := range c.Items {
		all[item.Name] = item
	}
	return all
}

func TestCost(t *testing.T) {
	a := mustPlan(t, question(func(q *Question) { q.Rate, q.Failing = 8, 0.5 }))
	got := items(a.Cost)
	for name, want := range map[string]Item{ // 1 + 1/2 + ... + 1/16 attempts a call
		senderPuts:    {senderPuts, 1_000_000, 8 * 730 * 3600},
		deletes:       {deletes, 1_937_500, 15.5 * 730 * 3600},
		reschedules:   {reschedules, 937_500, 7.5 * 730 * 3600},
		deadLetters:   {deadLetters, 31_250, 730 * 900},
		leaseRenewals: {leaseRenewals, 0, 0},
	} {
		if got[name] != want {
			t.Errorf("%+v, want %+v", got[name], want)
		}
	}
	if found := got[receivesFound].PerMillion; found > 1_937_500 || found < 1_937_500/16 {
		t.Errorf("%d receives find messages for 1,937,500 attempts", found)
	}
	million, month := int64(0), int64(0)
	for _, item := range a.Cost.Items {
		million += item.PerMillion
		month += item.PerMonth
	}
	if abs(million-a.Cost.PerMillion) > 4 || abs(month-a.Cost.PerMonth) > 4 { // each is rounded
		t.Errorf("items make %d and %d, in all are %d and %d", million, month, a.Cost.PerMillion, a.Cost.PerMonth)
	}
}

func abs(n int64) int64 { return max(n, -n) }

// Queues without calls cost their polls, and a longer interval makes them cheap.
func TestIdlePolls(t *testing.T) {
	unused := func(change func(*Question)) int64 {
		return items(mustPlan(t, question(change)).Cost)[receivesUnused].PerMonth
	}
	one := func(q *Question) { q.Rate, q.Queues, q.Instances = 1, 1, 1 }
	if got, want := unused(one), int64(13_074_627); got != want { // 10 queues * 730 hours / 2.01 s
		t.Errorf("%d receives, want %d", got, want)
	}
	for name, test := range map[string]struct {
		change func(*Question)
		want   int64
	}{
		"instances": {func(q *Question) { one(q); q.Instances = 3 }, 39_223_881},
		"interval":  {func(q *Question) { one(q); q.Host.MaxPollingInterval = time.Minute }, 437_927},
		"all_used":  {func(q *Question) { one(q); q.Queues = 11 }, 0},
		"more_used": {func(q *Question) { one(q); q.Queues = 12 }, 0},
	} {
		if got := unused(test.change); got != test.want {
			t.Errorf("%s: %d receives, want %d", name, got, test.want)
		}
	}
}

// With full batches a receive is a sixteenth a message; the rest is one each.
func TestEnds(t *testing.T) {
	want := []End{
		{endAtOnce, 1e6, 0, 1e6, 62_500, 1e6, 2_062_500, 3e6},
		{endOneRetry, 1e6, 1e6, 2e6, 125_000, 2e6, 4_125_000, 6e6},
		{endThreeRetries, 1e6, 3e6, 4e6, 250_000, 4e6, 8_250_000, 12e6},
		{endCallback, 1e6, 1e6, 2e6, 125_000, 2e6, 4_125_000, 6e6},
		{endDeadLetter, 1e6, 1e6, 1e6, 62_500, 1e6, 3_062_500, 4e6},
	}
	got := ends(16)
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	if three := ends(3)[0].ReceivesLeast; three != 333_334 {
		t.Errorf("batches of 3: %d receives", three)
	}
}
