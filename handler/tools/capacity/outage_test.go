package capacity

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// outageOf is the outage of a question about calls that are rescheduled at these moments.
func outageOf(tb testing.TB, length time.Duration, moments []float64, change func(*Question)) Outage {
	tb.Helper()
	return *mustPlan(tb, question(func(q *Question) {
		q.Outage, q.Timetable = length, timetable(moments...)
		if change != nil {
			change(q)
		}
	})).Outage
}

func TestOutage(t *testing.T) {
	const rate = 10
	policy := []float64{0, 10, 30, 90, 1000}
	o := outageOf(t, 100*time.Second, policy, func(q *Question) {
		q.Rate, q.Latency, q.FailingLatency, q.Instances, q.Queues, q.MessageBytes = rate, time.Second, 5*time.Second, 4, 1, 3<<10
	})
	near(t, "attempts a call", o.AttemptsPerCall, 1+0.9+0.7+0.1)
	near(t, "at the end", o.AtTheEnd, rate*4)
	if o.Attempts != 2700 || o.Reschedules != 2700 || o.GivenUp != 0 || o.Messages != 1000 || o.Bytes != 1000*4096 {
		t.Errorf("%+v", o)
	}
	// 40 attempts a second of 5.02 s need more than 4 instances of 9 in flight each.
	if o.KeepsUp || o.InstancesToKeepUp != 23 {
		t.Errorf("keeps up: %v, with %d instances", o.KeepsUp, o.InstancesToKeepUp)
	}
	// 4 instances make 24/5.02 attempts a second at most.
	near(t, "a queue takes", o.QueueMessages, rate*4+4*24/5.02*(2*4+1))
	// Its calls that came in from 90 to 100 s before the end wait for 1000 s, the others for 90 s.
	if o.LastDue != Span(910*time.Second) || !o.Drains {
		t.Errorf("last due after %v, drains: %v", o.LastDue, o.Drains)
	}
}

// A policy that ends in the outage gives calls up.
func TestOutageBeyondThePolicy(t *testing.T) {
	o := outageOf(t, 100*time.Second, []float64{0, 5, 25}, func(q *Question) { q.Rate = 8 })
	if o.GivenUp != 600 || o.Messages != 200 || o.Attempts != 8*(100+95+75) || o.Reschedules != o.Attempts-600 {
		t.Errorf("%+v, want the calls of 75 s of 100 given up", o)
	}
	o = outageOf(t, 100*time.Second, []float64{0}, func(q *Question) { q.Rate = 8 })
	if o.GivenUp != 800 || o.Messages != 0 || o.Reschedules != 0 || o.Drained != 0 || !o.Drains {
		t.Errorf("%+v, want all given up at once, and nothing to work off", o)
	}
}

// simulateDrain follows single calls: those that came in during the outage come due when their policy says,
// new ones come evenly, and so many are made in each step as there is room for.
func simulateDrain(moments []float64, length, rate, free float64) (lastDue, mostDue, drained float64) {
	const step = 0.1
	due := map[int]float64{} // calls by the step in which they come due
	for age := step / 2; age < length; age += step {
		for _, m := range moments {
			if m >= age {
				due[int((m-age)/step)] += rate * step
				lastDue = max(lastDue, m-age)
				break
			}
		}
	}
	backlog := 0.0
	for i := 0; float64(i)*step <= lastDue || backlog > 0; i++ {
		backlog = max(backlog+due[i]-free*step, 0)
		mostDue = max(mostDue, backlog)
		if backlog > 0 {
			drained = float64(i) * step
		}
	}
	return lastDue, mostDue, max(drained, lastDue)
}

func TestDrainAgainstSimulation(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	for i := range 60 {
		moments := []float64{0}
		for wait := 1 + 9*random.Float64(); len(moments) < 12; wait *= 1 + 1.5*random.Float64() {
			moments = append(moments, moments[len(moments)-1]+wait)
		}
		length, rate := 20+500*random.Float64(), 1+20*random.Float64()
		free := rate * (0.2 + 3*random.Float64())
		lastDue, mostDue, drained, drains := drain(moments, length, rate, free)
		wantLast, wantMost, wantDrained := simulateDrain(moments, length, rate, free)
		if !drains || math.Abs(lastDue-wantLast) > 1 || math.Abs(mostDue-wantMost) > 0.02*wantMost+rate || math.Abs(drained-wantDrained) > 0.01*wantDrained+2 {
			t.Errorf("%d: last due %.1f, most due %.1f, drained %.1f (%v); simulated %.1f, %.1f, %.1f",
				i, lastDue, mostDue, drained, drains, wantLast, wantMost, wantDrained)
		}
	}
}

func TestNeverDrained(t *testing.T) {
	for name, change := range map[string]func(*Question){
		"instances": func(q *Question) { q.Rate, q.Instances, q.Queues = 100, 1, 1 },
		"queues":    func(q *Question) { q.Rate, q.Queues = 1000, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			o := outageOf(t, time.Minute, []float64{0, 5, 500}, change)
			if o.Drains || o.Drained != 0 || o.MostDue != 0 || o.PerSecond != 0 {
				t.Errorf("%+v", o)
			}
		})
	}
}

// Spare is what works an outage off: with twice of it it takes half as long.
func TestSpareDrains(t *testing.T) {
	last := time.Duration(math.MaxInt64)
	for _, instances := range []int{15, 20, 30} {
		o := outageOf(t, time.Hour, []float64{0, 5, 15, 35, 75, 155, 315, 635, 1275, 2555, 5115}, func(q *Question) {
			q.Rate, q.Instances, q.Queues = 50, instances, 1
		})
		drained := time.Duration(o.Drained)
		if !o.Drains || drained >= last || drained < time.Duration(o.LastDue) {
			t.Errorf("%d instances: drained after %v, with fewer after %v", instances, drained, last)
		}
		last = drained
	}
}
