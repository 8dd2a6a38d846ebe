package admission_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
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

// TestBreakersAmongManyTargets: a sender who names other targets closes no breaker, and resets no count of failures.
func TestBreakersAmongManyTargets(t *testing.T) {
	for _, failures := range []int{1, 5} {
		c := newCrowd(t, `{}`)
		down := decision.Outcome{Status: 503, Took: time.Second}
		for range failures {
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

// TestMemoryOfManyTargets: the memory for any number of targets is that for the few thousand that are remembered.
func TestMemoryOfManyTargets(t *testing.T) {
	const limit = 16 << 20
	var before, after runtime.MemStats
	suffix := strings.Repeat("."+strings.Repeat("x", 60), 3) + ".example"
	for name, profiles := range map[string]string{
		"no_profile":  `{}`,
		"concurrency": `{"*": {"concurrency": 1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, profiles)
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range 10_000 {
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
