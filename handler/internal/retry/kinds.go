package retry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/strictjson"
)

// kind is a kind of policy.
type kind struct {
	// name is the value of the parameter policy.
	name string
	// parameters are the names of the kind's other parameters.
	parameters []string
	// build returns the policy without its name. It reads each of its parameters.
	build func(*parameters) Policy
	// unnamed says that the kind cannot be chosen by its name alone.
	unnamed bool
}

// kinds are the kinds of policies. To add a kind, add it here.
var kinds = []kind{
	{name: "exponential", parameters: []string{"baseDelay", "factor", "maxDelay", "maxAttempts"}, build: exponential},
	{name: "nexus", parameters: []string{"maxAttempts"}, build: nexus},
	{name: "io", parameters: []string{"maxAttempts"}, build: ioFunctions},
	{name: "fixed", parameters: []string{"baseDelay", "maxAttempts"}, build: fixed},
	{name: "list", parameters: []string{"schedule", "maxDelay", "maxAttempts"}, build: list, unnamed: true},
	{name: "cycles", parameters: []string{"receiveRetryCount", "maxRetryCycles", "retryCycleDelay", "receiveErrorHandling"}, build: cycles},
}

// unspecified is the kind of a policy that does not state its kind.
var unspecified = kind{parameters: []string{"schedule", "baseDelay", "factor", "maxDelay", "maxAttempts"}, build: listOrExponential}

// listOrExponential returns a list if there is a schedule. It then checks the parameters of exponential, but
// they have no effect.
func listOrExponential(p *parameters) Policy {
	if _, ok := p.values["schedule"]; !ok {
		return named("exponential", exponential(p))
	}
	p.duration("baseDelay", 0)
	p.factor()
	return named("list", list(p))
}

const (
	// jitterShare is how far exponential varies a wait either way.
	jitterShare = 0.2
	// longestDelay is the longest wait of nexus and io, by their own definitions.
	longestDelay = 7*24*time.Hour - time.Second
	// maxScheduleLength bounds the memory that one message can occupy.
	maxScheduleLength = 1000
	maxAttempts       = 1_000_000
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
	return Policy{MaxAttempts: p.maxAttempts(), wait: wait, longest: longest}
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
	return Policy{MaxAttempts: p.maxAttempts(), wait: wait, longest: longestDelay}
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
	return Policy{MaxAttempts: calls, wait: wait, longest: longestDelay}
}

// fixed waits the same time after each attempt.
func fixed(p *parameters) Policy {
	delay := p.duration("baseDelay", time.Minute)
	wait := func(int, float64) time.Duration { return delay }
	return Policy{MaxAttempts: p.maxAttempts(), wait: wait, longest: delay}
}

// list waits as its schedule says, without jitter. The last wait repeats.
func list(p *parameters) Policy {
	longest := p.duration("maxDelay", math.MaxInt64)
	schedule := read(p, "schedule", []time.Duration{}, parseSchedule)
	if len(schedule) == 0 {
		p.fail("schedule", errors.New("the list is empty"))
		return Policy{}
	}
	wait := func(attempt int, _ float64) time.Duration {
		return min(schedule[min(attempt, len(schedule))-1], longest)
	}
	return Policy{MaxAttempts: p.maxAttempts(), wait: wait, longest: wait(len(schedule), 0)}
}

// cycles makes receiveRetryCount + 1 calls without a wait, waits for retryCycleDelay, and starts again. The
// parameters, their defaults and ReceiveErrorHandling are those of WCF's queue bindings
// (https://learn.microsoft.com/dotnet/framework/wcf/feature-details/poison-message-handling).
func cycles(p *parameters) Policy {
	perCycle := 1 + p.int("receiveRetryCount", 5)
	cycles := 1 + p.int("maxRetryCycles", 2)
	if perCycle > maxAttempts/cycles {
		p.fail("receiveRetryCount", fmt.Errorf("more than %d attempts in all", maxAttempts))
	}
	pause := p.duration("retryCycleDelay", 30*time.Minute)
	wait := func(attempt int, _ float64) time.Duration {
		if attempt%perCycle != 0 {
			return 0
		}
		return pause
	}
	return Policy{
		MaxAttempts: perCycle * cycles, GiveUp: read(p, "receiveErrorHandling", "", parseErrorHandling), wait: wait, longest: pause,
	}
}

// parseErrorHandling reads WCF's ReceiveErrorHandling.
func parseErrorHandling(value json.RawMessage) (envelope.GiveUp, error) {
	text, err := strictjson.String(value)
	if err != nil {
		return "", err
	}
	switch text {
	case "Fault": // the host's own poison handling takes the message
		return envelope.GiveUpFault, nil
	case "Drop":
		return envelope.GiveUpDrop, nil
	case "Reject", "Move": // Reject informs the sender, which a callback does in any case
		return envelope.GiveUpDeadLetter, nil
	}
	return "", errors.New(`want "Fault", "Drop", "Reject" or "Move"`)
}

func parseSchedule(value json.RawMessage) ([]time.Duration, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxScheduleLength {
		return nil, fmt.Errorf("the list is longer than %d delays", maxScheduleLength)
	}
	schedule := make([]time.Duration, len(elements))
	for i, element := range elements {
		if schedule[i], err = strictjson.Duration(element); err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
		if i > 0 && schedule[i] < schedule[i-1] {
			err := fmt.Errorf("%v is shorter than the delay before it, %v: waits never get shorter", schedule[i], schedule[i-1])
			return nil, strictjson.In(strictjson.Index(i), err)
		}
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
