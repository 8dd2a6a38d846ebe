package admission_test

import (
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// hosts returns the names of so many targets.
func hosts(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("t%d.example", i))
	}
	return names
}

// TestPartOfTargets: targets that are not trusted get half of the slots together, in a function and in all, and those
// that hang half of that, whatever their profiles and the kind of call.
func TestPartOfTargets(t *testing.T) {
	for name, row := range map[string]struct {
		size, hosts, functions, concurrency int
		last, hang                          bool
		want                                int
		detail                              string
	}{
		"new":              {poolSize, 300, 1, 0, false, false, 112, "untrusted"},
		"last_attempts":    {poolSize, 300, 1, 0, true, false, 112, "untrusted"},
		"concurrency":      {poolSize, 300, 1, 224, false, false, 112, "untrusted"},
		"hang":             {poolSize, 300, 1, 0, false, true, 56, "hanging"},
		"all_functions":    {poolSize, 300, 11, 0, false, false, 256, "untrusted"},
		"hang_everywhere":  {poolSize, 100, 11, 0, false, true, 128, "hanging"},
		"few_slots":        {8, 300, 1, 0, false, false, 8, "untrusted"},
		"few_targets":      {poolSize, 5, 1, 0, false, false, 94, ""},
		"two_targets_hang": {poolSize, 2, 1, 0, false, true, 38, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, row.size)
			b.profile.Concurrency = row.concurrency
			b.trust("healthy.example")
			for _, host := range hosts(row.hosts) {
				if row.hang {
					b.now = begin
					b.call(host, decision.Outcome{Failure: decision.FailureTimeout, Took: 2 * time.Second})
				}
			}
			calls, detail := 0, ""
			enter := func(host string, n int) {
				r := b.due(host)
				r.Intake.Profile.Scope = host
				r.Message.Function = fmt.Sprint(function, n)
				r.LastAttempt = row.last
				slot, refusal := b.enter(r)
				if slot != nil {
					calls++
				} else if detail == "" {
					detail = refusal.Detail
				}
			}
			for before := -1; calls > before; { // until a round has no more calls
				before = calls
				for n := range row.functions {
					for _, host := range hosts(row.hosts) {
						enter(host, n)
					}
				}
			}
			if calls != row.want || row.detail != "" && detail != row.detail {
				t.Errorf("%d calls at once and refusals %q, want %d and %q", calls, detail, row.want, row.detail)
			}
			b.mustSlot("healthy.example")
			if row.detail == "" {
				b.mustSlot("new.example")
			}
		})
	}
}

// TestTrust: a target is trusted for a while after an answer, and as long as none of its calls takes much longer than
// its answers did.
func TestTrust(t *testing.T) {
	const quick = 50 * time.Millisecond
	for name, row := range map[string]struct {
		// answers are how long those before took. Then a call began, if age is not zero, so long ago.
		answers []time.Duration
		age     time.Duration
		// idle is how long ago the latest answer was.
		idle time.Duration
		want bool
	}{
		"new":              {nil, 0, 0, false},
		"answered":         {[]time.Duration{quick}, 0, 5 * time.Second, true},
		"long_ago":         {[]time.Duration{quick}, 0, 5*time.Second + 1, false},
		"in_flight":        {[]time.Duration{quick}, time.Second, 0, true},
		"too_long":         {[]time.Duration{quick}, time.Second + 1, 0, false},
		"slow":             {[]time.Duration{time.Minute}, 2 * time.Minute, 2 * time.Minute, true},
		"slower":           {[]time.Duration{time.Minute}, 2*time.Minute + 1, 0, false},
		"varies":           {[]time.Duration{20 * time.Second, quick, quick}, 30 * time.Second, 0, true},
		"clock_goes_back":  {[]time.Duration{quick}, -time.Hour, -time.Hour, true},
		"clock_goes_ahead": {[]time.Duration{quick}, time.Hour, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, poolSize)
			b.trust("trial.example")
			for _, took := range row.answers {
				b.call("t.example", decision.Outcome{Status: 200, Took: took})
			}
			answered := b.now
			if row.age != 0 {
				b.mustSlot("t.example")
				b.now = b.now.Add(row.age)
			}
			if row.idle != 0 {
				b.now = answered.Add(row.idle)
			}
			b.fill(hosts(300)...)
			b.mustSlot("trial.example") // so that a target that is not trusted gets no slot
			if slot, refusal := b.ask("t.example"); (slot != nil) != row.want {
				t.Errorf("refusal %+v", refusal)
			}
		})
	}
}

// TestTrial: while others fill the part of the targets that are not trusted, one whose latest call was answered gets a
// call if no trial was made for a quarter of the time since then, or all were answered.
func TestTrial(t *testing.T) {
	const tried, recent, old, hung = "tried.example", "recent.example", "old.example", "hung.example"
	b := newBench(t, poolSize)
	b.trust(old, hung)
	b.call(hung, decision.Outcome{Failure: decision.FailureTimeout, Took: 2 * time.Minute})
	b.trust(recent, tried)
	b.fill(hosts(300)...)
	b.now = b.now.Add(10 * time.Second)

	first := b.mustSlot(tried)
	for _, host := range []string{tried, recent} {
		if delay := b.mustRefuse(host, decision.Busy).Delay; delay != 15*time.Second {
			t.Errorf("%s comes back after %v, want once to twice the 10 s since its answer", host, delay)
		}
	}
	b.now = b.now.Add(3 * time.Second) // less than a quarter of 13 s
	b.mustRefuse(recent, decision.Busy)
	b.now = b.now.Add(time.Second)
	b.mustRefuse(old, decision.Busy)
	b.mustSlot(recent).Ended(decision.Outcome{Status: 200})
	b.mustRefuse(old, decision.Busy) // the first trial has no answer
	first.Ended(decision.Outcome{Status: 500})
	b.mustSlot(old)
	b.now = b.now.Add(time.Hour)
	b.mustRefuse(hung, decision.Busy)
	b.mustRefuse("new.example", decision.Busy)
}

// TestHangingLosesTrust: targets that answered a moment ago and all begin to hang leave slots free for others, even if
// each has been called again and again after the same time. One answer makes a target trusted again.
func TestHangingLosesTrust(t *testing.T) {
	const perSecond, most = 36, 190
	for _, targets := range []int{20, 180, 1000} {
		b := newBench(t, poolSize)
		var hang []*slot
		for i := range 120 * perSecond {
			b.now = b.now.Add(time.Second / perSecond)
			if i%9 == 0 {
				b.trust("healthy.example")
			}
			slot, _ := b.ask(fmt.Sprintf("t%d.example", i%targets))
			switch {
			case i >= 60*perSecond && slot != nil:
				hang = append(hang, slot)
			case slot != nil:
				slot.Ended(decision.Outcome{Status: 200})
				slot.Release()
			}
		}
		if len(hang) > most {
			t.Errorf("%d calls to %d targets hang, want at most %d", len(hang), targets, most)
		}
		host := fmt.Sprintf("t%d.example", 60*perSecond%targets) // that of the first call
		hang[0].Ended(decision.Outcome{Status: 500})
		if targets >= 180 { // it has no other call
			b.mustSlot(host)
		}
	}
}

// TestTrustAmongManyTargets: a sender who names other targets does not make the gate forget that one answers.
func TestTrustAmongManyTargets(t *testing.T) {
	c := newCrowd(t, `{}`)
	c.trust("healthy.example")
	c.fill(hosts(300)...)
	c.calls(many, unreachable)
	c.mustSlot("healthy.example")
}
