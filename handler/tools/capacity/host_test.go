package capacity

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
)

// times is a heap of moments.
type times []float64

func (t times) Len() int           { return len(t) }
func (t times) Less(i, j int) bool { return t[i] < t[j] }
func (t times) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *times) Push(x any)        { *t = append(*t, x.(float64)) }
func (t *times) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// simulate runs the host's loop on a queue that never gets empty, and tells how many attempts a second it
// makes.
func simulate(l listener, held func() float64) float64 {
	const attempts = 60_000
	now, ended := 0.0, 0
	var inFlight times
	for ended < attempts {
		now += l.receive
		for len(inFlight) > 0 && inFlight[0] <= now { // while it received
			heap.Pop(&inFlight)
			ended++
		}
		for range l.batch {
			heap.Push(&inFlight, now+held())
		}
		for len(inFlight) > l.threshold {
			now = max(now, heap.Pop(&inFlight).(float64))
			ended++
		}
	}
	return float64(ended) / now
}

var listeners = map[string]listener{
	"shipped":        {batch: 16, threshold: 8, receive: 0.01, longest: 2},
	"one_at_a_time":  {batch: 1, threshold: 0, receive: 0.01, longest: 2},
	"batch_by_batch": {batch: 16, threshold: 0, receive: 0.01, longest: 2},
	"wide":           {batch: 32, threshold: 216, receive: 0.01, longest: 2},
	"slow_storage":   {batch: 4, threshold: 100, receive: 0.2, longest: 60},
}

// spreads are ways for latencies to lie around a mean of 1.
var spreads = map[string]func(*rand.Rand) float64{
	"constant":    func(*rand.Rand) float64 { return 1 },
	"exponential": func(random *rand.Rand) float64 { return random.ExpFloat64() },
	"uniform":     func(random *rand.Rand) float64 { return 2 * random.Float64() },
	"few_take_all": func(random *rand.Rand) float64 {
		if random.IntN(20) == 0 {
			return 20 * 0.95
		}
		return 0.05 / 0.95
	},
}

// The bounds hold however latencies are spread, and what is called usual is.
func TestListenerAgainstSimulation(t *testing.T) {
	const noise = 0.05
	for name, l := range listeners {
		for spread, held := range spreads {
			t.Run(name+"/"+spread, func(t *testing.T) {
				for _, mean := range []float64{0.002, 0.1, 2} {
					random := rand.New(rand.NewPCG(1, 2))
					got := simulate(l, func() float64 { return mean * held(random) })
					if least := l.surely(mean); got < least*(1-noise) {
						t.Errorf("mean %v: %v attempts/s, surely %v", mean, got, least)
					}
					if most := l.atMost(mean); got > most*(1+noise) {
						t.Errorf("mean %v: %v attempts/s, at most %v", mean, got, most)
					}
					// What ends during a receive is not in the formula, so it is low where it receives often.
					usual := l.usually(mean)
					mostlyWaiting := usual*l.receive < 0.05*float64(l.batch)
					if spread == "exponential" && (got < usual*(1-noise) || (mostlyWaiting && got > usual*1.1)) {
						t.Errorf("mean %v: %v attempts/s, usually %v", mean, got, usual)
					}
				}
			})
		}
	}
}

// The lower bound is not only true: a few calls that take almost all of the time come near to it.
func TestSurelyIsReached(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	l := listeners["shipped"]
	const mean, share = 2, 0.02
	got := simulate(l, func() float64 {
		if random.Float64() < share {
			return mean / share
		}
		return 0
	})
	if least := l.surely(mean); got > least*1.15 {
		t.Errorf("%v attempts/s at worst, the bound says %v", got, least)
	}
}

func TestListenerRates(t *testing.T) {
	for name, test := range map[string]struct {
		l                       listener
		held                    float64
		surely, usually, atMost float64
	}{
		"one_at_a_time":    {listener{batch: 1, receive: 0.5}, 1.5, 0.5, 0.5, 1 / 1.5},
		"shipped":          {listener{batch: 16, threshold: 8, receive: 0}, 9, 1, 16 / (9 * 1.0581), 24.0 / 9},
		"receives_are_all": {listener{batch: 16, threshold: 8, receive: 0.01}, 1e-9, 1600, 1600, 1600},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, pair := range map[string][2]float64{
				"surely": {test.l.surely(test.held), test.surely}, "usually": {test.l.usually(test.held), test.usually},
				"atMost": {test.l.atMost(test.held), test.atMost},
			} {
				if math.Abs(pair[0]/pair[1]-1) > 1e-4 {
					t.Errorf("%s %v, want %v", kind, pair[0], pair[1])
				}
			}
		})
	}
}

func TestThresholdFor(t *testing.T) {
	l := listeners["shipped"]
	for _, attempts := range []float64{0.1, 3, 20, 700, 1500} {
		threshold, ok := l.thresholdFor(attempts, 2.01)
		if !ok {
			t.Fatalf("none for %v attempts/s", attempts)
		}
		with := func(n int) float64 { l.threshold = n; return l.surely(2.01) }
		if with(threshold) < attempts*(1-1e-9) || (threshold > 0 && with(threshold-1) >= attempts) {
			t.Errorf("%v attempts/s: %d makes %v, one less %v", attempts, threshold, with(threshold), with(threshold-1))
		}
	}
	if threshold, ok := l.thresholdFor(1700, 2.01); ok {
		t.Errorf("1700 attempts/s by %d, but receives of 10 ms bring 1600 at most", threshold)
	}
}

// simulatePolls runs the host's waits against messages that come at random.
func simulatePolls(l listener, rate float64, random *rand.Rand) (found, vain float64) {
	const receives = 50_000
	now, next, empty := 0.0, random.ExpFloat64()/rate, 0
	for range receives {
		now += l.receive
		if next <= now {
			found++
			for taken := 0; next <= now && taken < l.batch; taken++ {
				next += random.ExpFloat64() / rate
			}
			empty = 0
			continue
		}
		vain++
		now += min(nextWait(empty), l.longest)
		empty++
	}
	return found / now, vain / now
}

func TestPollsAgainstSimulation(t *testing.T) {
	for name, l := range listeners {
		random := rand.New(rand.NewPCG(5, 6))
		for _, rate := range []float64{0.01, 0.5, 3, 40} {
			if rate*l.receive > 0.1*float64(l.batch) {
				continue // what one receive leaves the next one finds, which the estimate leaves out
			}
			found, vain := l.polls(rate)
			wantFound, wantVain := simulatePolls(l, rate, random)
			if math.Abs(found/wantFound-1) > 0.05 {
				t.Errorf("%s, %v/s: %v receives/s find messages, simulated %v", name, rate, found, wantFound)
			}
			if math.Abs(vain-wantVain) > 0.05*(wantVain+wantFound) {
				t.Errorf("%s, %v/s: %v receives/s in vain, simulated %v", name, rate, vain, wantVain)
			}
		}
	}
}

// simulateShared is the same for listeners that share a queue to which rate messages a second come for each
// of them; it tells how many receives there are of one.
func simulateShared(l listener, rate float64, listeners int, random *rand.Rand) float64 {
	const receives = 40_000
	type one struct {
		at    float64
		empty int
	}
	all := make([]one, listeners)
	for i := range all {
		all[i].at = random.Float64()
	}
	next, queued, now := 0.0, 0, 0.0
	for range receives {
		first := &all[0]
		for i := range all {
			if all[i].at < first.at {
				first = &all[i]
			}
		}
		for now = first.at; next <= now; queued++ {
			next += random.ExpFloat64() / (rate * float64(listeners))
		}
		if queued > 0 {
			queued -= min(queued, l.batch)
			first.at, first.empty = now+l.receive, 0
			continue
		}
		first.at += min(nextWait(first.empty), l.longest) + l.receive
		first.empty++
	}
	return receives / now / float64(listeners)
}

func TestPollsOfASharedQueueAreNotTooFew(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	l := listeners["shipped"]
	for _, count := range []int{5, 70} {
		for _, rate := range []float64{0.05, 0.5, 3, 7} {
			found, vain := l.polls(rate)
			want := simulateShared(l, rate, count, random)
			if got := found + vain; got < want*0.98 || got > want*1.6 {
				t.Errorf("%d listeners, %v/s each: %v receives/s, simulated %v", count, rate, got, want)
			}
		}
	}
}

// The waits are those of the host's back-off: 0.1, 0.2, 0.3, 0.5, 0.9 s.
func TestNextWait(t *testing.T) {
	for n, want := range []float64{0.1, 0.2, 0.3, 0.5, 0.9, 1.7, 3.3} {
		if got := nextWait(n); math.Abs(got-want) > 1e-9 {
			t.Errorf("wait %d is %v, want %v", n, got, want)
		}
	}
	l := listeners["shipped"]
	if found, vain := l.polls(1e-9); math.Abs(vain-l.idle()) > 1e-6 || found > 1e-8 {
		t.Errorf("with hardly a message %v receives find some, %v none; an idle queue gets %v", found, vain, l.idle())
	}
}
