package retry_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
)

const (
	draws = 10_000
	day   = 24 * time.Hour
	// longestQueueDelay is queue.MaxDelay, which nexus and io never exceed.
	longestQueueDelay = 7*day - time.Second
)

// kinds has every kind of policy, with its default parameters and with others.
func kinds(tb testing.TB) map[string]retry.Policy {
	tb.Helper()
	policies := map[string]retry.Policy{}
	for name, value := range map[string]string{
		"exponential":      `"exponential"`,
		"exponential_own":  `{"policy":"exponential","baseDelay":"1s","factor":1.5,"maxDelay":"72h","maxAttempts":40}`,
		"nexus":            `"nexus"`,
		"io":               `"io"`,
		"fixed":            `"fixed"`,
		"fixed_own":        `{"policy":"fixed","baseDelay":"90s"}`,
		"list":             `{"schedule":["5s","1m","10m"]}`,
		"cycles":           `"cycles"`,
		"cycles_own":       `{"policy":"cycles","receiveRetryCount":0,"maxRetryCycles":9,"retryCycleDelay":"1m"}`,
		"cycles_immediate": `{"policy":"cycles","maxRetryCycles":0}`,
	} {
		policies[name] = mustPolicy(tb, value)
	}
	return policies
}

func TestScheduleOfEachKind(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []wait
	}{
		"nexus": {`"nexus"`, []wait{
			{"4s", "16s"},
			{"16s", "64s"},
			{"64s", "4m16s"},
			{"4m16s", "17m4s"},
			{"17m4s", "1h8m16s"},
			{"1h8m16s", "4h33m4s"},
			{"2m8s", "4m16s"}, // Nexus's defect
			{"4m16s", "8m32s"},
			{"8m32s", "17m4s"},
			{"17m4s", "34m8s"},
			{"34m8s", "1h8m16s"},
			{"1h8m16s", "2h16m32s"},
			{"2h16m32s", "4h33m4s"},
			{"4h33m4s", "9h6m8s"},
			{"9h6m8s", "18h12m16s"},
			{"18h12m16s", "36h24m32s"},
			{"36h24m32s", "72h49m4s"},
			{"72h49m4s", "145h38m8s"},
			{"145h38m8s", "167h59m59s"},
			{"167h59m59s", "167h59m59s"},
			{"167h59m59s", "167h59m59s"},
		}},
		"io": {`"io"`, []wait{
			{"1s", "1s"}, // 0.57
			{"2s", "2s"}, // 1.14
			{"3s", "3s"}, // 2.28
			{"5s", "5s"}, // 4.56
			{"10s", "10s"},
			{"19s", "19s"},
			{"37s", "37s"},
			{"73s", "73s"},
			{"146s", "146s"},
			{"292s", "292s"},
		}},
		"fixed":        {`"fixed"`, []wait{{"1m", "1m"}, {"1m", "1m"}, {"1m", "1m"}}},
		"fixed_own":    {`{"policy":"fixed","baseDelay":"90s"}`, []wait{{"90s", "90s"}, {"90s", "90s"}}},
		"list_by_kind": {`{"policy":"list","schedule":["5s","1m"]}`, []wait{{"5s", "5s"}, {"1m", "1m"}, {"1m", "1m"}}},
		"exponential":  {`{"policy":"exponential","baseDelay":"10s"}`, []wait{{"8s", "12s"}, {"16s", "24s"}}},
		"cycles_of_one": {
			`{"policy":"cycles","receiveRetryCount":0}`,
			[]wait{{"30m", "30m"}, {"30m", "30m"}, {"30m", "30m"}},
		},
		"cycles": {`"cycles"`, []wait{
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"30m", "30m"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"30m", "30m"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
		}},
		"cycles_own": {
			`{"policy":"cycles","receiveRetryCount":1,"maxRetryCycles":3,"retryCycleDelay":"90s"}`,
			[]wait{{"0s", "0s"}, {"90s", "90s"}, {"0s", "0s"}, {"90s", "90s"}, {"0s", "0s"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { checkSchedule(t, mustPolicy(t, test.value), test.want) })
	}
}

func TestCallsOfEachKind(t *testing.T) {
	tests := map[string]struct {
		value string
		calls int // 0 means that the policy does not end
	}{
		"exponential":      {`"exponential"`, 0},
		"nexus":            {`"nexus"`, 0},
		"nexus_limited":    {`{"policy":"nexus","maxAttempts":9}`, 9},
		"fixed":            {`"fixed"`, 0},
		"fixed_limited":    {`{"policy":"fixed","maxAttempts":3}`, 3},
		"io":               {`"io"`, 22}, // the first and floor(log2(7 days / 285 ms)) more
		"io_fewer":         {`{"policy":"io","maxAttempts":21}`, 21},
		"io_not_more":      {`{"policy":"io","maxAttempts":23}`, 22},
		"cycles":           {`"cycles"`, 18},
		"cycles_no_retry":  {`{"policy":"cycles","receiveRetryCount":0,"maxRetryCycles":0}`, 1},
		"cycles_one_cycle": {`{"policy":"cycles","maxRetryCycles":0}`, 6},
		"cycles_own":       {`{"policy":"cycles","receiveRetryCount":2,"maxRetryCycles":4}`, 15},
		"cycles_most":      {`{"policy":"cycles","receiveRetryCount":9,"maxRetryCycles":99999}`, 1_000_000},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy := mustPolicy(t, test.value)
			if policy.MaxAttempts != test.calls {
				t.Errorf("%d calls, want %d", policy.MaxAttempts, test.calls)
			}
			if test.calls == 0 && policy.Exhausted(math.MaxInt) {
				t.Error("it ends")
			}
			if test.calls > 0 && (policy.Exhausted(test.calls-1) || !policy.Exhausted(test.calls)) {
				t.Errorf("it does not end after call %d", test.calls)
			}
		})
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
		if got := mustPolicy(t, fmt.Sprintf(`{"policy":"cycles","receiveErrorHandling":%q}`, handling)).
			GiveUp; got != want {
			t.Errorf("%s: %q, want %q", handling, got, want)
		}
	}
	for name, policy := range kinds(t) {
		if policy.GiveUp != "" {
			t.Errorf("%s wants %q when its attempts are used up", name, policy.GiveUp)
		}
	}
}
