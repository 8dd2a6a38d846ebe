package retry_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
)

// longestQueueDelay is queue.MaxDelay, which nexus and io never exceed.
const longestQueueDelay = 7*24*time.Hour - time.Second

// mustPolicy makes the policy that an envelope's member `retry` asks for.
func mustPolicy(tb testing.TB, value string) retry.Policy {
	tb.Helper()
	policy, err := retry.Policies{}.Parse(json.RawMessage(value))
	if err != nil {
		tb.Fatal(err)
	}
	return policy
}

// TestPolicies checks the name of each kind of policy, its calls and its waits.
func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		value, name string
		calls       int    // 0 means that the policy does not end
		waits       string // the first ones; see checkWaits
	}{
		{
			`"exponential"`, "exponential", 0, // 5 s ± 20 %, doubled up to the cap
			"4s-6s 8s-12s 16s-24s 32s-48s 64s-96s 2m8s-3m12s 4m16s-6m24s 8m32s-12m48s 17m4s-25m36s 34m8s-51m12s " +
				"1h8m16s-1h42m24s 2h16m32s-3h24m48s 4h33m4s-6h 4h48m-6h 4h48m-6h",
		},
		{`{}`, "exponential", 0, "4s-6s 8s-12s"},
		{`{"policy":"exponential","baseDelay":"10s"}`, "exponential", 0, "8s-12s 16s-24s"},
		{`{"baseDelay":"10s","factor":3,"maxDelay":"100s"}`, "exponential", 0, "8s-12s 24s-36s 72s-100s 80s-100s"},
		{`{"baseDelay":60,"factor":1}`, "exponential", 0, "48s-72s 48s-72s 48s-72s"},
		{`{"baseDelay":"1m","maxDelay":"1m"}`, "exponential", 0, "48s-1m 48s-1m"},
		{`{"maxDelay":"1s"}`, "exponential", 0, "800ms-1s 800ms-1s"},
		{`{"maxAttempts":1}`, "exponential", 1, ""},
		{`{"maxAttempts":10}`, "exponential", 10, ""},
		{`{"schedule":["5s",60,"60s","1h"]}`, "list", 0, "5s 1m 1m 1h 1h 1h"},
		{`{"policy":"list","schedule":["7s"]}`, "list", 0, "7s 7s"},
		{`{"schedule":["5s","1h"],"maxDelay":"10m"}`, "list", 0, "5s 10m 10m"},
		{`{"schedule":["100h"],"maxAttempts":3}`, "list", 3, "100h"},
		{
			`"nexus"`, "nexus", 0, // with Nexus's defect: the seventh is shorter
			"4s-16s 16s-64s 64s-4m16s 4m16s-17m4s 17m4s-1h8m16s 1h8m16s-4h33m4s 2m8s-4m16s 4m16s-8m32s 8m32s-17m4s " +
				"17m4s-34m8s 34m8s-1h8m16s 1h8m16s-2h16m32s 2h16m32s-4h33m4s 4h33m4s-9h6m8s 9h6m8s-18h12m16s " +
				"18h12m16s-36h24m32s 36h24m32s-72h49m4s 72h49m4s-145h38m8s 145h38m8s-167h59m59s 167h59m59s 167h59m59s",
		},
		{`{"policy":"nexus","maxAttempts":9}`, "nexus", 9, ""},
		// The first call and floor(log2(7 days / 285 ms)) more.
		{`"io"`, "io", 22, "1s 2s 3s 5s 10s 19s 37s 73s 146s 292s"},
		{`{"policy":"io","maxAttempts":21}`, "io", 21, ""},
		{`{"policy":"io","maxAttempts":23}`, "io", 22, ""},
		{`"fixed"`, "fixed", 0, "1m 1m 1m"},
		{`{"policy":"fixed","baseDelay":"90s","maxAttempts":3}`, "fixed", 3, "90s 90s"},
		{`"cycles"`, "cycles", 18, "0s 0s 0s 0s 0s 30m 0s 0s 0s 0s 0s 30m 0s 0s 0s 0s 0s"},
		{`{"policy":"cycles","receiveRetryCount":0}`, "cycles", 3, "30m 30m 30m"},
		{
			`{"policy":"cycles","receiveRetryCount":1,"maxRetryCycles":3,"retryCycleDelay":"90s"}`,
			"cycles", 8, "0s 90s 0s 90s 0s",
		},
		{`{"policy":"cycles","receiveRetryCount":0,"maxRetryCycles":0}`, "cycles", 1, ""},
		{`{"policy":"cycles","maxRetryCycles":0}`, "cycles", 6, ""},
		{`{"policy":"cycles","receiveRetryCount":9,"maxRetryCycles":99999}`, "cycles", 1_000_000, ""},
	} {
		policy := mustPolicy(t, c.value)
		checkSchedule(t, policy, c.waits)
		if policy.Name != c.name || policy.MaxAttempts != c.calls || policy.GiveUp != "" {
			t.Errorf("%s: policy %s, %d calls, gives up by %q", c.value, policy.Name, policy.MaxAttempts, policy.GiveUp)
		}
		if c.calls == 0 && policy.Exhausted(math.MaxInt) {
			t.Errorf("%s ends", c.value)
		}
		if c.calls > 0 && (policy.Exhausted(c.calls-1) || !policy.Exhausted(c.calls) || !policy.Exhausted(c.calls+1)) {
			t.Errorf("%s does not end after call %d", c.value, c.calls)
		}
	}
}

// checkSchedule checks the first waits of a policy: "5s 8s-12s" is 5 s after the first attempt, and 8 to 12 s after the
// second.
func checkSchedule(t *testing.T, policy retry.Policy, waits string) {
	t.Helper()
	for i, wait := range strings.Fields(waits) {
		from, to, isRange := strings.Cut(wait, "-")
		if !isRange {
			to = from
		}
		shortest, longest := policy.Bounds(i + 1)
		if !about(shortest, mustDuration(t, from)) || !about(longest, mustDuration(t, to)) {
			t.Errorf("%s: after attempt %d: %v to %v, want %s", policy.Name, i+1, shortest, longest, wait)
		}
	}
}

func mustDuration(tb testing.TB, text string) time.Duration {
	tb.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// about allows for the rounding of floating-point numbers.
func about(got, want time.Duration) bool { return (got - want).Abs() < time.Microsecond }

// TestDelay: the waits are spread evenly between the shortest and the longest, which [TestPolicies] checks.
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
	for value, want := range map[string]time.Duration{
		`"exponential"`: 4 * time.Second, `{"schedule":["5s","1m"]}`: 5 * time.Second,
	} {
		for _, attempt := range []int{0, -1, math.MinInt} {
			if got := mustPolicy(t, value).Delay(attempt, 0); !about(got, want) {
				t.Errorf("%s, attempt %d: %v, want %v", value, attempt, got, want)
			}
		}
	}
}

// TestExponentialBesideNexus checks the hours in docs/nexus.md: until so many calls have failed, and how long Nexus
// waits after the next.
func TestExponentialBesideNexus(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/nexus.md")
	if err != nil {
		t.Fatal(err)
	}
	exponential, nexus := mustPolicy(t, `"exponential"`), mustPolicy(t, `"nexus"`)
	hours := func(from, to time.Duration) string { return fmt.Sprintf("%.0f to %.0f h", from.Hours(), to.Hours()) }
	until := func(p retry.Policy, calls int) string {
		var from, to time.Duration
		for n := 1; n < calls; n++ {
			shortest, longest := p.Bounds(n)
			from, to = from+shortest, to+longest
		}
		return hours(from, to)
	}
	for _, calls := range []int{14, 16, 18} {
		row := fmt.Sprintf("| %d | %s | %s | %s |\n", calls, until(exponential, calls), until(nexus, calls),
			hours(nexus.Bounds(calls+1)))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/nexus.md does not have %s", row)
		}
	}
}

func TestReceiveErrorHandling(t *testing.T) {
	for handling, want := range map[string]envelope.GiveUp{
		"Fault": envelope.GiveUpFault, "Drop": envelope.GiveUpDrop, "Reject": envelope.GiveUpDeadLetter,
		"Move": envelope.GiveUpDeadLetter,
	} {
		policy := mustPolicy(t, fmt.Sprintf(`{"policy":"cycles","receiveErrorHandling":%q}`, handling))
		if policy.GiveUp != want {
			t.Errorf("%s: %q, want %q", handling, policy.GiveUp, want)
		}
	}
}
