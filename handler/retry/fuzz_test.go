package retry_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"asynccaller/handler/retry"
	"asynccaller/handler/strictjson"
)

// checkWaits holds a policy to what every policy promises around one attempt: waits that are not
// negative, not beyond the cap, within their bounds, and with bounds that do not shrink.
func checkWaits(t *testing.T, policy retry.Policy, longest time.Duration, attempt int, jitter float64) {
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
		case n >= 1 && (low < beforeShortest || high < beforeLongest):
			t.Fatalf("after attempt %d: %v to %v is shorter than before, %v to %v", n, low, high, beforeShortest, beforeLongest)
		}
		if d := policy.Delay(n, jitter); d < low || d > high {
			t.Fatalf("after attempt %d: a wait of %v is not within %v and %v", n, d, low, high)
		}
		if n >= 1 {
			beforeShortest, beforeLongest = low, high
		}
	}
}

// fraction makes a jitter of anything.
func fraction(x float64) float64 {
	if x = math.Abs(x); x < 1 {
		return x
	}
	return math.Nextafter(1, 0)
}

// FuzzPolicy tries every parameter of an exponential policy with every attempt.
func FuzzPolicy(f *testing.F) {
	f.Add(int64(5*time.Second), 2.0, int64(6*time.Hour), 10, 1, 0.5)
	f.Add(int64(1), 1.0, int64(math.MaxInt64), 0, math.MaxInt, 0.999)
	f.Add(int64(math.MaxInt64), 1e308, int64(math.MaxInt64), 1, 29, 0.0)
	f.Add(int64(30*time.Second), 1.000001, int64(time.Minute), 0, 1_000_000, 1.0)
	f.Fuzz(func(t *testing.T, base int64, factor float64, longest int64, maxAttempts, attempt int, jitter float64) {
		if base < 0 || longest < 0 {
			return // ParseSpec lets no negative duration through
		}
		spec := retry.Spec{BaseDelay: time.Duration(base), Factor: factor, MaxDelay: time.Duration(longest), MaxAttempts: maxAttempts}
		policy, err := spec.Policy()
		if err != nil {
			return
		}
		limit := spec.MaxDelay
		if limit == 0 {
			limit = 6 * time.Hour
		}
		checkWaits(t, policy, limit, attempt, fraction(jitter))
	})
}

// FuzzParseSpec gives it every JSON there is: it never panics, and what makes a policy makes a sound one.
func FuzzParseSpec(f *testing.F) {
	for _, seed := range []string{
		`"exponential"`, `{}`, `{"schedule":["5s","1m"],"baseDelay":"5s","factor":2,"maxDelay":"6h","maxAttempts":10}`,
		`{"schedule":[]}`, `{"schedule":[0,1e9,"2562047h"]}`, `{"baseDelay":1e-9,"factor":1e308}`, `{"factor":1,"maxDelay":9223372036}`, `null`, `[1]`,
	} {
		f.Add([]byte(seed), 3, 0.5)
	}
	f.Fuzz(func(t *testing.T, value []byte, attempt int, jitter float64) {
		members, err := strictjson.Object(append(append([]byte(`{"retry":`), value...), '}'))
		if err != nil || len(members) != 1 {
			return
		}
		spec, err := retry.ParseSpec(members[0].Value)
		if err != nil {
			return
		}
		policy, err := spec.Policy()
		if err != nil {
			return
		}
		limit := time.Duration(math.MaxInt64)
		switch {
		case spec.MaxDelay > 0:
			limit = spec.MaxDelay
		case spec.Schedule == nil:
			limit = 6 * time.Hour
		}
		checkWaits(t, policy, limit, attempt, fraction(jitter))
	})
}
