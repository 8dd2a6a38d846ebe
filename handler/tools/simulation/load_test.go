package simulation

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// In the outage, 100,000 envelopes, sent evenly over its first minute, wait for a target that is down for six hours.
const (
	waiting = 100_000 / divisor
	outage  = 6 * time.Hour
)

// load is the load of a target after an outage.
type load struct {
	calls int
	// peak is the largest number of calls in one second.
	peak int
	// over is the time from the end of the outage to the last delivery.
	over time.Duration
}

func (l load) mean() float64       { return float64(l.calls) / l.over.Seconds() }
func (l load) peakToMean() float64 { return float64(l.peak) / l.mean() }

func (l load) String() string {
	return fmt.Sprintf("%d calls in %v after the outage, peak %d a second, mean %.1f a second, peak/mean %.1f",
		l.calls, l.over.Round(time.Second), l.peak, l.mean(), l.peakToMean())
}

// TestLoadAfterAnOutage measures how evenly the default policy spreads the calls of waiting envelopes.
// docs/performance.md quotes the figures.
func TestLoadAfterAnOutage(t *testing.T) {
	var with, without load
	t.Run("simulate", func(t *testing.T) {
		t.Run("jitter_on", func(t *testing.T) {
			t.Parallel()
			with = loadAfterOutage(t, rand.New(rand.NewPCG(1, 2)).Float64)
		})
		t.Run("jitter_off", func(t *testing.T) {
			t.Parallel()
			without = loadAfterOutage(t, func() float64 { return 0.5 })
		})
	})
	t.Logf("%d envelopes, jitter on: %v", waiting, with)
	t.Logf("%d envelopes, jitter off: %v", waiting, without)
	if with.calls != waiting || without.calls != waiting {
		t.Errorf("%d and %d calls after the outage, want one for each of %d envelopes", with.calls, without.calls,
			waiting)
	}
	if with.peakToMean() > without.peakToMean()/10 {
		t.Errorf("peak/mean is %.1f with jitter and %.1f without, want less than a tenth", with.peakToMean(),
			without.peakToMean())
	}
	if with.over > outage+time.Hour {
		t.Errorf("the last envelope came %v after the outage, later than the policy's longest wait", with.over)
	}
}

func loadAfterOutage(t *testing.T, jitter func() float64) load {
	t.Helper()
	end := begin.Add(outage)
	w := newWorld(jitter, func(now time.Time) int {
		if now.Before(end) {
			return 503
		}
		return 200
	})
	var after load
	perSecond := map[int64]int{}
	w.observe = func(d *step) {
		if !d.called || d.now.Before(end) {
			return
		}
		second := d.now.Unix()
		perSecond[second]++
		after.calls++
		after.peak = max(after.peak, perSecond[second])
		after.over = d.now.Sub(end)
		if d.Action != decision.Finish {
			t.Errorf("%s: %s after the outage", d.envelope.RequestID, d.Action)
		}
	}
	for i := range waiting {
		w.send(fmt.Sprintf("r%d", i), begin.Add(time.Minute*time.Duration(i)/waiting), "")
	}
	w.run(t)
	return after
}
