package admission_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/targets"
)

// many is more targets than the gate remembers.
const many = 9000

// newCrowd returns a bench whose targets have the profiles of a targets.json.
func newCrowd(t *testing.T, content string) *bench {
	t.Helper()
	profiles, err := targets.Parse([]byte(content), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, poolSize)
	b.profiles = &profiles
	return b
}

// try makes a call, if it may begin, and reports whether it was made.
func (b *bench) try(host string, o decision.Outcome) bool {
	slot, _ := b.ask(host)
	if slot == nil {
		return false
	}
	b.now = b.now.Add(o.Took)
	slot.Ended(o)
	slot.Release()
	return true
}

// calls makes one call each to so many targets that nobody has named before, if they may begin.
func (b *bench) calls(targets int, o decision.Outcome) {
	for range targets {
		b.named++
		b.try(fmt.Sprintf("t%d.example", b.named), o)
	}
}

var (
	answered    = decision.Outcome{Status: 200}
	unreachable = failure(decision.FailureConnect)
)

// TestManyTargets: senders can name any number of targets. What is in flight is never forgotten.
func TestManyTargets(t *testing.T) {
	c := newCrowd(t, `{}`)
	c.fill("busy.example")
	c.calls(many, unreachable)
	c.mustRefuse("busy.example", decision.Busy)
}

// TestLimitsAmongManyTargets: a sender who names other targets of a profile does not reset the limit of one.
func TestLimitsAmongManyTargets(t *testing.T) {
	release := func(c *bench, calls int) {
		for range calls {
			c.try("victim.example", answered)
		}
	}
	for name, row := range map[string]struct {
		profile string
		// use uses up the limit.
		use func(*bench)
		// rest is how long it then takes until the next call, if one was refused meanwhile.
		rest time.Duration
	}{
		"tokens":        {`{"rate": {"limit": "2/h", "burst": 2}}`, func(c *bench) { release(c, 2) }, 30 * time.Minute},
		"first_token":   {`{"rate": {"limit": "1/h", "burst": 3}}`, func(c *bench) { release(c, 3) }, time.Hour},
		"in_flight":     {`{"concurrency": 1}`, func(c *bench) { c.ask("victim.example") }, 0},
		"both":          {`{"concurrency": 3, "rate": "1/h"}`, func(c *bench) { release(c, 1) }, time.Hour},
		"by_no_breaker": {`{"rate": "1/m", "breaker": "off"}`, func(c *bench) { release(c, 1) }, time.Minute},
	} {
		for outcome, o := range map[string]decision.Outcome{"answered": answered, "unreachable": unreachable} {
			t.Run(name+"_"+outcome, func(t *testing.T) {
				c := newCrowd(t, `{"*": `+row.profile+`}`)
				row.use(c)
				c.calls(many, o)
				if c.try("victim.example", answered) {
					t.Fatal("a call above the limit began")
				}
				if row.rest == 0 {
					return
				}
				c.now = c.now.Add(row.rest)
				if !c.try("victim.example", answered) {
					t.Error("no call when the limit allows one")
				}
			})
		}
	}
}

// TestTurnsAmongManyTargets: nor does a message get a turn before those that were refused earlier.
func TestTurnsAmongManyTargets(t *testing.T) {
	for profile, detail := range map[string]string{
		`{"rate": {"limit": "2/s", "burst": 1}}`: "rate",
		`{"concurrency": 1}`:                     "concurrency",
	} {
		c := newCrowd(t, `{"*": `+profile+`}`)
		slot := c.mustSlot("victim.example")
		c.now = c.now.Add(time.Second)
		slot.Release()
		slot = c.mustSlot("victim.example")
		var before time.Duration
		for range 200 {
			before = c.mustRefuse("victim.example", decision.Busy).Delay
		}
		c.now = c.now.Add(time.Second)
		slot.Release()
		c.calls(many, answered)
		c.mustSlot("victim.example")
		refusal := c.mustRefuse("victim.example", decision.Busy)
		if refusal.Detail != detail || refusal.Delay < before-2*time.Second || before < 20*time.Second {
			t.Errorf("%+v, and %v before", *refusal, before)
		}
	}
}

// TestBreakersAmongManyTargets: a sender who names other targets closes no breaker, and resets no count of failures.
func TestBreakersAmongManyTargets(t *testing.T) {
	for failures := 1; failures <= 6; failures++ {
		c := newCrowd(t, `{}`)
		down := decision.Outcome{Status: 503, Took: time.Second}
		for range min(failures, 5) {
			c.try("victim.example", down)
		}
		c.calls(many, unreachable)
		c.calls(many, answered)
		for range 5 - failures {
			if !c.try("victim.example", down) {
				t.Fatalf("after %d failures: it opened early", failures)
			}
		}
		if _, refusal := c.ask("victim.example"); refusal == nil || refusal.Reason != decision.TargetDown {
			t.Errorf("after %d failures, and as many more as open it: %+v", failures, refusal)
		}
	}
}

// TestNoRoomForBreakers: while the gate remembers as many targets that are down as it can, every other target gets
// calls, but only the smallest share.
func TestNoRoomForBreakers(t *testing.T) {
	c := newCrowd(t, `{"off.example": {"breaker": "off"}}`)
	c.calls(many, unreachable)
	if n := len(c.fill("off.example")); n < 50 {
		t.Errorf("%d calls at once to a target without a breaker", n)
	}
	for range 20 {
		c.try("new.example", unreachable)
	}
	slots := c.fill("new.example")
	if len(slots) != 8 {
		t.Errorf("%d calls at once, want 8", len(slots))
	}
	for _, slot := range slots {
		slot.Release()
	}
	c.now = c.now.Add(2 * time.Hour) // no message waits for the others any more
	c.calls(many, answered)
	for range 5 {
		c.try("new.example", decision.Outcome{Status: 503, Took: time.Second})
	}
	if _, refusal := c.ask("new.example"); refusal == nil || refusal.Reason != decision.TargetDown {
		t.Errorf("%+v after 5 failures", refusal)
	}
}

// TestFloodOfTargets: a sender names new targets of a profile all the time. No target gets more calls than its limit,
// and one that the gate does not remember still gets some.
func TestFloodOfTargets(t *testing.T) {
	c := newCrowd(t, `{"*": {"rate": "1/h"}, "fragile.example": {"rate": "1/h"}}`)
	c.calls(many, unreachable)
	made, due := map[string][]time.Duration{}, map[string]time.Time{}
	for range 12 * 60 {
		c.now = c.now.Add(time.Minute)
		c.calls(200, unreachable)
		for _, host := range []string{"innocent.example", "fragile.example"} {
			if due[host].After(c.now) {
				continue
			}
			slot, refusal := c.ask(host)
			if slot == nil {
				due[host] = c.now.Add(refusal.Delay)
				continue
			}
			slot.Release()
			made[host] = append(made[host], c.now.Sub(begin))
		}
	}
	if n := len(made["fragile.example"]); n < 10 {
		t.Errorf("%d calls in 12 h to a target with a profile of its own", n)
	}
	if n := len(made["innocent.example"]); n < 2 {
		t.Errorf("%d calls in 12 h", n)
	}
	for host, times := range made {
		for i := range times[1:] {
			if times[i+1]-times[i] < time.Hour {
				t.Fatalf("%s: calls at %v", host, times)
			}
		}
	}
}

// TestLimitsOfEachTarget: among more targets than the gate remembers, each stays within its limits, whether it is
// remembered, forgotten or remembered again.
func TestLimitsOfEachTarget(t *testing.T) {
	const burst, period = 2, 10 * time.Minute // 6/h
	c := newCrowd(t, `{"*": {"rate": {"limit": "6/h", "burst": 2}, "concurrency": 2}}`)
	random := rand.New(rand.NewPCG(1, 2))
	type state struct {
		tokens   float64
		at       time.Time
		inFlight int
	}
	type call struct {
		host int
		slot *slot
	}
	hosts := make([]state, 3*many)
	var inFlight []call
	admitted := 0
	for step := range 100_000 {
		c.now = c.now.Add(50 * time.Millisecond) // some come to rest all the time
		host := random.IntN(1 + random.IntN(len(hosts)))
		if slot, _ := c.ask(fmt.Sprintf("t%d.example", host)); slot != nil {
			h := &hosts[host]
			h.tokens = min(h.tokens-c.now.Sub(h.at).Seconds()/period.Seconds(), burst)
			h.tokens, h.at, h.inFlight = max(h.tokens, 0)+1, c.now, h.inFlight+1
			if h.tokens > burst+1e-6 || h.inFlight > 2 {
				t.Fatalf("step %d: host %d has %d calls in flight, used %v tokens", step, host, h.inFlight, h.tokens)
			}
			admitted++
			inFlight = append(inFlight, call{host, slot})
		}
		if len(inFlight) > 100 {
			i := random.IntN(len(inFlight))
			inFlight[i].slot.Ended(answered)
			inFlight[i].slot.Release()
			hosts[inFlight[i].host].inFlight--
			inFlight = slices.Delete(inFlight, i, i+1)
		}
	}
	if admitted < 10_000 {
		t.Errorf("%d calls were admitted", admitted)
	}
}

// TestMemoryOfManyTargets: the memory for 100,000 targets is that for the few thousand that are remembered.
func TestMemoryOfManyTargets(t *testing.T) {
	const limit = 16 << 20
	var before, after runtime.MemStats
	suffix := strings.Repeat("."+strings.Repeat("x", 60), 3) + ".example"
	for name, profiles := range map[string]string{
		"no_profile":  `{}`,
		"rate":        `{"*": {"rate": "1/h"}}`,
		"concurrency": `{"*": {"concurrency": 1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, profiles)
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range 100_000 {
				c.try(strconv.Itoa(i)+suffix, unreachable)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > limit {
				t.Errorf("%d KiB, want at most %d", grown>>10, limit>>10)
			}
			c.now = c.now.Add(time.Hour)
			c.mustSlot("t.example")
		})
	}
}

// BenchmarkManyTargets admits messages for targets that the gates have no room to remember.
func BenchmarkManyTargets(b *testing.B) {
	gates := newBench(b, poolSize)
	gates.profile.Rate, gates.profile.Burst = 1.0/3600, 1
	admit := func() {
		gates.named++
		gates.profile.Scope = fmt.Sprintf("t%d.example", gates.named)
		gates.try(gates.profile.Scope, unreachable)
	}
	for range many {
		admit()
	}
	b.ReportAllocs()
	for b.Loop() {
		admit()
	}
}

// BenchmarkHangingTargets admits messages while as many targets as the gates remember hang.
func BenchmarkHangingTargets(b *testing.B) {
	const hosts = 4096
	gates := newBench(b, 10*poolSize) // so that the memory is the limit
	var calls []*decision.Due
	for i := range hosts {
		calls = append(calls, gates.due(fmt.Sprintf("t%d.example", i)))
		gates.enter(calls[i])
	}
	gates.now = begin.Add(time.Minute)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		slot, _ := gates.enter(calls[n%hosts])
		if slot != nil {
			slot.Release()
		}
		n++
	}
}
