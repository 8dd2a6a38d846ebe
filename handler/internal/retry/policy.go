// Package retry computes how long to wait between the attempts of a call. It is pure: an attempt number and a
// random number in, a wait out.
package retry

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"asynccaller/handler/internal/envelope"
)

// Policy is a rule for the waits between attempts. The zero value is not usable; see [Default] and
// [Policies.Parse].
type Policy struct {
	// Name identifies the policy in logs and tools: the name that it was chosen by, or its kind.
	Name string
	// MaxAttempts is the number of calls in all; 0 means as many as fit before the deadline.
	MaxAttempts int
	// GiveUp is what the policy wants if its attempts are used up; empty if it does not say.
	GiveUp envelope.GiveUp
	// Limited names the operator's limits that changed the policy; empty if none did.
	Limited string

	// wait returns the wait after an attempt, 1 or more. The jitter is a number from 0 to 1: 0 results in the
	// shortest wait, 1 in the longest. No wait is negative, and only those of nexus and cycles get shorter
	// from one attempt to the next.
	wait func(attempt int, jitter float64) time.Duration
	// longest is the longest wait after any attempt.
	longest time.Duration
}

// Bounds returns the shortest and the longest wait after the given attempt. The first attempt is 1; lower
// numbers count as 1.
func (p Policy) Bounds(attempt int) (shortest, longest time.Duration) {
	return p.Delay(attempt, 0), p.Delay(attempt, 1)
}

// Delay returns the wait after the given attempt. The jitter is a random number from 0 up to, not including, 1.
func (p Policy) Delay(attempt int, jitter float64) time.Duration {
	return p.wait(max(attempt, 1), jitter)
}

// Exhausted reports whether the policy allows no further call after the given number of attempts.
func (p Policy) Exhausted(attempts int) bool {
	return p.MaxAttempts > 0 && attempts >= p.MaxAttempts
}

// Limits are the operator's limits on what envelopes may ask for. A zero field sets no limit.
type Limits struct {
	MinDelay, MaxDelay time.Duration
	MaxAttempts        int
}

// Check reports limits that contradict each other.
func (l Limits) Check() error {
	if l.MaxDelay > 0 && l.MinDelay > l.MaxDelay {
		return errors.New("the shortest delay is longer than the longest")
	}
	return nil
}

// clamp returns the delay within the limits.
func (l Limits) clamp(d time.Duration) time.Duration {
	d = max(d, l.MinDelay)
	if l.MaxDelay > 0 {
		d = min(d, l.MaxDelay)
	}
	return d
}

// Within returns the policy within the limits. Its field Limited names the limits that changed it.
func (p Policy) Within(l Limits) Policy {
	shortest, _ := p.Bounds(1)
	var applied []string
	if shortest < l.MinDelay {
		applied = append(applied, fmt.Sprintf("delays of at least %v", l.MinDelay))
	}
	if l.MaxDelay > 0 && p.longest > l.MaxDelay {
		applied = append(applied, fmt.Sprintf("delays of at most %v", l.MaxDelay))
	}
	if len(applied) > 0 {
		unlimited := p.wait
		p.wait = func(attempt int, jitter float64) time.Duration { return l.clamp(unlimited(attempt, jitter)) }
		p.longest = l.clamp(p.longest)
	}
	if l.MaxAttempts > 0 && (p.MaxAttempts == 0 || p.MaxAttempts > l.MaxAttempts) {
		p.MaxAttempts = l.MaxAttempts
		applied = append(applied, fmt.Sprintf("at most %d attempts", l.MaxAttempts))
	}
	p.Limited = strings.Join(applied, ", ")
	return p
}
