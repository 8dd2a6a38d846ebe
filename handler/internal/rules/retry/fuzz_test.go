package retry_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/retry"
)

// checkWaits holds a policy to what every policy promises around one attempt: waits that are not
// negative, not beyond the cap, within their bounds, and with bounds that do not shrink unless they may.
func checkWaits(t *testing.T, policy retry.Policy, longest time.Duration, mayShrink bool, attempt int, jitter float64) {
	t.Helper()
	attempts := []int{1, 2, 3, attempt, math.MaxInt - 1, math.MaxInt}
	if attempt > 1 && attempt < math.MaxInt {
		attempts = append(attempts, attempt-1, attempt+1)
	}
	slices.Sort(attempts)
	var beforeShortest, beforeLongest time.Duration
	for _, n := range attempts {
		low, high := policy.Bounds(n)
		switch {
		case low < 0 || high < low || high > longest:
			t.Fatalf("after attempt %d: %v to %v, with a cap of %v", n, low, high, longest)
		case n >= 1 && !mayShrink && (low < beforeShortest || high < beforeLongest):
			t.Fatalf("after attempt %d: %v to %v is shorter than before, %v to %v", n, low, high, beforeShortest,
				beforeLongest)
		}
		if d := policy.Delay(n, jitter); d < low || d > high {
			t.Fatalf("after attempt %d: a wait of %v is not within %v and %v", n, d, low, high)
		}
		if n >= 1 {
			beforeShortest, beforeLongest = low, high
		}
	}
}

// checkPolicy holds a policy to that, on its own and within limits.
func checkPolicy(
	t *testing.T, policy retry.Policy, longest time.Duration, limits retry.Limits, attempt int, jitter float64,
) {
	t.Helper()
	mayShrink := policy.Name == "nexus" || policy.Name == "cycles"
	checkWaits(t, policy, longest, mayShrink, attempt, jitter)
	if limits.MinDelay < 0 || limits.MaxDelay < 0 || limits.MaxAttempts < 0 || limits.Check() != nil {
		return
	}
	limited := policy.Within(limits)
	checkWaits(t, limited, cmp.Or(limits.MaxDelay, math.MaxInt64), mayShrink, attempt, jitter)
	immediate := 0
	for back := range 11 {
		n := max(attempt, 11) - back
		if shortest, _ := limited.Bounds(n); shortest == 0 && policy.Name == "cycles" {
			immediate++
		} else if shortest < limits.MinDelay {
			t.Fatalf("after attempt %d: %v, with a limit of %v", n, shortest, limits.MinDelay)
		}
	}
	if immediate > 10 { // of 11 waits, so that one in ten at least is a wait
		t.Fatalf("%d attempts without a wait before attempt %d", immediate, attempt)
	}
	if limits.MaxAttempts > 0 && !limited.Exhausted(limits.MaxAttempts) {
		t.Fatalf("%d calls, with a limit of %d", limited.MaxAttempts, limits.MaxAttempts)
	}
	low, high := policy.Bounds(attempt)
	limitedLow, limitedHigh := limited.Bounds(attempt)
	if changed := low != limitedLow || high != limitedHigh || limited.MaxAttempts != policy.MaxAttempts; changed &&
		limited.Limited == "" {
		t.Fatalf("after attempt %d: %v to %v has become %v to %v, and nothing says so", attempt, low, high, limitedLow,
			limitedHigh)
	}
}

// fraction makes a jitter of anything.
func fraction(x float64) float64 {
	x = math.Abs(x)
	if x < 1 {
		return x
	}
	return math.Nextafter(1, 0)
}

// FuzzPolicy tries every kind of policy with every parameter, limit and attempt.
func FuzzPolicy(f *testing.F) {
	for kind := range 7 {
		f.Add(kind, int64(5*time.Second), 2.0, int64(6*time.Hour), 10, 5, 2, int64(0), int64(0), 0, 1, 0.5)
		f.Add(kind, int64(1), 1.0, int64(math.MaxInt64), 0, 0, 0, int64(time.Second), int64(time.Minute), 3,
			math.MaxInt, 0.999)
		f.Add(kind, int64(math.MaxInt64), 1e308, int64(math.MaxInt64), 1, math.MaxInt, 0, int64(0), int64(time.Hour),
			0, 29, 0.0)
		f.Add(kind, int64(30*time.Second), 1.000001, int64(time.Minute), 0, 6, 999, int64(time.Hour),
			int64(math.MaxInt64), 1, 1_000_000, 1.0)
		f.Add(kind, int64(30*time.Second), 1.000001, int64(6*time.Hour), 0, 6, 999, int64(0), int64(time.Minute), 0,
			1_000_000_000, 1.0) // it exceeds the limit late
		f.Add(kind, int64(0), 0.0, int64(0), 0, math.MaxInt, math.MaxInt, int64(math.MaxInt64), int64(0), 0, 6, 0.0)
	}
	f.Fuzz(func(t *testing.T, kind int, base int64, factor float64, longest int64, maxAttempts, retries, rounds int,
		limitMin, limitMax int64, limitAttempts, attempt int, jitter float64,
	) {
		if math.IsNaN(factor) || math.IsInf(factor, 0) {
			return // JSON has no such number
		}
		first, last := time.Duration(base), time.Duration(longest)
		limit := ""
		if maxAttempts != 0 {
			limit = fmt.Sprintf(`,"maxAttempts":%d`, maxAttempts)
		}
		specs := []struct {
			longest time.Duration
			value   string
		}{
			{last, fmt.Sprintf(`{"baseDelay":"%v","factor":%g,"maxDelay":"%v"%s}`, first, factor, last, limit)},
			{last, fmt.Sprintf(`{"policy":"exponential","baseDelay":"%v","factor":%g,"maxDelay":"%v"%s}`, first,
				factor, last, limit)},
			{longestQueueDelay, fmt.Sprintf(`{"policy":"nexus"%s}`, limit)},
			{longestQueueDelay, fmt.Sprintf(`{"policy":"io"%s}`, limit)},
			{first, fmt.Sprintf(`{"policy":"fixed","baseDelay":"%v"%s}`, first, limit)},
			{last, fmt.Sprintf(`{"policy":"list","schedule":["%v","%v","%v"],"maxDelay":"%v"%s}`, first, first, last,
				last, limit)},
			{first, fmt.Sprintf(`{"policy":"cycles","receiveRetryCount":%d,"maxRetryCycles":%d,"retryCycleDelay":"%v"}`,
				retries, rounds, first)},
		}
		spec := specs[int(uint(kind)%uint(len(specs)))]
		policy, err := retry.Policies{}.Parse([]byte(spec.value))
		if err != nil {
			return
		}
		limits := retry.Limits{
			MinDelay: time.Duration(limitMin), MaxDelay: time.Duration(limitMax),
			MaxAttempts: limitAttempts,
		}
		checkPolicy(t, policy, spec.longest, limits, attempt, fraction(jitter))
	})
}

// FuzzParse parses any JSON: it never panics, and each policy that it returns is sound.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`"exponential"`, `{}`, `{"schedule":["5s","1m"],"baseDelay":"5s","factor":2,"maxDelay":"6h","maxAttempts":10}`,
		`{"schedule":[]}`, `{"schedule":[0,1e9,"2562047h"]}`, `{"baseDelay":1e-9,"factor":1e308}`,
		`{"factor":1,"maxDelay":9223372036}`, `{"schedule":["1d","1d12h","106750d"]}`, `null`, `[1]`,
		`"nexus"`, `"io"`, `"often"`, `{"schedule":[null,"1s",null],"policy":null,"jitter":null}`,
		`{"policy":"fixed","baseDelay":"1ns"}`, `{"policy":"list","schedule":["168h"],"maxDelay":"1s"}`,
		`{"policy":"cycles","receiveRetryCount":999,"maxRetryCycles":999,"retryCycleDelay":"2562047h",` +
			`"receiveErrorHandling":"Reject"}`,
	} {
		f.Add([]byte(seed), 3, 0.5)
	}
	f.Fuzz(func(t *testing.T, value []byte, attempt int, jitter float64) {
		members, err := strictjson.Object(append(append([]byte(`{"retry":`), value...), '}'))
		if err != nil || len(members) != 1 {
			return
		}
		policy, err := retry.Policies{}.Parse(members[0].Value)
		if err != nil {
			return
		}
		checkPolicy(t, policy, math.MaxInt64, retry.Limits{MinDelay: time.Second, MaxDelay: time.Hour, MaxAttempts: 7},
			attempt, fraction(jitter))
	})
}

// FuzzParsePolicies gives it every text there is: it never panics, and what it takes is sound.
func FuzzParsePolicies(f *testing.F) {
	for _, seed := range []string{
		retryJSON, `{}`, `{"a":"io","b":{"policy":"cycles","receiveRetryCount":0}}`,
		`{"nexus":{}}`, `[]`, `{"a":null}`, `{"a}":{}}`,
	} {
		f.Add([]byte(seed), 3, 0.5)
	}
	f.Fuzz(func(t *testing.T, content []byte, attempt int, jitter float64) {
		policies, err := retry.ParsePolicies(content)
		if err != nil {
			return
		}
		for name, policy := range policies {
			if named, err := policies.Named(name); err != nil || named.Name != name {
				t.Errorf("%q is called %q, %v", name, named.Name, err)
			}
			checkWaits(t, policy, math.MaxInt64, true, attempt, fraction(jitter))
		}
	})
}
