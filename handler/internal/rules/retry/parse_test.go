package retry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/retry"
)

func TestParseLimits(t *testing.T) {
	for name, value := range map[string]string{
		"schedule_longest":  `{"schedule":[` + strings.Repeat("1,", 999) + `1]}`,
		"factor_1":          `{"factor":1}`,
		"max_attempts_most": `{"maxAttempts":1000000}`,
		"without_effect":    `{"schedule":[1],"baseDelay":"2s","factor":3,"maxDelay":"1s","maxAttempts":5}`,
	} {
		if _, err := (retry.Policies{}).Parse(json.RawMessage(value)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownParameterIsClipped(t *testing.T) {
	_, err := retry.Policies{}.Parse(json.RawMessage(`{"\u001b[2J` + strings.Repeat("x", 5000) + `":1}`))
	if len(err.Error()) > 300 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("an error of %d bytes with control characters", len(err.Error()))
	}
}

func TestParseNamesTheParameter(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []string
	}{
		"number":           {`5`, []string{"policy's name"}},
		"array":            {`["5s"]`, []string{"policy's name"}},
		"boolean":          {`true`, []string{"policy's name"}},
		"empty_name":       {`""`, []string{"unknown policy", "exponential"}},
		"list_by_name":     {`"list"`, []string{"schedule: ", "give at least one delay"}},
		"unknown_kind":     {`{"policy":"linear"}`, []string{"policy: ", "cycles, exponential, fixed, io, list, nexus"}},
		"list_without":     {`{"policy":"list"}`, []string{"schedule: ", "empty"}},
		"schedule_empty":   {`{"schedule":[]}`, []string{"schedule: ", "empty"}},
		"schedule_shrinks": {`{"schedule":["5s","5s","4s"]}`, []string{"schedule[2]", "4s", "5s"}},
		"schedule_to_zero": {`{"schedule":["1m",0]}`, []string{"schedule[1]", "0s", "1m0s"}},
		// although it has no effect
		"schedule_factor":    {`{"schedule":["1m"],"factor":0}`, []string{"factor: ", "at least 1"}},
		"max_below_base":     {`{"baseDelay":"1m","maxDelay":"1s"}`, []string{"maxDelay", "1s", "baseDelay", "1m0s"}},
		"base_above_default": {`{"baseDelay":"7h"}`, []string{"maxDelay", "6h0m0s", "7h0m0s"}},
		"cycles_times_many": {
			`{"policy":"cycles","receiveRetryCount":1000,"maxRetryCycles":999}`,
			[]string{"receiveRetryCount: ", "1000000 attempts"},
		},
		"unknown": {
			`{"jitter":0.1}`,
			[]string{"jitter: ", "unknown", "schedule, baseDelay, factor, maxDelay, maxAttempts"},
		},
		"wrong_case":        {`{"basedelay":"5s"}`, []string{"basedelay: ", "unknown", "baseDelay"}},
		"schedule_type":     {`{"schedule":"5s"}`, []string{"schedule: ", "array"}},
		"schedule_nulls":    {`{"schedule":[null]}`, []string{"schedule: ", "empty"}},
		"after_a_null":      {`{"schedule":[null,"5s",null,"4s"]}`, []string{"schedule[3]", "4s", "5s"}},
		"list_null":         {`{"policy":"list","schedule":null}`, []string{"schedule: ", "empty"}},
		"schedule_element":  {`{"schedule":["5s","soon"]}`, []string{"schedule[1]: ", `"90s"`}},
		"schedule_negative": {`{"schedule":[-1]}`, []string{"schedule[0]: ", "negative"}},
		"schedule_too_long": {`{"schedule":[` + strings.Repeat("1,", 1000) + `1]}`, []string{"schedule: ", "1000"}},
		"base_zero":         {`{"baseDelay":0}`, []string{"baseDelay: ", "above zero"}},
		"base_negative":     {`{"baseDelay":"-5s"}`, []string{"baseDelay: ", "negative"}},
		"base_text":         {`{"baseDelay":"1y"}`, []string{"baseDelay: ", `"90s"`}},
		"factor_below_1":    {`{"factor":0.5}`, []string{"factor: ", "at least 1"}},
		"factor_zero":       {`{"factor":0}`, []string{"factor: ", "at least 1"}},
		"factor_negative":   {`{"factor":-2}`, []string{"factor: ", "at least 1"}},
		"factor_huge":       {`{"factor":1e999}`, []string{"factor: ", "too large"}},
		"factor_text":       {`{"factor":"2"}`, []string{"factor: ", "want a number"}},
		"max_zero":          {`{"maxDelay":"0s"}`, []string{"maxDelay: ", "above zero"}},
		"max_too_long":      {`{"maxDelay":1e300}`, []string{"maxDelay: ", "too long"}},
		"attempts_zero":     {`{"maxAttempts":0}`, []string{"maxAttempts: ", "from 1 to"}},
		"attempts_fraction": {`{"maxAttempts":1.5}`, []string{"maxAttempts: ", "whole number"}},
		"attempts_too_many": {`{"maxAttempts":1000001}`, []string{"maxAttempts: ", "to 1000000"}},
		"attempts_text":     {`{"maxAttempts":"3"}`, []string{"maxAttempts: ", "whole number"}},
		"later_parameter":   {`{"factor":2,"maxAttempts":-1}`, []string{"maxAttempts: "}},
		"policy_type":       {`{"policy":5}`, []string{"policy: ", "want a string"}},
		"alien_exponential": {
			`{"policy":"exponential","schedule":[1]}`,
			[]string{"schedule: ", "unknown parameter of policy exponential"},
		},
		"alien_list": {
			`{"policy":"list","schedule":[1],"factor":2}`,
			[]string{"factor: ", "unknown parameter of policy list"},
		},
		"alien_fixed": {
			`{"policy":"fixed","maxDelay":"1h"}`,
			[]string{"maxDelay: ", "unknown parameter of policy fixed"},
		},
		"alien_nexus": {
			`{"baseDelay":"1s","policy":"nexus"}`,
			[]string{"baseDelay: ", "unknown parameter of policy nexus"},
		},
		"alien_io": {`{"policy":"io","maxDelay":"1h"}`, []string{"maxDelay: ", "unknown parameter of policy io"}},
		"alien_cycles": {
			`{"policy":"cycles","maxAttempts":5}`,
			[]string{"maxAttempts: ", "unknown parameter of policy cycles"},
		},
		"misspelt":        {`{"maxAtempts":5}`, []string{"maxAtempts: ", "; did you mean maxAttempts?"}},
		"misspelt_policy": {`{"polcy":"io"}`, []string{"polcy: ", "; did you mean policy?"}},
		"misspelt_name":   {`"exponentail"`, []string{"; did you mean exponential?"}},
		"cycles_in_list": {
			`{"policy":"list","schedule":[1],"maxRetryCycles":2}`,
			[]string{"maxRetryCycles: ", "unknown parameter of policy list"},
		},
		"cycles_unsaid": {
			`{"receiveRetryCount":5}`,
			[]string{"unknown parameter of policy exponential or list", `state another "policy"`},
		},
		"handling_unsaid": {
			`{"receiveErrorHandling":"Drop"}`,
			[]string{"unknown parameter of policy exponential or list", `state another "policy"`},
		},
		"retries_negative": {
			`{"policy":"cycles","receiveRetryCount":-1}`,
			[]string{"receiveRetryCount: ", "from 0 to"},
		},
		"cycles_negative": {`{"policy":"cycles","maxRetryCycles":-1}`, []string{"maxRetryCycles: ", "from 0 to"}},
		"cycles_too_many": {`{"policy":"cycles","maxRetryCycles":1000001}`, []string{"maxRetryCycles: ", "to 1000000"}},
		"pause_zero":      {`{"policy":"cycles","retryCycleDelay":0}`, []string{"retryCycleDelay: ", "above zero"}},
		"pause_negative":  {`{"policy":"cycles","retryCycleDelay":"-1s"}`, []string{"retryCycleDelay: ", "negative"}},
		"handling_unknown": {
			`{"policy":"cycles","receiveErrorHandling":"drop"}`,
			[]string{"receiveErrorHandling: ", `"Fault", "Drop", "Reject" or "Move"`},
		},
		"handling_type": {
			`{"policy":"cycles","receiveErrorHandling":1}`,
			[]string{"receiveErrorHandling: ", "want a string"},
		},
		"nested_in_schedule": {`{"schedule":[["5s"]]}`, []string{"schedule[0]: "}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := retry.Policies{}.Parse(json.RawMessage(test.value))
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// TestParseNull: null means absent, for a parameter as for an element of the schedule.
func TestParseNull(t *testing.T) {
	for _, c := range []struct{ with, without string }{
		{`{"schedule":null}`, `{}`},
		{`{"policy":null,"baseDelay":null,"factor":null,"maxDelay":null,"maxAttempts":null}`, `{}`},
		{`{"policy":"fixed","baseDelay":"7s","schedule":null,"jitter":null}`, `{"policy":"fixed","baseDelay":"7s"}`},
		{`{"schedule":[null,"1s",null,"3s"],"maxDelay":null}`, `{"schedule":["1s","3s"]}`},
		{
			`{"policy":"cycles","receiveErrorHandling":null,"receiveRetryCount":1}`,
			`{"policy":"cycles","receiveRetryCount":1}`,
		},
	} {
		text := c.with
		got, err := retry.Policies{}.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want, err := retry.Policies{}.Parse([]byte(c.without))
		if err != nil {
			t.Fatal(err)
		}
		for attempt := range 4 {
			if got.Name != want.Name || got.Delay(attempt, 0.5) != want.Delay(attempt, 0.5) {
				t.Errorf("%s: %s, %v after attempt %d, want %s, %v", text, got.Name, got.Delay(attempt, 0.5), attempt,
					want.Name, want.Delay(attempt, 0.5))
			}
		}
	}
}
