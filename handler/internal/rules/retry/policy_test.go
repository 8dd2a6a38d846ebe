package retry_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/retry"
)

func mustDuration(tb testing.TB, text string) time.Duration {
	tb.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// mustPolicy makes the policy that an envelope's member `retry` asks for.
func mustPolicy(tb testing.TB, value string) retry.Policy {
	tb.Helper()
	policy, err := retry.Policies{}.Parse(json.RawMessage(value))
	if err != nil {
		tb.Fatal(err)
	}
	return policy
}

// wait is a delay and how far it varies, as a person would write it. Equal limits need no second one.
type wait struct{ shortest, longest string }

func TestSchedule(t *testing.T) {
	tests := map[string]struct {
		policy retry.Policy
		want   []wait
	}{
		"exponential": {retry.Default(), []wait{
			{"4s", "6s"}, // 5 s ± 20 %
			{"8s", "12s"},
			{"16s", "24s"},
			{"32s", "48s"},
			{"64s", "96s"},
			{"2m8s", "3m12s"},
			{"4m16s", "6m24s"},
			{"8m32s", "12m48s"},
			{"17m4s", "25m36s"},
			{"34m8s", "51m12s"},
			{"1h8m16s", "1h42m24s"},
			{"2h16m32s", "3h24m48s"},
			{"4h33m4s", "6h"}, // 5h41m20s, whose upper limit the cap cuts
			{"4h48m", "6h"},
			{"4h48m", "6h"},
		}},
		"every_parameter": {
			mustPolicy(t, `{"baseDelay":"10s","factor":3,"maxDelay":"100s"}`),
			[]wait{{"8s", "12s"}, {"24s", "36s"}, {"72s", "100s"}, {"80s", "100s"}},
		},
		"constant": {
			mustPolicy(t, `{"baseDelay":60,"factor":1}`),
			[]wait{{"48s", "72s"}, {"48s", "72s"}, {"48s", "72s"}},
		},
		"base_is_max":                {mustPolicy(t, `{"baseDelay":"1m","maxDelay":"1m"}`), []wait{{"48s", "1m"}, {"48s", "1m"}}},
		"max_below_the_default_base": {mustPolicy(t, `{"maxDelay":"1s"}`), []wait{{"800ms", "1s"}, {"800ms", "1s"}}},
		"no_parameters":              {mustPolicy(t, `{}`), []wait{{"4s", "6s"}, {"8s", "12s"}}},
		"by_name":                    {mustPolicy(t, `"exponential"`), []wait{{"4s", "6s"}, {"8s", "12s"}}},
		"list": {
			mustPolicy(t, `{"schedule":["5s",60,"60s","1h"]}`),
			[]wait{{"5s", "5s"}, {"1m", "1m"}, {"1m", "1m"}, {"1h", "1h"}, {"1h", "1h"}, {"1h", "1h"}},
		},
		"list_of_one": {mustPolicy(t, `{"schedule":["7s"]}`), []wait{{"7s", "7s"}, {"7s", "7s"}}},
		"list_capped": {
			mustPolicy(t, `{"schedule":["5s","1h"],"maxDelay":"10m"}`),
			[]wait{{"5s", "5s"}, {"10m", "10m"}, {"10m", "10m"}},
		},
		"list_beyond_6h": {mustPolicy(t, `{"schedule":["100h"]}`), []wait{{"100h", "100h"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkSchedule(t, test.policy, test.want)
		})
	}
}

func checkSchedule(t *testing.T, policy retry.Policy, schedule []wait) {
	t.Helper()
	for i, want := range schedule {
		shortest, longest := policy.Bounds(i + 1)
		if !about(shortest, mustDuration(t, want.shortest)) || !about(longest, mustDuration(t, want.longest)) {
			t.Errorf("after attempt %d: %v to %v, want %s to %s", i+1, shortest, longest, want.shortest, want.longest)
		}
	}
}

// about allows for the rounding of floating-point numbers.
func about(got, want time.Duration) bool { return (got - want).Abs() < time.Microsecond }

// TestDelay: the waits are spread evenly between the shortest and the longest, which [TestSchedule] checks.
func TestDelay(t *testing.T) {
	for value, waits := range map[string]map[float64]string{
		`"exponential"`: {0: "16s", 0.25: "18s", 0.5: "20s", 0.75: "22s"},
		`"nexus"`:       {0: "64s", 0.25: "112s", 0.5: "160s", 0.75: "208s"},
	} {
		for jitter, want := range waits {
			if got := mustPolicy(t, value).Delay(3, jitter); !about(got, mustDuration(t, want)) {
				t.Errorf("%s with jitter %v: %v, want %s", value, jitter, got, want)
			}
		}
	}
}

func TestAttemptsBelowOneCountAsOne(t *testing.T) {
	for _, policy := range []retry.Policy{retry.Default(), mustPolicy(t, `{"schedule":["5s","1m"]}`)} {
		for _, attempt := range []int{0, -1, math.MinInt} {
			shortest, longest := policy.Bounds(attempt)
			firstShortest, firstLongest := policy.Bounds(1)
			if shortest != firstShortest || longest != firstLongest {
				t.Errorf("%s, attempt %d: %v to %v, want %v to %v", policy.Name, attempt, shortest, longest,
					firstShortest, firstLongest)
			}
		}
	}
}

func TestExhausted(t *testing.T) {
	tests := map[string]struct {
		value    string
		attempts int
		want     bool
	}{
		"no_limit":           {`{}`, math.MaxInt, false},
		"default_policy":     {`"exponential"`, math.MaxInt, false},
		"first_of_one":       {`{"maxAttempts":1}`, 0, false},
		"one_of_one":         {`{"maxAttempts":1}`, 1, true},
		"nine_of_ten":        {`{"maxAttempts":10}`, 9, false},
		"ten_of_ten":         {`{"maxAttempts":10}`, 10, true},
		"beyond":             {`{"maxAttempts":10}`, 11, true},
		"list_does_not_end":  {`{"schedule":["1s","2s"]}`, 1000, false},
		"list_with_limit":    {`{"schedule":["1s","2s"],"maxAttempts":3}`, 3, true},
		"list_before_limit":  {`{"schedule":["1s","2s"],"maxAttempts":3}`, 2, false},
		"list_of_its_length": {`{"schedule":["1s","2s"]}`, 2, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mustPolicy(t, test.value).Exhausted(test.attempts); got != test.want {
				t.Errorf("%s after %d attempts: %v", test.value, test.attempts, got)
			}
		})
	}
}

func TestNamed(t *testing.T) {
	for _, name := range []string{"exponential", "nexus", "io", "fixed", "cycles"} {
		if policy, err := (retry.Policies{}).Named(name); err != nil || policy.Name != name {
			t.Errorf("%s: got %q, %v", name, policy.Name, err)
		}
	}
	for _, name := range []string{"", "linear", "Exponential", " exponential"} {
		_, err := retry.Policies{}.Named(name)
		if err == nil || !strings.Contains(err.Error(), `"`+name+`"`) ||
			!strings.Contains(err.Error(), "cycles, exponential, fixed, io, list, nexus") {
			t.Errorf("%q: got %v, want the name and those that there are", name, err)
		}
	}
}

func TestPolicyNames(t *testing.T) {
	for value, want := range map[string]string{
		`"exponential"`: "exponential", `{"factor":3}`: "exponential", `{"schedule":[1]}`: "list",
		`"nexus"`: "nexus", `"io"`: "io", `{"policy":"fixed"}`: "fixed", `{"policy":"cycles"}`: "cycles",
	} {
		if got := mustPolicy(t, value).Name; got != want {
			t.Errorf("%s: the policy is called %q, want %q", value, got, want)
		}
	}
}
