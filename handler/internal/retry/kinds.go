package retry

import (
	"math"
	"time"
)

// Parameters of the default policy: 5 s doubling to 6 h, each ±20 %.
const (
	defaultBaseDelay = 5 * time.Second
	defaultFactor    = 2
	defaultMaxDelay  = 6 * time.Hour
	jitterShare      = 0.2
)

// longestDelay is the longest wait of nexus and io, by their own definitions: the longest time that a queue
// keeps a message invisible.
const longestDelay = 7*24*time.Hour - time.Second

// exponential waits base · factor^(attempt-1), varied by jitterShare, and never longer than max. The
// waits are spread evenly between the bounds.
type exponential struct {
	base   time.Duration
	factor float64
	max    time.Duration
}

func (e exponential) bounds(attempt int) (shortest, longest time.Duration) {
	// Floating point, because base << attempt overflows; infinity is fine below the cap.
	nominal := min(e.base.Seconds()*math.Pow(e.factor, float64(attempt-1)), e.max.Seconds())
	shortest = seconds(nominal * (1 - jitterShare))
	if nominal*(1+jitterShare) >= e.max.Seconds() {
		return shortest, e.max
	}
	return shortest, seconds(nominal * (1 + jitterShare))
}

func (e exponential) delay(attempt int, jitter float64) time.Duration {
	shortest, longest := e.bounds(attempt)
	return shortest + time.Duration(jitter*float64(longest-shortest))
}

func (e exponential) longest() time.Duration {
	_, d := e.bounds(math.MaxInt)
	return d
}

// list waits as its schedule says; the last wait repeats.
type list struct {
	schedule []time.Duration
	max      time.Duration
}

func (l list) bounds(attempt int) (shortest, longest time.Duration) {
	d := min(l.schedule[min(attempt, len(l.schedule))-1], l.max)
	return d, d
}

func (l list) delay(attempt int, _ float64) time.Duration {
	d, _ := l.bounds(attempt)
	return d
}

func (l list) longest() time.Duration {
	d, _ := l.bounds(len(l.schedule))
	return d
}

// nexus is exactly the formula of Nexus Async Caller: factor 4 below the 7th attempt, else 2; evenly
// from factor^attempt up to, not including, factor times that many seconds, and what is drawn beyond 7
// days becomes 7 days less a second. The waits fall from the 6th attempt to the 7th: a defect, kept for
// those who compare.
type nexus struct{}

const (
	nexusSteep       = 7  // the attempt at which the factor changes
	nexusMaxExponent = 24 // attempts beyond it wait like it
)

func (nexus) between(attempt int) (lower, upper float64) {
	factor := 4.0
	if attempt >= nexusSteep {
		factor = 2
	}
	lower = math.Pow(factor, float64(min(attempt, nexusMaxExponent)))
	return lower, lower * factor
}

func (n nexus) bounds(attempt int) (shortest, longest time.Duration) {
	lower, upper := n.between(attempt)
	return min(seconds(lower), longestDelay), min(seconds(upper), longestDelay)
}

func (n nexus) delay(attempt int, jitter float64) time.Duration {
	lower, upper := n.between(attempt)
	return min(seconds(lower+jitter*(upper-lower)), longestDelay)
}

func (nexus) longest() time.Duration { return longestDelay }

// ioFunctions waits as pagopa's io-functions do: 285 ms · 2^attempt, rounded up to whole seconds.
type ioFunctions struct{}

const ioBase = 0.285 // seconds

func (ioFunctions) bounds(attempt int) (shortest, longest time.Duration) {
	d := seconds(min(math.Ceil(ioBase*math.Pow(2, float64(attempt))), longestDelay.Seconds()))
	return d, d
}

func (i ioFunctions) delay(attempt int, _ float64) time.Duration {
	d, _ := i.bounds(attempt)
	return d
}

func (ioFunctions) longest() time.Duration { return longestDelay }

// ioAttempts is the number of calls that io makes: the first one and floor(log2(7 days / 285 ms))
// retries.
func ioAttempts() int {
	const week = 7 * 24 * 3600.0
	return 1 + int(math.Log2(week/ioBase))
}

// cycles calls at once perCycle times, waits, and starts over: WCF's ReceiveRetryCount, MaxRetryCycles
// and RetryCycleDelay.
type cycles struct {
	perCycle int // calls in a cycle: ReceiveRetryCount and the first
	pause    time.Duration
}

func (c cycles) bounds(attempt int) (shortest, longest time.Duration) {
	if attempt%c.perCycle != 0 {
		return 0, 0
	}
	return c.pause, c.pause
}

func (c cycles) delay(attempt int, _ float64) time.Duration {
	d, _ := c.bounds(attempt)
	return d
}

func (c cycles) longest() time.Duration { return c.pause }

// seconds makes a duration, at most the longest there is.
func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}
