package retry_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
)

// mustPolicies reads a retry.json.
func mustPolicies(tb testing.TB, content string) retry.Policies {
	tb.Helper()
	policies, err := retry.ParsePolicies([]byte(content))
	if err != nil {
		tb.Fatal(err)
	}
	return policies
}

const retryJSON = `{
  "patient": {"baseDelay": "1m", "factor": 3, "maxDelay": "1d"},
  "three-quick-ones": {"policy": "fixed", "baseDelay": "1s", "maxAttempts": 3},
  "msmq": {"policy": "cycles", "receiveErrorHandling": "Move"},
  "by_the_hour": {"schedule": ["1h"]},
  "by_the_day": {"schedule": ["1d12h"]},
  "old": "nexus"
}`

func TestParsePolicies(t *testing.T) {
	policies := mustPolicies(t, retryJSON)
	if len(policies) != 6 {
		t.Errorf("%d policies, want 6", len(policies))
	}
	for name, want := range map[string]struct {
		first string
		calls int
	}{
		"patient": {"48s-72s", 0}, "three-quick-ones": {"1s", 3}, "msmq": {"0s", 18}, "by_the_hour": {"1h", 0},
		"by_the_day": {"36h", 0}, "old": {"4s-16s", 0},
	} {
		policy, err := policies.Named(name)
		checkSchedule(t, policy, want.first)
		if err != nil || policy.Name != name || policy.MaxAttempts != want.calls {
			t.Errorf("%s: %v, it is called %q and makes %d calls, want %d", name, err, policy.Name, policy.MaxAttempts,
				want.calls)
		}
	}
	if got := policies["msmq"].GiveUp; got != envelope.GiveUpDeadLetter {
		t.Errorf("msmq: it gives up by %q", got)
	}
	if policies := mustPolicies(t, " {} \n"); len(policies) != 0 {
		t.Errorf("none: %v", policies)
	}
}

// TestParsePoliciesRefuses checks how an error begins. [TestParseNamesTheParameter] has the errors of parameters.
func TestParsePoliciesRefuses(t *testing.T) {
	for _, c := range []struct{ content, want string }{
		{``, "not JSON"},
		{`[]`, "want an object"},
		{"{\n  // slow\n  \"slow\": {}\n}", "not JSON: line 2"},
		{`{"slow":{},}`, "not JSON: line 1"},
		{`{"slow":{},"slow":{}}`, "slow: appears twice"},
		{`{"nexus":{}}`, "nexus: is the name of a built-in policy: choose another"},
		{`{"two words":{}}`, "two…: not a policy's name"},
		{`{"":{}}`, ": not a policy's name"},
		{`{"2fast":{}}`, "2fast: not a policy's name"},
		{`{"slow":null}`, "slow: want a policy's name or an object"},
		{`{"slow":{},"slower":"slow"}`, `slower: unknown policy "slow"`},
		{`{"slow":{"baseDelay":"1h","maxDelay":"1m"}}`, "slow.maxDelay: 1m0s is shorter than baseDelay"},
		{`{"slow":{"policy":"linear"}}`, "slow.policy: want cycles"},
		{`{"slow":{"schedule":[2,1]}}`, "slow.schedule[1]: 1s is shorter"},
		{`{"` + strings.Repeat("x", 65) + `":{}}`, strings.Repeat("x", 40)},
	} {
		_, err := retry.ParsePolicies([]byte(c.content))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s, and that in one line", c.content, err, c.want)
		}
	}
}

func TestParsePoliciesTellsEveryProblem(t *testing.T) {
	_, err := retry.ParsePolicies([]byte(`{"io":{},"good":{},"bad":{"factor":0},"worse":5,` +
		`"list-less":{"policy":"list"}}`))
	if err == nil {
		t.Fatal("it was accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{"io: ", "bad.factor: ", "worse: ", "list-less.schedule: "} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("problem %d does not begin with %q: %q", i+1, want, lines)
		}
	}
	if len(lines) != 4 {
		t.Errorf("%d problems, want 4: %q", len(lines), lines)
	}
}

// TestNamed checks what names mean beside policies of the operator.
func TestNamed(t *testing.T) {
	own := mustPolicies(t, `{"slow":{"schedule":["1h"],"maxAttempts":4},"brisk":{"schedule":["1s"]}}`)
	for value, want := range map[string]struct {
		name  string // empty if there is none
		calls int
	}{
		`"slow"`: {"slow", 4}, `"cycles"`: {"cycles", 18}, `{"maxAttempts":2}`: {"exponential", 2},
		`{"policy":"slow"}`: {"", 0}, // a kind, not a name
		`"unheard-of"`:      {"", 0},
		`" exponential"`:    {"", 0},
		`"Exponential"`:     {"", 0},
	} {
		policy, err := own.Parse(json.RawMessage(value))
		if (err == nil) != (want.name != "") || policy.Name != want.name || policy.MaxAttempts != want.calls {
			t.Errorf("%s: got %q with %d calls, %v, want %q with %d", value, policy.Name, policy.MaxAttempts, err,
				want.name, want.calls)
		}
	}
	_, err := own.Named("linear")
	if want := `unknown policy "linear": the policies are brisk, slow, cycles, exponential, fixed, io, ` +
		`list, nexus`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLimitsExcludeOneAnother(t *testing.T) {
	for limits, valid := range map[retry.Limits]bool{
		{}: true,
		{MinDelay: time.Minute, MaxDelay: time.Minute}: true,
		{MinDelay: time.Minute, MaxDelay: time.Second}: false,
		{MinDelay: time.Minute}:                        true, // no longest delay
		{MaxDelay: time.Minute, MaxAttempts: 1}:        true,
	} {
		if err := limits.Check(); (err == nil) != valid {
			t.Errorf("%+v: %v", limits, err)
		}
	}
}

// TestWithin: each limit alone, none, all, and which of them are said to have changed the policy.
func TestWithin(t *testing.T) {
	const (
		least, most, fewer = "delays of at least 10s", "delays of at most 1m0s", "at most 5 attempts"
		everything         = least + ", " + most + ", " + fewer
		nines              = "0s 0s 0s 0s 0s 0s 0s 0s 0s "
	)
	minDelay, maxDelay := retry.Limits{MinDelay: 10 * time.Second}, retry.Limits{MaxDelay: time.Minute}
	attempts, week := retry.Limits{MaxAttempts: 5}, retry.Limits{MaxDelay: 168 * time.Hour}
	all := retry.Limits{MinDelay: 10 * time.Second, MaxDelay: time.Minute, MaxAttempts: 5}
	for _, c := range []struct {
		value   string
		limits  retry.Limits
		waits   string
		calls   int
		limited string
	}{
		{`"exponential"`, retry.Limits{}, "4s-6s 8s-12s", 0, ""},
		{`"exponential"`, minDelay, "10s 10s-12s 16s-24s", 0, least},
		{`"exponential"`, maxDelay, "4s-6s 8s-12s 16s-24s 32s-48s 1m 1m", 0, most},
		{`"exponential"`, attempts, "4s-6s 8s-12s", 5, fewer},
		{`"exponential"`, all, "10s 10s-12s 16s-24s 32s-48s 1m", 5, everything},
		{`{"baseDelay":"20s","maxDelay":"40s","maxAttempts":5}`, all, "16s-24s 32s-40s", 5, ""},
		{`{"maxAttempts":4}`, attempts, "4s-6s", 4, ""},
		{`{"maxAttempts":6}`, attempts, "4s-6s", 5, fewer},
		{`{"schedule":["1s","30s","1h"]}`, all, "10s 30s 1m", 5, everything},
		{`{"schedule":["720h"]}`, week, "168h", 0, "delays of at most 168h0m0s"},
		{`"fixed"`, all, "1m", 5, fewer},
		{`"nexus"`, all, "10s-16s 16s-1m 1m", 5, everything},
		{`"nexus"`, week, "4s-16s", 0, ""},
		{`"io"`, all, "10s 10s 10s 10s 10s 19s 37s 1m", 5, everything},
		{`"cycles"`, all, "0s 0s 0s 0s 0s 1m", 5, most + ", " + fewer},
		{`"cycles"`, maxDelay, "0s 0s 0s 0s 0s 1m", 18, most},
		{`{"policy":"cycles","receiveRetryCount":1,"retryCycleDelay":"1ns"}`, minDelay, "0s 10s", 6, least},
		{`{"policy":"cycles","receiveRetryCount":1}`, maxDelay, "0s 1m 0s", 6, most},
		{`{"policy":"cycles","retryCycleDelay":"50s"}`, maxDelay, "0s", 18, ""},
		{
			`{"policy":"cycles","receiveRetryCount":499,"maxRetryCycles":1}`, minDelay, nines + "30m 0s", 20,
			"at most 10 attempts per cycle",
		},
	} {
		policy := mustPolicy(t, c.value)
		got := policy.Within(c.limits)
		checkSchedule(t, got, c.waits)
		if got.MaxAttempts != c.calls || got.Limited != c.limited || got.Name != policy.Name {
			t.Errorf("%s within %+v: %s with %d calls, limited: %q", c.value, c.limits, got.Name, got.MaxAttempts,
				got.Limited)
		}
	}
}
