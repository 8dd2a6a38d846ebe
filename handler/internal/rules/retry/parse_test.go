package retry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

// TestParseNamesTheParameter checks how an error begins and, after an ellipsis, how it ends.
func TestParseNamesTheParameter(t *testing.T) {
	const unknown = ": unknown parameter of policy "
	cycles := func(member string) string { return `{"policy":"cycles",` + member + `}` }
	for _, c := range []struct{ value, want string }{
		{`5`, "want a policy's name or an object"},
		{`["5s"]`, "want a policy's name or an object"},
		{`""`, `unknown policy "": the policies are cycles, exponential, fixed, io, list, nexus`},
		{`"exponentail"`, `unknown policy "exponentail": the policies are … did you mean exponential?`},
		{`"list"`, "schedule: the list is empty: give at least one delay"},
		{`{"policy":5}`, "policy: want a string"},
		{`{"policy":"linear"}`, "policy: want cycles, exponential, fixed, io, list, nexus"},
		{`{"policy":"list","schedule":null}`, "schedule: the list is empty"},
		{`{"schedule":[null]}`, "schedule: the list is empty"},
		{`{"schedule":"5s"}`, "schedule: want an array"},
		{`{"schedule":["5s","5s","4s"]}`, "schedule[2]: 4s is shorter than the delay before it, 5s"},
		{`{"schedule":[null,"5s",null,"4s"]}`, "schedule[3]: 4s is shorter than the delay before it, 5s"},
		{`{"schedule":["5s","soon"]}`, `schedule[1]: want a duration such as "90s"`},
		{`{"schedule":[-1]}`, "schedule[0]: a duration cannot be negative"},
		{`{"schedule":[["5s"]]}`, "schedule[0]: "},
		{`{"schedule":[` + strings.Repeat("1,", 1000) + `1]}`, "schedule: the list is longer than 1000 delays"},
		{`{"schedule":["1m"],"factor":0}`, "factor: want a number of at least 1"}, // although it has no effect
		{`{"baseDelay":0}`, "baseDelay: want a duration above zero"},
		{`{"baseDelay":"-5s"}`, "baseDelay: a duration cannot be negative"},
		{`{"baseDelay":"1y"}`, `baseDelay: want a duration such as "90s"`},
		{`{"baseDelay":"1m","maxDelay":"1s"}`, "maxDelay: 1s is shorter than baseDelay 1m0s"},
		{`{"baseDelay":"7h"}`, "maxDelay: 6h0m0s is shorter than baseDelay 7h0m0s"},
		{`{"factor":0.5}`, "factor: want a number of at least 1"},
		{`{"factor":-2}`, "factor: want a number of at least 1"},
		{`{"factor":1e999}`, "factor: the number is too large"},
		{`{"factor":"2"}`, "factor: want a number, not a string"},
		{`{"maxDelay":"0s"}`, "maxDelay: want a duration above zero"},
		{`{"maxDelay":1e300}`, "maxDelay: the duration is too long"},
		{`{"maxAttempts":0}`, "maxAttempts: want a whole number from 1 to 1000000"},
		{`{"maxAttempts":1.5}`, "maxAttempts: want a whole number"},
		{`{"maxAttempts":1000001}`, "maxAttempts: want a whole number from 1 to 1000000"},
		{`{"maxAttempts":"3"}`, "maxAttempts: want a whole number"},
		{`{"factor":2,"maxAttempts":-1}`, "maxAttempts: want a whole number"},
		{cycles(`"receiveRetryCount":-1`), "receiveRetryCount: want a whole number from 0 to 1000000"},
		{cycles(`"maxRetryCycles":-1`), "maxRetryCycles: want a whole number from 0 to 1000000"},
		{cycles(`"maxRetryCycles":1000001`), "maxRetryCycles: want a whole number from 0 to 1000000"},
		{cycles(`"receiveRetryCount":1000,"maxRetryCycles":999`), "receiveRetryCount: more than 1000000 attempts"},
		{cycles(`"retryCycleDelay":0`), "retryCycleDelay: want a duration above zero"},
		{cycles(`"receiveErrorHandling":"drop"`), `receiveErrorHandling: want "Fault", "Drop", "Reject" or "Move"`},
		{cycles(`"receiveErrorHandling":1`), "receiveErrorHandling: want a string"},
		// Parameters of other policies, and misspelt ones.
		{`{"policy":"exponential","schedule":[1]}`, "schedule" + unknown + "exponential: use baseDelay"},
		{`{"policy":"list","schedule":[1],"factor":2}`, "factor" + unknown + "list: use schedule"},
		{`{"policy":"fixed","maxDelay":"1h"}`, "maxDelay" + unknown + "fixed: use baseDelay"},
		{`{"baseDelay":"1s","policy":"nexus"}`, "baseDelay" + unknown + "nexus: use maxAttempts"},
		{`{"policy":"io","maxDelay":"1h"}`, "maxDelay" + unknown + "io: use maxAttempts"},
		{cycles(`"maxAttempts":5`), "maxAttempts" + unknown + "cycles: use receiveRetryCount"},
		{`{"receiveRetryCount":5}`, "receiveRetryCount" + unknown + `exponential or list: … state another "policy"`},
		{`{"jitter":0.1}`, "jitter" + unknown + "exponential or list: use schedule, baseDelay, factor,"},
		{`{"basedelay":"5s"}`, "basedelay" + unknown + "… did you mean baseDelay?"},
		{`{"polcy":"io"}`, "polcy" + unknown + "… did you mean policy?"},
	} {
		_, err := retry.Policies{}.Parse(json.RawMessage(c.value))
		begin, end, _ := strings.Cut(c.want, "… ")
		if err == nil || !strings.HasPrefix(err.Error(), begin) || end != "" && !strings.HasSuffix(err.Error(), end) {
			t.Errorf("%.100s: %v, want %s", c.value, err, c.want)
		}
	}
}

// TestParseNull: null means absent, for a parameter as for an element of the schedule.
func TestParseNull(t *testing.T) {
	for with, without := range map[string]string{
		`{"schedule":null}`: `{}`,
		`{"policy":null,"baseDelay":null,"factor":null,"maxDelay":null,"maxAttempts":null}`: `{}`,
		`{"policy":"fixed","schedule":null,"jitter":null}`:                                  `{"policy":"fixed"}`,
		`{"schedule":[null,"1s",null,"3s"],"maxDelay":null}`:                                `{"schedule":["1s","3s"]}`,
		`{"policy":"cycles","receiveErrorHandling":null}`:                                   `{"policy":"cycles"}`,
	} {
		got, want := mustPolicy(t, with), mustPolicy(t, without)
		diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(retry.Policy{}))
		if diff != "" || got.Delay(1, 0.5) != want.Delay(1, 0.5) || got.Delay(3, 0.5) != want.Delay(3, 0.5) {
			t.Errorf("%s: waits of %v and %v (-want +got):\n%s", with, got.Delay(1, 0.5), got.Delay(3, 0.5), diff)
		}
	}
}
