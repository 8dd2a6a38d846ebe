// Package retry says how long to wait before a call is made again. It is pure: an attempt number and a
// random number in, a delay out.
package retry

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Policy is a rule for the waits between attempts. Its zero value is not usable; see [Default], [Named],
// [Spec.Policy] and [Policies.Resolve].
type Policy struct {
	// Name is what logs and tools call the policy: the name it was chosen by, or its kind.
	Name string
	// MaxAttempts is the number of calls in all; 0 means as many as fit before the deadline.
	MaxAttempts int
	// ErrorHandling is what the policy wants when its attempts are used up, or empty.
	ErrorHandling ErrorHandling
	// Limited says which of the operator's limits changed the policy, in words; empty when none did.
	Limited string

	delays delays
}

// delays is what distinguishes one kind of policy from another. No wait is negative, and none but those
// of nexus and cycles gets shorter with the attempt. The next kind is a new implementation.
type delays interface {
	// bounds are the limits between which the wait after an attempt, 1 or more, lies.
	bounds(attempt int) (shortest, longest time.Duration)
	// delay is that wait for a random number from 0 up to, not including, 1.
	delay(attempt int, jitter float64) time.Duration
	// longest is the longest wait after any attempt.
	longest() time.Duration
}

// ErrorHandling is WCF's ReceiveErrorHandling: what happens when all attempts have failed.
type ErrorHandling string

// The ways to handle errors, in WCF's words
// (https://learn.microsoft.com/dotnet/framework/wcf/feature-details/poison-message-handling).
const (
	Fault  ErrorHandling = "Fault"  // the host's own poison handling takes it
	Drop   ErrorHandling = "Drop"   // delete it
	Reject ErrorHandling = "Reject" // tell the sender; where nobody listens, a person
	Move   ErrorHandling = "Move"   // write it to the poison queue
)

// Bounds tells between which limits the wait after the given attempt lies; the first attempt is 1, and
// lower numbers count as 1.
func (p Policy) Bounds(attempt int) (shortest, longest time.Duration) {
	return p.delays.bounds(max(attempt, 1))
}

// Delay is the wait after the given attempt. Jitter is a random number from 0 up to, not including, 1.
func (p Policy) Delay(attempt int, jitter float64) time.Duration {
	return p.delays.delay(max(attempt, 1), jitter)
}

// Exhausted reports whether the policy allows no further call after this many.
func (p Policy) Exhausted(attempts int) bool {
	return p.MaxAttempts > 0 && attempts >= p.MaxAttempts
}

// Kinds of policies, and the names of those with default parameters.
const (
	kindExponential = "exponential"
	kindNexus       = "nexus"
	kindIO          = "io"
	kindFixed       = "fixed"
	kindList        = "list"
	kindCycles      = "cycles"
)

// Default is the policy "exponential": 5 s doubling to 6 h, each varied by 20 % either way but never
// beyond 6 h.
func Default() Policy {
	return Policy{Name: kindExponential, delays: exponential{defaultBaseDelay, defaultFactor, defaultMaxDelay}}
}

// Named returns the built-in policy of that name: one of the kinds with its default parameters.
func Named(name string) (Policy, error) { return Policies{}.Named(name) }

// Policies are the operator's own policies by name, beside the built-in ones.
type Policies map[string]Policy

// Named returns the policy of that name.
func (own Policies) Named(name string) (Policy, error) {
	if policy, ok := own[name]; ok {
		return policy, nil
	}
	switch name {
	case kindExponential, kindNexus, kindIO, kindFixed, kindCycles:
		return Spec{Kind: name}.Policy()
	}
	return Policy{}, fmt.Errorf("unknown policy %.60q: the policies are %s", name, own.names())
}

// Resolve makes a policy of what an envelope asks for.
func (own Policies) Resolve(s Spec) (Policy, error) {
	if s.Name != "" {
		return own.Named(s.Name)
	}
	return s.Policy()
}

// Limits are the bounds that the operator sets to what envelopes may ask for. Zero fields set none.
type Limits struct {
	MinDelay, MaxDelay time.Duration
	MaxAttempts        int
}

// Check reports limits that exclude one another.
func (l Limits) Check() error {
	if l.MaxDelay > 0 && l.MinDelay > l.MaxDelay {
		return errors.New("the shortest delay is longer than the longest")
	}
	return nil
}

// Within returns the policy within the limits; its field Limited says which of them changed it.
func (p Policy) Within(l Limits) Policy {
	shortest, _ := p.Bounds(1)
	var applied []string
	if shortest < l.MinDelay {
		applied = append(applied, fmt.Sprintf("delays of at least %v", l.MinDelay))
	}
	if l.MaxDelay > 0 && p.delays.longest() > l.MaxDelay {
		applied = append(applied, fmt.Sprintf("delays of at most %v", l.MaxDelay))
	}
	if len(applied) > 0 {
		p.delays = limited{p.delays, l}
	}
	if l.MaxAttempts > 0 && (p.MaxAttempts == 0 || p.MaxAttempts > l.MaxAttempts) {
		p.MaxAttempts = l.MaxAttempts
		applied = append(applied, fmt.Sprintf("at most %d attempts", l.MaxAttempts))
	}
	p.Limited = strings.Join(applied, ", ")
	return p
}

// limited keeps another's waits within the operator's limits.
type limited struct {
	delays
	limits Limits
}

func (l limited) bounds(attempt int) (shortest, longest time.Duration) {
	shortest, longest = l.delays.bounds(attempt)
	return l.clamp(shortest), l.clamp(longest)
}

func (l limited) delay(attempt int, jitter float64) time.Duration {
	return l.clamp(l.delays.delay(attempt, jitter))
}

func (l limited) longest() time.Duration { return l.clamp(l.delays.longest()) }

func (l limited) clamp(d time.Duration) time.Duration {
	d = max(d, l.limits.MinDelay)
	if l.limits.MaxDelay > 0 {
		d = min(d, l.limits.MaxDelay)
	}
	return d
}
