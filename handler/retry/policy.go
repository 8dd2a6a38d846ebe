// Package retry says how long to wait before a call is made again. It is pure: an attempt number and a
// random number in, a delay out.
package retry

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"asynccaller/handler/strictjson"
)

// Policy is a rule for the waits between attempts. Its zero value is not usable; see [Default], [Named]
// and [Spec.Policy].
type Policy struct {
	// Name is what logs and tools call the policy: "exponential", or "list" for a schedule.
	Name string
	// MaxAttempts is the number of calls in all; 0 means as many as fit before the deadline.
	MaxAttempts int

	delays delays
}

// delays is what distinguishes one policy from another. Neither bound may be shorter for a later
// attempt, negative or beyond the policy's longest delay. The next policy is a new implementation.
type delays interface {
	bounds(attempt int) (shortest, longest time.Duration)
}

// Bounds tells between which limits the wait after the given attempt lies; the first attempt is 1, and
// lower numbers count as 1. The waits are spread evenly between the two.
func (p Policy) Bounds(attempt int) (shortest, longest time.Duration) {
	return p.delays.bounds(max(attempt, 1))
}

// Delay is the wait after the given attempt. Jitter is a random number from 0 up to, not including, 1.
func (p Policy) Delay(attempt int, jitter float64) time.Duration {
	shortest, longest := p.Bounds(attempt)
	return shortest + time.Duration(jitter*float64(longest-shortest))
}

// Exhausted reports whether the policy allows no further call after this many.
func (p Policy) Exhausted(attempts int) bool {
	return p.MaxAttempts > 0 && attempts >= p.MaxAttempts
}

// The default policy: 5 s doubling to 6 h, each ±20 %.
const (
	defaultBaseDelay = 5 * time.Second
	defaultFactor    = 2
	defaultMaxDelay  = 6 * time.Hour
	jitterShare      = 0.2
)

// Default is the policy "exponential": 5 s doubling to 6 h, each varied by 20 % either way but never
// beyond 6 h.
func Default() Policy {
	return Policy{Name: "exponential", delays: exponential{defaultBaseDelay, defaultFactor, defaultMaxDelay}}
}

// Named returns the policy of that name.
func Named(name string) (Policy, error) {
	if name == "exponential" {
		return Default(), nil
	}
	return Policy{}, fmt.Errorf(`unknown policy %q: the policies are "exponential"`, name)
}

// Spec is a policy as an envelope states it: a name, or its parameters. Zero fields take the default's
// value.
type Spec struct {
	// Name excludes all other fields.
	Name string
	// Schedule lists the waits one by one; the last one repeats. They are kept exactly, without jitter.
	// BaseDelay and Factor have no meaning beside it.
	Schedule  []time.Duration
	BaseDelay time.Duration
	Factor    float64
	// MaxDelay caps every wait, those of a schedule too.
	MaxDelay    time.Duration
	MaxAttempts int
}

// Policy checks the spec and makes a policy of it.
func (s Spec) Policy() (Policy, error) {
	if s.Name != "" {
		return Named(s.Name)
	}
	if s.BaseDelay < 0 || s.MaxDelay < 0 || slices.ContainsFunc(s.Schedule, negative) {
		return Policy{}, errors.New("a delay cannot be negative")
	}
	maxDelay := orDefault(s.MaxDelay, defaultMaxDelay)
	if s.Schedule != nil {
		if err := checkSchedule(s.Schedule); err != nil {
			return Policy{}, err
		}
		if s.MaxDelay == 0 {
			maxDelay = math.MaxInt64
		}
		return Policy{Name: "list", MaxAttempts: s.MaxAttempts, delays: list{s.Schedule, maxDelay}}, nil
	}
	e := exponential{orDefault(s.BaseDelay, min(defaultBaseDelay, maxDelay)), orDefault(s.Factor, defaultFactor), maxDelay}
	switch {
	case e.factor < 1 || math.IsNaN(e.factor) || math.IsInf(e.factor, 0):
		return Policy{}, strictjson.In("factor", fmt.Errorf("%v is below 1: waits never get shorter", s.Factor))
	case e.base > e.max:
		return Policy{}, strictjson.In("maxDelay", fmt.Errorf("%v is shorter than baseDelay %v", e.max, e.base))
	}
	return Policy{Name: "exponential", MaxAttempts: s.MaxAttempts, delays: e}, nil
}

func negative(d time.Duration) bool { return d < 0 }

func checkSchedule(schedule []time.Duration) error {
	if len(schedule) == 0 {
		return strictjson.In("schedule", errors.New("the list is empty"))
	}
	for i := 1; i < len(schedule); i++ {
		if schedule[i] < schedule[i-1] {
			err := fmt.Errorf("%v is shorter than the delay before it, %v: waits never get shorter", schedule[i], schedule[i-1])
			return strictjson.In("schedule"+strictjson.Index(i), err)
		}
	}
	return nil
}

func orDefault[T time.Duration | float64](value, fallback T) T {
	if value == 0 {
		return fallback
	}
	return value
}

// exponential waits base · factor^(attempt-1), varied by jitterShare, and never longer than max.
type exponential struct {
	base   time.Duration
	factor float64
	max    time.Duration
}

func (e exponential) bounds(attempt int) (shortest, longest time.Duration) {
	// Floating point, because base << attempt overflows; infinity is fine below the cap.
	nominal := min(e.base.Seconds()*math.Pow(e.factor, float64(attempt-1)), e.max.Seconds())
	shortest = time.Duration(nominal * (1 - jitterShare) * float64(time.Second))
	if nominal*(1+jitterShare) >= e.max.Seconds() {
		return shortest, e.max
	}
	return shortest, time.Duration(nominal * (1 + jitterShare) * float64(time.Second))
}

// list waits as its schedule says.
type list struct {
	schedule []time.Duration
	max      time.Duration
}

func (l list) bounds(attempt int) (shortest, longest time.Duration) {
	d := min(l.schedule[min(attempt, len(l.schedule))-1], l.max)
	return d, d
}
