package retry_test

import (
	"encoding/json"
	"slices"
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
		first    wait
		attempts int
	}{
		"patient":          {wait{"48s", "72s"}, 0},
		"three-quick-ones": {wait{"1s", "1s"}, 3},
		"msmq":             {wait{"0s", "0s"}, 18},
		"by_the_hour":      {wait{"1h", "1h"}, 0},
		"by_the_day":       {wait{"36h", "36h"}, 0},
		"old":              {wait{"4s", "16s"}, 0},
	} {
		policy, err := policies.Named(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkSchedule(t, policy, []wait{want.first})
		if policy.Name != name || policy.MaxAttempts != want.attempts {
			t.Errorf("%s: it is called %q and makes %d calls, want %d", name, policy.Name, policy.MaxAttempts,
				want.attempts)
		}
	}
	if got := policies["msmq"].GiveUp; got != envelope.GiveUpDeadLetter {
		t.Errorf("msmq: it gives up by %q", got)
	}
}

func TestParsePoliciesWithNone(t *testing.T) {
	if policies := mustPolicies(t, " {} \n"); len(policies) != 0 {
		t.Errorf("got %v", policies)
	}
}

func TestParsePoliciesRefuses(t *testing.T) {
	tests := map[string]struct {
		content string
		want    []string
	}{
		"nothing":           {``, []string{"not JSON"}},
		"array":             {`[]`, []string{"an object"}},
		"comment":           {"{\n  // slow\n  \"slow\": {}\n}", []string{"not JSON", "line 2"}},
		"trailing_comma":    {`{"slow":{},}`, []string{"not JSON", "line 1"}},
		"twice":             {`{"slow":{},"slow":{}}`, []string{"slow: ", "twice"}},
		"built_in":          {`{"nexus":{}}`, []string{"nexus: ", "built-in", "another"}},
		"bad_name":          {`{"two words":{}}`, []string{"not a policy's name"}},
		"empty_name":        {`{"":{}}`, []string{"not a policy's name"}},
		"digit_first":       {`{"2fast":{}}`, []string{"2fast: ", "not a policy's name"}},
		"name_too_long":     {`{"` + strings.Repeat("x", 65) + `":{}}`, []string{"at most 64"}},
		"null":              {`{"slow":null}`, []string{"slow: ", "policy's name or an object"}},
		"of_an_own_one":     {`{"slow":{},"slower":"slow"}`, []string{"slower: ", `unknown policy "slow"`}},
		"parameter":         {`{"slow":{"factor":0.5}}`, []string{"slow.factor: ", "at least 1"}},
		"parameters":        {`{"slow":{"baseDelay":"1h","maxDelay":"1m"}}`, []string{"slow.maxDelay: ", "baseDelay"}},
		"unknown_kind":      {`{"slow":{"policy":"linear"}}`, []string{"slow.policy: ", "cycles"}},
		"unknown_parameter": {`{"slow":{"jitter":1}}`, []string{"slow.jitter: ", "unknown"}},
		"schedule":          {`{"slow":{"schedule":[2,1]}}`, []string{"slow.schedule[1]: ", "shorter"}},
		"schedule_days":     {`{"slow":{"schedule":["1d","1d1y"]}}`, []string{"slow.schedule[1]: ", `"1d12h"`}},
		"days":              {`{"slow":{"maxDelay":"1e300d"}}`, []string{"slow.maxDelay: ", `"1d12h"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := retry.ParsePolicies([]byte(test.content))
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("one problem in several lines: %q", err)
			}
		})
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

func TestPoliciesNamed(t *testing.T) {
	own := mustPolicies(t, `{"slow":{"schedule":["1h"]},"brisk":{"schedule":["1s"]}}`)
	if policy, err := own.Named("exponential"); err != nil || policy.Name != "exponential" {
		t.Errorf("the built-in one: %q, %v", policy.Name, err)
	}
	_, err := own.Named("linear")
	if want := `unknown policy "linear": the policies are brisk, slow, cycles, exponential, fixed, io, ` +
		`list, nexus`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := (retry.Policies{}).Named("slow"); err == nil {
		t.Error("the operator's policy is built in")
	}
}

func TestPoliciesParse(t *testing.T) {
	own := mustPolicies(t, `{"slow":{"schedule":["1h"],"maxAttempts":4}}`)
	for value, want := range map[string]struct {
		name     string
		attempts int
	}{
		`"slow"`:                    {"slow", 4},
		`"cycles"`:                  {"cycles", 18},
		`{"maxAttempts":2}`:         {"exponential", 2},
		`{"schedule":[1]}`:          {"list", 0},
		`{"policy":"nexus"}`:        {"nexus", 0},
		`{"policy":"slow"}`:         {"", 0}, // a kind, not a name
		`"unheard-of"`:              {"", 0},
		`{"factor":2,"maxDelay":1}`: {"exponential", 0},
	} {
		policy, err := own.Parse(json.RawMessage(value))
		if (err == nil) != (want.name != "") || policy.Name != want.name || policy.MaxAttempts != want.attempts {
			t.Errorf("%s: got %q with %d calls, %v, want %q with %d", value, policy.Name, policy.MaxAttempts, err,
				want.name, want.attempts)
		}
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
		least, most, attempts = "delays of at least 10s", "delays of at most 1m0s", "at most 5 attempts"
	)
	minDelay, maxDelay, maxAttempts := retry.Limits{MinDelay: 10 * time.Second}, retry.Limits{MaxDelay: time.Minute},
		retry.Limits{MaxAttempts: 5}
	all := retry.Limits{MinDelay: 10 * time.Second, MaxDelay: time.Minute, MaxAttempts: 5}
	tests := map[string]struct {
		value   string
		limits  retry.Limits
		waits   []wait
		calls   int
		limited []string
	}{
		"none": {`"exponential"`, retry.Limits{}, []wait{{"4s", "6s"}, {"8s", "12s"}}, 0, nil},
		"min":  {`"exponential"`, minDelay, []wait{{"10s", "10s"}, {"10s", "12s"}, {"16s", "24s"}}, 0, []string{least}},
		"max": {
			`"exponential"`,
			maxDelay,
			[]wait{{"4s", "6s"}, {"8s", "12s"}, {"16s", "24s"}, {"32s", "48s"}, {"1m", "1m"}, {"1m", "1m"}},
			0,
			[]string{most},
		},
		"attempts": {`"exponential"`, maxAttempts, []wait{{"4s", "6s"}, {"8s", "12s"}}, 5, []string{attempts}},
		"all": {
			`"exponential"`,
			all,
			[]wait{{"10s", "10s"}, {"10s", "12s"}, {"16s", "24s"}, {"32s", "48s"}, {"1m", "1m"}},
			5,
			[]string{least, most, attempts},
		},
		"all_kept": {
			`{"baseDelay":"20s","maxDelay":"40s","maxAttempts":5}`, all,
			[]wait{{"16s", "24s"}, {"32s", "40s"}},
			5, nil,
		},
		"fewer_attempts": {`{"maxAttempts":4}`, maxAttempts, []wait{{"4s", "6s"}}, 4, nil},
		"more_attempts":  {`{"maxAttempts":6}`, maxAttempts, []wait{{"4s", "6s"}}, 5, []string{attempts}},
		"list": {
			`{"schedule":["1s","30s","1h"]}`, all,
			[]wait{{"10s", "10s"}, {"30s", "30s"}, {"1m", "1m"}},
			5,
			[]string{least, most, attempts},
		},
		"list_of_a_month": {
			`{"schedule":["720h"]}`,
			retry.Limits{MaxDelay: 168 * time.Hour},
			[]wait{{"168h", "168h"}},
			0,
			[]string{"delays of at most 168h0m0s"},
		},
		"fixed": {`"fixed"`, all, []wait{{"1m", "1m"}}, 5, []string{attempts}},
		"nexus": {
			`"nexus"`, all,
			[]wait{{"10s", "16s"}, {"16s", "1m"}, {"1m", "1m"}},
			5,
			[]string{least, most, attempts},
		},
		"nexus_by_default": {`"nexus"`, retry.Limits{MaxDelay: 168 * time.Hour}, []wait{{"4s", "16s"}}, 0, nil},
		"io": {
			`"io"`,
			all,
			[]wait{
				{"10s", "10s"},
				{"10s", "10s"},
				{"10s", "10s"},
				{"10s", "10s"},
				{"10s", "10s"},
				{"19s", "19s"},
				{"37s", "37s"},
				{"1m", "1m"},
			},
			5,
			[]string{least, most, attempts},
		},
		"cycles": {
			`"cycles"`,
			all,
			[]wait{{"0s", "0s"}, {"0s", "0s"}, {"0s", "0s"}, {"0s", "0s"}, {"0s", "0s"}, {"1m", "1m"}},
			5,
			[]string{most, attempts},
		},
		"cycles_min": {
			`{"policy":"cycles","receiveRetryCount":1,"retryCycleDelay":"1ns"}`, minDelay,
			[]wait{{"0s", "0s"}, {"10s", "10s"}},
			6,
			[]string{least},
		},
		"cycles_of_many": {
			`{"policy":"cycles","receiveRetryCount":499,"maxRetryCycles":1}`, minDelay,
			slices.Concat(slices.Repeat([]wait{{"0s", "0s"}}, 9), []wait{{"30m", "30m"}, {"0s", "0s"}}),
			20,
			[]string{"at most 10 attempts per cycle"},
		},
		"cycles_max": {`"cycles"`, maxDelay, []wait{
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"0s", "0s"},
			{"1m", "1m"},
		}, 18, []string{most}},
		"cycles_of_two_max": {
			`{"policy":"cycles","receiveRetryCount":1}`, maxDelay,
			[]wait{{"0s", "0s"}, {"1m", "1m"}, {"0s", "0s"}},
			6,
			[]string{most},
		},
		"cycles_brief_pause": {`{"policy":"cycles","retryCycleDelay":"50s"}`, maxDelay, []wait{{"0s", "0s"}}, 18, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy := mustPolicy(t, test.value)
			got := policy.Within(test.limits)
			checkSchedule(t, got, test.waits)
			if got.MaxAttempts != test.calls {
				t.Errorf("%d calls, want %d", got.MaxAttempts, test.calls)
			}
			if want := strings.Join(test.limited, ", "); got.Limited != want {
				t.Errorf("limited: %q, want %q", got.Limited, want)
			}
			if got.Name != policy.Name || got.GiveUp != policy.GiveUp {
				t.Errorf("it has become %q, %q", got.Name, got.GiveUp)
			}
		})
	}
}
