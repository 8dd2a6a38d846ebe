package explain_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

func question(content string, o *decision.Outcome) explain.Question {
	return explain.Question{
		Queue: mainQueue, MessageID: messageID, Content: []byte(content), Now: midnight,
		MaxContentBytes: storage.Base64.MaxContentBytes(), Outcome: o,
	}
}

// TestSecrets: what stands in the places where secrets do is nowhere in an explanation.
func TestSecrets(t *testing.T) {
	const canary = "C4nary"
	for name, content := range map[string]string{
		"envelope": `{"asyncCaller":1,"requestId":"r1","x":"C4nary","context":"C4nary","call":{"url":"https://u:C4nary@t.example/p?code=C4nary#C4nary",
			"headers":{"Authorization":"C4nary","Host":"C4nary.example"},"body":"C4nary"},
			"callback":{"url":"https://C4nary:C4nary@s.example/done?sig=C4nary","headers":{"X-Key":"C4nary"}}}`,
		"bad_header": `{"asyncCaller":1,"call":{"url":"https://t.example","headers":{"Authorization":["a\nC4nary"]}}}`,
		"bad_url":    `{"asyncCaller":1,"call":{"url":"ftp://C4nary"}}`,
		"not_json":   `{"asyncCaller":1,"call":{"url":"https://C4nary`,
		"wrong_names": `{"asyncCaller":1,"call":{"url":"https://t.example","headers":{"Authorization: Bearer ` +
			`C4nary":"x"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			o := answer(503, "X-Secret", canary, "Retry-After", canary, "X-Async-Caller-Retry", canary, "Set-Cookie",
				canary)
			o.Body = []byte(canary)
			text, err := json.Marshal(explain.About(rules(), question(content, &o)))
			if err != nil || strings.Contains(string(text), canary) {
				t.Errorf("error %v in\n%s", err, text)
			}
		})
	}
}

// TestAnswerToACallThatIsNotDue: the answer is judged at the moment of the call.
func TestAnswerToACallThatIsNotDue(t *testing.T) {
	o := answer(500)
	x := explain.About(rules(), question(fmt.Sprintf(plain, `,"notBefore":"2000-02-01T00:00:00Z"`), &o))
	due := time.Date(2000, time.February, 1, 0, 0, 0, 0, time.UTC)
	if x.Arrival.Reason != decision.NotDue || x.Envelope.Due || x.AfterCall == nil ||
		!x.AfterCall.At.Equal(due.Add(o.Took)) {
		t.Fatalf("%+v, after the call %+v", x.Arrival, x.AfterCall)
	}
	if got := x.AfterCall.Next.Earliest; !got.Equal(due.Add(o.Took + 4*time.Second)) {
		t.Errorf("next attempt at %v", got)
	}
	if longest := x.Arrival.Next.Longest; longest != explain.Seconds(storage.MaxDelay) {
		t.Errorf("a wait of a month is made of several, the first %v", longest)
	}
}

// TestLastAttempt: if the random part of a wait can reach the deadline, that is the latest time of the next attempt.
func TestLastAttempt(t *testing.T) {
	o := answer(500)
	for name, test := range map[string]struct {
		extra            string
		earliest, latest time.Duration
	}{
		"or_expired":  {`,"deadline":"2000-01-01T00:00:05Z"`, 4*time.Second + o.Took, 5 * time.Second},
		"or_cut":      {`,"deadline":"2000-01-01T00:00:40Z","attempts":3`, 30 * time.Second, 40 * time.Second},
		"always_cut":  {`,"deadline":"2000-01-01T00:00:40Z","attempts":1,"retry":{"schedule":["1s","1h"]}`, 30 * time.Second, 30 * time.Second},
		"in_any_case": {`,"deadline":"2000-01-01T00:01:00Z"`, 4*time.Second + o.Took, 6*time.Second + o.Took},
	} {
		t.Run(name, func(t *testing.T) {
			x := explain.About(rules(), question(fmt.Sprintf(plain, test.extra), &o))
			next := x.AfterCall.Next
			latest := next.Latest.Sub(midnight).Round(time.Microsecond)
			if next.Earliest.Sub(midnight) != test.earliest || latest != test.latest || next.Longest < next.Shortest {
				t.Errorf("%+v, want %v to %v", next, test.earliest, test.latest)
			}
		})
	}
}

// TestPausedTarget: no call is made to a paused target, and the explanation says why and when the message comes back.
func TestPausedTarget(t *testing.T) {
	o := answer(200)
	q := question(fmt.Sprintf(plain, ""), &o)
	q.Live = func(target *url.URL) explain.Live {
		return explain.Live{Paused: target.Host + " by anna", Until: midnight.Add(4 * time.Minute)}
	}
	x := explain.About(rules(), q)
	next := x.Arrival.Next
	if x.Arrival.Reason != decision.Paused || x.AfterCall != nil || !strings.HasSuffix(x.Envelope.Paused, " by anna") ||
		next.Earliest.Sub(midnight) != 4*time.Minute || next.Latest.Sub(midnight).Round(time.Second) != 5*time.Minute {
		t.Errorf("%+v, next %+v", x, next)
	}
	q.Guard.Deny, _ = guard.ParseDeny("*.example")
	if x := explain.About(rules(), q); x.Envelope.Paused != "" || x.Arrival.Action != decision.Call {
		t.Errorf("a refused target: %+v", x)
	}
}

// TestRefusedTarget: a refused target ends the call when it is due, whatever the target would answer.
func TestRefusedTarget(t *testing.T) {
	const form = `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://%s/"}%s}`
	ok := answer(200)
	for name, test := range map[string]struct {
		host, extra string
		outcome     *decision.Outcome
		want        decision.Action
		days        int
	}{
		"address":     {"127.0.0.1:7071", "", nil, decision.DeadLetter, 0},
		"with_answer": {"localhost", "", &ok, decision.DeadLetter, 0},
		"callback":    {"localhost", `,"callback":{"url":"http://s.example/"}`, nil, decision.Callback, 0},
		"drop":        {"localhost", `,"giveUp":"drop"`, nil, decision.Drop, 0},
		"not_due":     {"localhost", `,"notBefore":"2000-02-01T00:00:00Z"`, nil, decision.DeadLetter, 31},
		"expired":     {"localhost", `,"deadline":"1999-02-01T00:00:00Z"`, nil, "", 0},
		"malformed":   {"localhost", `,"retry":"often"`, &ok, "", 0},
		"unknown":     {"t.example", "", nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := explain.About(rules(), question(fmt.Sprintf(form, test.host, test.extra), test.outcome))
			switch {
			case test.want == "":
				if x.AfterCall != nil {
					t.Errorf("a call ends with %+v", x.AfterCall)
				}
			case x.AfterCall == nil || x.Otherwise != nil || x.AfterCall.Next != nil ||
				x.AfterCall.Action != test.want ||
				x.AfterCall.Reason != decision.Reason(decision.FailureTargetRefused) ||
				!strings.Contains(x.AfterCall.Detail, "127.0.0.1 is refused"):
				t.Errorf("the call ends with %+v, want %s", x.AfterCall, test.want)
			case !x.AfterCall.At.Equal(midnight.AddDate(0, 0, test.days)):
				t.Errorf("the call ends at %v", x.AfterCall.At)
			}
		})
	}
}

// TestShortName: only the handler finds out whether a short name exists as a full name. A proxy gets no such name.
func TestShortName(t *testing.T) {
	for name, test := range map[string]struct {
		host           string
		proxy          bool
		refused, short bool
	}{
		"short":   {"secret", false, false, true},
		"proxied": {"secret", true, true, false},
		"full":    {"t.example", false, false, false},
		"address": {"[2001:db8::1]", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := question(fmt.Sprintf(`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://%s/"}}`, test.host), nil)
			q.Guard.Profiles, q.Guard.Proxy = []string{"*.corp.test"}, test.proxy
			e := explain.About(rules(), q).Envelope
			const advice = "give the full name"
			refused, short := strings.Contains(e.Refused, advice), strings.Contains(e.RefusedIfShort, advice)
			if refused != test.refused || short != test.short {
				t.Errorf("refused: %q, if it is short: %q", e.Refused, e.RefusedIfShort)
			}
		})
	}
}

// TestLeftOut: what has no room is named.
func TestLeftOut(t *testing.T) {
	o := answer(500)
	content := fmt.Sprintf(plain, `,"x":"`+strings.Repeat("x", 49152-160)+`"`)
	writes := explain.About(rules(), question(content, &o)).AfterCall.Writes
	if !strings.Contains(writes, "; left out: ") || strings.Contains(writes, ", -") {
		t.Error(writes)
	}
}

// TestTerminalSafe: a stranger's text cannot steer a terminal.
func TestTerminalSafe(t *testing.T) {
	x := explain.About(rules(), question(fmt.Sprintf(plain, `,"deadLetter":{"reason":"\u001b[2J","detail":"a\nb"}`),
		nil))
	if got := x.Envelope.MovedBack; got.Reason != "\ufffd[2J" || got.Detail != "a\ufffdb" {
		t.Errorf("%+v", *got)
	}
	if got := explain.Target("https://u:p@t.example/a%1b b?c#d"); got != "t.example/a%1B%20b" {
		t.Errorf("%q", got)
	}
}

func mustPolicy(t *testing.T, value string) retry.Policy {
	t.Helper()
	policy, err := retry.Policies{}.Parse(json.RawMessage(value))
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// timetable returns the schedule of an envelope with members of its own, under the rules.
func timetable(r decision.Rules, deadline time.Duration, members string) explain.Schedule {
	const form = `{"asyncCaller":1,"createdAt":%q,"deadline":%q,%s,"call":{"url":"https://t.example/"}}`
	at := func(t time.Time) string { return t.Format(time.RFC3339) }
	return explain.Simulate(r, question(fmt.Sprintf(form, at(midnight), at(midnight.Add(deadline)), members), nil))
}

// TestSchedule compares schedules with what the policies say of themselves.
func TestSchedule(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for name, row := range map[string]struct {
		value         string
		deadline      time.Duration
		short, long   int
		last          time.Duration // of the longest waits
		reasonLongest decision.Reason
	}{
		"exponential": {`"exponential"`, week, 48, 40, week - 10*time.Second, decision.Expired},
		"nexus":       {`"nexus"`, week, 20, 19, week - 10*time.Second, decision.Expired},
		"io":          {`"io"`, week, 22, 22, week - 10*time.Second, decision.Exhausted},
		"fixed":       {`"fixed"`, time.Hour, 60, 60, 59 * time.Minute, decision.Expired},
		"cycles":      {`"cycles"`, week, 18, 18, time.Hour, decision.Exhausted},
		"one":         {`{"maxAttempts":1}`, week, 1, 1, 0, decision.Exhausted},
		"no_time":     {`"fixed"`, time.Second, 1, 1, 0, decision.Expired},
		"long_waits":  {`{"schedule":["240h"]}`, 4 * week, 3, 3, 20 * 24 * time.Hour, decision.Expired},
		"too_many":    {`{"schedule":["1ms"]}`, week, 10_000, 10_000, 9999 * time.Millisecond, ""},
	} {
		t.Run(name, func(t *testing.T) {
			unlimited := rules()
			unlimited.Limits = retry.Limits{}
			policy := mustPolicy(t, row.value)
			table := timetable(unlimited, row.deadline, `"retry":`+row.value)
			if table.Shortest.Attempts != row.short || table.Longest != (explain.Run{
				Attempts: row.long,
				Last:     explain.Seconds(row.last), Reason: row.reasonLongest,
			}) {
				t.Errorf("shortest %+v, longest %+v", table.Shortest, table.Longest)
			}
			if len(table.Attempts) != max(row.short, row.long) {
				t.Fatalf("%d attempts", len(table.Attempts))
			}
			for i, a := range table.Attempts {
				if a.N != i+1 || a.Earliest > a.Latest || a.ShortestWait > a.LongestWait ||
					a.Latest > explain.Seconds(row.deadline) || a.Certain != (i < min(row.short, row.long)) {
					t.Fatalf("attempt %d: %+v", i+1, a)
				}
				if i == 0 || i >= min(row.short, row.long)-1 {
					continue // the first has no wait, the last ones' may be cut
				}
				shortest, longest := policy.Bounds(i)
				if a.ShortestWait < explain.Seconds(shortest) || a.LongestWait > explain.Seconds(longest) ||
					longest-time.Duration(a.LongestWait) > time.Millisecond {
					t.Fatalf("attempt %d waits %v to %v, the policy %v to %v", i+1, a.ShortestWait, a.LongestWait,
						shortest, longest)
				}
			}
		})
	}
}

// TestScheduleOfEnvelope: the operator's limits, earlier attempts, and the time at which the message is due.
func TestScheduleOfEnvelope(t *testing.T) {
	limited := rules()
	limited.Limits = retry.Limits{MaxAttempts: 5, MinDelay: time.Minute}
	due := midnight.Add(time.Hour).Format(time.RFC3339)
	table := timetable(limited, 24*time.Hour, `"attempts":2,"nextAttemptAt":"`+due+`","retry":"exponential"`)
	if len(table.Attempts) != 3 || table.Longest.Reason != decision.Exhausted {
		t.Fatalf("%+v", table)
	}
	first, second := table.Attempts[0], table.Attempts[1]
	if first.N != 3 || first.Earliest != explain.Seconds(time.Hour) || first.Latest != first.Earliest ||
		second.N != 4 || second.ShortestWait != explain.Seconds(time.Minute) {
		t.Errorf("%+v, %+v", first, second)
	}
	for name, q := range map[string]explain.Question{
		"malformed": question(`{"asyncCaller":1}`, nil),
		"expired": question(`{"asyncCaller":1,"deadline":"1999-01-01T00:00:00Z",`+
			`"call":{"url":"https://t.example/"}}`, nil),
	} {
		if got := explain.Simulate(limited, q); len(got.Attempts) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestNoCall: which messages end without a call, and without a callback, whatever outcome is assumed.
func TestNoCall(t *testing.T) {
	const past = `,"deadline":"2000-01-01T00:00:00Z"`
	const callback = `,"callback":{"url":"https://s.example/"}`
	message := func(url, members string) string {
		return fmt.Sprintf(`{"asyncCaller":1,"createdAt":"2000-01-01T00:00:00Z","call":{"url":"%s"}%s}`, url, members)
	}
	to := func(members string) string { return message("https://t.example/", members) }
	paused := func(q *explain.Question, _ *decision.Rules) {
		q.Live = func(*url.URL) explain.Live { return explain.Live{Paused: "since"} }
	}
	for name, test := range map[string]struct {
		content string
		change  func(*explain.Question, *decision.Rules)
		want    string // the beginning; empty if there is a call or a callback
	}{
		"due":              {to(""), nil, ""},
		"not_due":          {to(`,"notBefore":"2000-01-03T00:00:00Z"`), nil, ""},
		"rejected":         {to(""), answers(400), ""},
		"paused":           {to(""), paused, ""},
		"expired":          {to(past), nil, "dead_letter (expired)"},
		"expired_drop":     {to(past + `,"giveUp":"drop"`), nil, "drop (expired)"},
		"expired_fault":    {to(past + `,"giveUp":"fault"`), nil, "fault (expired)"},
		"expired_callback": {to(past + callback), nil, ""},
		"expires_before_it_is_due": {
			to(`,"nextAttemptAt":"2000-01-03T00:00:00Z","deadline":"2000-01-02T00:00:00Z"`), nil,
			"dead_letter (expired)",
		},
		"malformed":        {"{}", answers(200), "dead_letter (malformed)"},
		"refused":          {message("http://127.0.0.1/", ""), nil, "dead_letter (target_refused)"},
		"refused_answered": {message("http://[::1]/", ""), answers(200), "dead_letter (target_refused)"},
		"refused_callback": {message("http://127.0.0.1/", callback), nil, ""},
		"refused_later": {
			message("http://127.0.0.1/", `,"notBefore":"2000-01-03T00:00:00Z"`), nil, "dead_letter (target_refused)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, q := rules(), question(test.content, nil)
			if test.change != nil {
				test.change(&q, &r)
			}
			got := explain.About(r, q).NoCall
			if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func answers(status int) func(*explain.Question, *decision.Rules) {
	return func(q *explain.Question, _ *decision.Rules) { q.Outcome = &decision.Outcome{Status: status} }
}

// TestCredential: the explanation names the credential.
func TestCredential(t *testing.T) {
	profiles, err := targets.Parse([]byte(`{"t.example":{"auth":{"managedIdentity":"api://t"}}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := question(`{"asyncCaller":1,"call":{"url":"https://t.example/"}}`, nil)
	x := explain.About(decision.Rules{Profiles: profiles}, q)
	if got := x.Envelope.Credential; got != "managed identity for api://t" {
		t.Errorf("got %q", got)
	}
}

// TestExplainAtTheEndOfTime: an envelope that is given up after the year 9999, which no JSON of ours can hold, is
// explained all the same.
func TestExplainAtTheEndOfTime(t *testing.T) {
	for _, member := range []string{
		`"createdAt":"9999-12-31T23:59:59Z"`, `"notBefore":"9999-12-31T23:59:59Z"`,
		`"deadLetter":{"at":"9999-12-31T23:59:59-01:00"}`,
	} {
		q := question(`{"asyncCaller":1,`+member+`,"call":{"url":"http://t.example/"}}`, nil)
		if _, err := json.Marshal(explain.About(rules(), q)); err != nil {
			t.Errorf("%s: %v", member, err)
		}
	}
}
