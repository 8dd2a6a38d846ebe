// Package retry computes how long to wait between the attempts of a call. It is pure: an attempt number and a
// random number in, a wait out.
package retry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// Policy is a rule for the waits between attempts. The zero value is not usable; see [Default] and
// [Policies.Parse].
type Policy struct {
	// Name identifies the policy in logs and tools: the name that it was chosen by, or its kind.
	Name string
	// MaxAttempts is the number of calls in all; 0 means as many as fit before the deadline.
	MaxAttempts int
	// GiveUp says how to give up when the policy's attempts are used up; empty if the policy does not say.
	GiveUp envelope.GiveUp
	// Limited names the limits that changed the policy; empty if none did.
	Limited string

	// wait returns the wait after an attempt, 1 or more. The jitter is a number from 0 to 1: 0 results in the
	// shortest wait, 1 in the longest. No wait is negative, and only those of nexus and cycles get shorter
	// from one attempt to the next.
	wait func(attempt int, jitter float64) time.Duration
	// longest is the longest wait after any attempt.
	longest time.Duration
	// perCycle is the number of calls between two waits; 0 and 1 mean that there is a wait after each call.
	perCycle int
}

// Bounds returns the shortest and the longest wait after the given attempt. The first attempt is 1; lower
// numbers count as 1.
func (p Policy) Bounds(attempt int) (shortest, longest time.Duration) {
	return p.Delay(attempt, 0), p.Delay(attempt, 1)
}

// Delay returns the wait after the given attempt. The jitter is a random number from 0 up to, not including, 1.
func (p Policy) Delay(attempt int, jitter float64) time.Duration {
	attempt = max(attempt, 1)
	if p.perCycle > 1 && attempt%p.perCycle != 0 {
		return 0
	}
	return p.wait(attempt, jitter)
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

// Within returns the policy within the limits. Its field Limited names the limits that changed it. No limit applies to
// the immediate attempts of cycles.
func (p Policy) Within(l Limits) Policy {
	var applied []string
	if p.Limited != "" {
		applied = append(applied, p.Limited)
	}
	if p.wait(1, 0) < l.MinDelay {
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

// Policies are the operator's own policies by name. The built-in policies exist beside them.
type Policies map[string]Policy

// Default returns the policy exponential with its default parameters: 5 s doubling to 6 h, each varied by 20 %
// either way but never beyond 6 h.
func Default() Policy { return exponential(&parameters{}) }

// Named returns the policy of that name: one of the operator's own, or a built-in kind with its default parameters.
func (own Policies) Named(name string) (Policy, error) {
	if policy, ok := own[name]; ok {
		return policy, nil
	}
	k, ok := kinds[name]
	if !ok {
		names := own.Names()
		return Policy{}, fmt.Errorf("unknown policy %.60q: the policies are %s%s",
			name, strings.Join(names, ", "), nearest.Hint(name, names))
	}
	var p parameters
	policy := k.build(&p)
	return policy, p.err
}

// Names returns the names of the operator's own policies, and of the built-in kinds.
func (own Policies) Names() []string {
	return slices.Concat(slices.Sorted(maps.Keys(own)), kindNames())
}

// Parse reads the member `retry` of an envelope: a policy's name, or an object with parameters. Its errors name the
// parameter.
func (own Policies) Parse(value json.RawMessage) (Policy, error) {
	if value[0] == '"' {
		name, err := strictjson.String(value)
		if err != nil {
			return Policy{}, err
		}
		return own.Named(name)
	}
	members, err := strictjson.Object(value)
	if err != nil {
		return Policy{}, errors.New("want a policy's name or an object with its parameters")
	}
	p := &parameters{values: map[string]json.RawMessage{}}
	members = slices.DeleteFunc(members, func(m strictjson.Member) bool {
		return strictjson.IsNull(m.Value) // null means absent
	})
	for _, m := range members {
		p.values[m.Name] = m.Value
	}
	k, title := unstated, "exponential or list"
	if name := read(p, "policy", "", strictjson.String); name != "" {
		stated, ok := kinds[name]
		if !ok {
			p.fail("policy", fmt.Errorf(`want %s; refer to a policy of retry.json by its name alone, "retry":"name"`,
				strings.Join(kindNames(), ", ")))
		}
		k, title = stated, name
	}
	for _, m := range members {
		if m.Name != "policy" && !slices.Contains(k.parameters, m.Name) {
			hint := nearest.Hint(m.Name, append([]string{"policy"}, k.parameters...))
			p.fail(m.Name, fmt.Errorf(`unknown parameter of policy %s: use %s, or state another "policy"%s`,
				title, strings.Join(k.parameters, ", "), hint))
		}
	}
	if p.err != nil {
		return Policy{}, p.err
	}
	policy := k.build(p)
	return policy, p.err
}

func kindNames() []string { return slices.Sorted(maps.Keys(kinds)) }

// validName matches the names that the operator may give to a policy.
var validName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// ParsePolicies reads retry.json: a JSON object of policies by name, each with parameters as in an envelope.
// The error joins all problems.
func ParsePolicies(content []byte) (Policies, error) {
	members, err := strictjson.Object(content)
	if err != nil {
		return nil, err
	}
	own := Policies{}
	var problems []error
	for _, m := range members {
		policy, err := Policies{}.Parse(m.Value)
		_, builtIn := kinds[m.Name]
		switch {
		case !validName.MatchString(m.Name):
			err = errors.New("not a policy's name: use a letter, then letters, digits, - and _, at most 64 in all")
		case builtIn:
			err = errors.New("is the name of a built-in policy: choose another")
		}
		if err != nil {
			problems = append(problems, strictjson.In(m.Name, err))
			continue
		}
		policy.Name = m.Name
		own[m.Name] = policy
	}
	return own, errors.Join(problems...)
}

// parameters are the members of a policy's JSON object. The methods return a default for a missing member, and
// the first problem is kept in err. The zero value has no members.
type parameters struct {
	values map[string]json.RawMessage
	err    error
}

// fail records a problem with a parameter.
func (p *parameters) fail(name string, err error) {
	if p.err == nil {
		p.err = strictjson.In(name, err)
	}
}

// read parses a parameter. It returns the default if the parameter is missing or invalid.
func read[T any](p *parameters, name string, byDefault T, parse func(json.RawMessage) (T, error)) T {
	value, ok := p.values[name]
	if !ok {
		return byDefault
	}
	parsed, err := parse(value)
	if err != nil {
		p.fail(name, err)
		return byDefault
	}
	return parsed
}

// duration reads a duration above zero.
func (p *parameters) duration(name string, byDefault time.Duration) time.Duration {
	return read(p, name, byDefault, func(value json.RawMessage) (time.Duration, error) {
		d, err := strictjson.Duration(value)
		if err == nil && d == 0 {
			err = errors.New("want a duration above zero")
		}
		return d, err
	})
}

// int reads a whole number from lowest to maxAttempts.
func (p *parameters) int(name string, byDefault, lowest int) int {
	return read(p, name, byDefault, func(value json.RawMessage) (int, error) {
		return strictjson.Int(value, lowest, maxAttempts)
	})
}

// maxAttempts reads the number of calls; 0, the default, means that there is no limit.
func (p *parameters) maxAttempts() int { return p.int("maxAttempts", 0, 1) }

// factor reads the factor of exponential.
func (p *parameters) factor() float64 {
	return read(p, "factor", 2, func(value json.RawMessage) (float64, error) {
		factor, err := strictjson.Number(value)
		if err == nil && factor < 1 {
			err = errors.New("want a number of at least 1: waits never get shorter")
		}
		return factor, err
	})
}
