package retry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// kind is a kind of policy.
type kind struct {
	// parameters are the names of its parameters.
	parameters []string
	// build reads its parameters and returns the policy.
	build func(*parameters) Policy
}

// kinds are the kinds of policies by name: the value of the parameter policy. To add a kind, add it here.
var kinds = map[string]kind{
	"exponential": {[]string{"baseDelay", "factor", "maxDelay", "maxAttempts"}, exponential},
	"nexus":       {[]string{"maxAttempts"}, nexus},
	"io":          {[]string{"maxAttempts"}, ioFunctions},
	"fixed":       {[]string{"baseDelay", "maxAttempts"}, fixed},
	"list":        {[]string{"schedule", "maxDelay", "maxAttempts"}, list},
	"cycles":      {[]string{"receiveRetryCount", "maxRetryCycles", "retryCycleDelay", "receiveErrorHandling"}, cycles},
}

// unstated is the kind of parameters without a policy: a list if there is a schedule, otherwise exponential.
var unstated = kind{[]string{"schedule", "baseDelay", "factor", "maxDelay", "maxAttempts"}, listOrExponential}

func listOrExponential(p *parameters) Policy {
	if _, ok := p.values["schedule"]; !ok {
		return exponential(p)
	}
	p.duration("baseDelay", 0) // checked, but without effect
	p.factor()
	return list(p)
}

const (
	// jitterShare is how far exponential varies a wait either way.
	jitterShare = 0.2
	// longestDelay is the longest wait of nexus and io, by their own definitions.
	longestDelay = 7*24*time.Hour - time.Second
	// maxScheduleLength bounds the memory that one message can occupy.
	maxScheduleLength = 1000
	maxAttempts       = 1_000_000
	// maxPerCycle bounds the calls that cycles makes without a wait: no operator's limit applies to them.
	maxPerCycle = 10
)

// exponential waits baseDelay · factor^(attempt-1), varied by jitterShare either way, and never longer than
// maxDelay. The waits are spread evenly between the bounds.
func exponential(p *parameters) Policy {
	longest := p.duration("maxDelay", 6*time.Hour)
	base, factor := p.duration("baseDelay", min(5*time.Second, longest)), p.factor()
	if base > longest {
		p.fail("maxDelay", fmt.Errorf("%v is shorter than baseDelay %v", longest, base))
	}
	wait := func(attempt int, jitter float64) time.Duration {
		// Floating point, because base << attempt overflows. Infinity does no harm: the cap is lower.
		nominal := min(base.Seconds()*math.Pow(factor, float64(attempt-1)), longest.Seconds())
		low, high := seconds(nominal*(1-jitterShare)), min(seconds(nominal*(1+jitterShare)), longest)
		if jitter >= 1 {
			return high
		}
		return low + min(time.Duration(jitter*float64(high-low)), high-low)
	}
	return Policy{Name: "exponential", MaxAttempts: p.maxAttempts(), wait: wait, longest: longest}
}

// nexus is the formula of Nexus Async Caller: evenly from factor^attempt up to, not including, factor times
// that many seconds, where factor is 4 below the 7th attempt and then 2. Longer waits become 7 days less a
// second. The waits fall from the 6th attempt to the 7th: a defect, kept for comparison.
func nexus(p *parameters) Policy {
	const (
		lastSteepAttempt = 6
		maxExponent      = 24 // later attempts wait like this one
	)
	wait := func(attempt int, jitter float64) time.Duration {
		factor := 2.0
		if attempt <= lastSteepAttempt {
			factor = 4
		}
		lower := math.Pow(factor, float64(min(attempt, maxExponent)))
		return min(seconds(lower+jitter*(lower*factor-lower)), longestDelay)
	}
	return Policy{Name: "nexus", MaxAttempts: p.maxAttempts(), wait: wait, longest: longestDelay}
}

// ioFunctions waits as pagopa's io-functions do: 285 ms · 2^attempt, rounded up to whole seconds. It makes the
// first call and floor(log2(7 days / 285 ms)) retries.
func ioFunctions(p *parameters) Policy {
	const base, week = 0.285, 7 * 24 * 3600.0 // seconds
	calls := 1 + int(math.Log2(week/base))
	if asked := p.maxAttempts(); asked > 0 {
		calls = min(calls, asked)
	}
	wait := func(attempt int, _ float64) time.Duration {
		return min(seconds(math.Ceil(base*math.Pow(2, float64(attempt)))), longestDelay)
	}
	return Policy{Name: "io", MaxAttempts: calls, wait: wait, longest: longestDelay}
}

// fixed waits the same time after each attempt.
func fixed(p *parameters) Policy {
	delay := p.duration("baseDelay", time.Minute)
	wait := func(int, float64) time.Duration { return delay }
	return Policy{Name: "fixed", MaxAttempts: p.maxAttempts(), wait: wait, longest: delay}
}

// list waits as its schedule says, without jitter. The last wait repeats.
func list(p *parameters) Policy {
	longest := p.duration("maxDelay", math.MaxInt64)
	schedule := read(p, "schedule", []time.Duration{}, parseSchedule)
	if len(schedule) == 0 {
		p.fail("schedule", errors.New("the list is empty: give at least one delay"))
		return Policy{}
	}
	wait := func(attempt int, _ float64) time.Duration {
		return min(schedule[min(attempt, len(schedule))-1], longest)
	}
	return Policy{Name: "list", MaxAttempts: p.maxAttempts(), wait: wait, longest: wait(len(schedule), 0)}
}

// cycles makes receiveRetryCount + 1 calls without a wait, at most maxPerCycle, waits for retryCycleDelay, and starts
// again. The parameters, their defaults and ReceiveErrorHandling are those of WCF's queue bindings
// (https://learn.microsoft.com/dotnet/framework/wcf/feature-details/poison-message-handling).
func cycles(p *parameters) Policy {
	perCycle := 1 + p.int("receiveRetryCount", 5, 0)
	cycles := 1 + p.int("maxRetryCycles", 2, 0)
	if perCycle > maxAttempts/cycles {
		p.fail("receiveRetryCount", fmt.Errorf("more than %d attempts in all", maxAttempts))
	}
	pause := p.duration("retryCycleDelay", 30*time.Minute)
	policy := Policy{Name: "cycles", GiveUp: read(p, "receiveErrorHandling", "", parseErrorHandling), longest: pause}
	policy.wait = func(int, float64) time.Duration { return pause }
	policy.perCycle = min(perCycle, maxPerCycle)
	if perCycle > maxPerCycle {
		policy.Limited = fmt.Sprintf("at most %d attempts per cycle", maxPerCycle)
	}
	policy.MaxAttempts = policy.perCycle * cycles
	return policy
}

// parseErrorHandling reads WCF's ReceiveErrorHandling.
func parseErrorHandling(value json.RawMessage) (envelope.GiveUp, error) {
	text, err := strictjson.String(value)
	giveUp, known := map[string]envelope.GiveUp{
		"Fault":  envelope.GiveUpFault,
		"Drop":   envelope.GiveUpDrop,
		"Reject": envelope.GiveUpDeadLetter, // Reject informs the sender, which a callback does in any case
		"Move":   envelope.GiveUpDeadLetter,
	}[text]
	if err == nil && !known {
		err = errors.New(`want "Fault", "Drop", "Reject" or "Move"`)
	}
	return giveUp, err
}

func parseSchedule(value json.RawMessage) ([]time.Duration, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxScheduleLength {
		return nil, fmt.Errorf("the list is longer than %d delays", maxScheduleLength)
	}
	schedule := make([]time.Duration, 0, len(elements))
	before := time.Duration(0)
	for i, element := range elements {
		if strictjson.IsNull(element) {
			continue // null means absent
		}
		delay, err := strictjson.Duration(element)
		if err == nil && delay < before {
			err = fmt.Errorf("%v is shorter than the delay before it, %v: waits never get shorter", delay, before)
		}
		if err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
		schedule = append(schedule, delay)
		before = delay
	}
	return schedule, nil
}

// seconds returns a duration, at most the longest that exists.
func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}
