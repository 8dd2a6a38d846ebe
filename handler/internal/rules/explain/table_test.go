package explain_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
)

const (
	mainQueue = "async-caller"
	messageID = "7d0ad3c5-0d3b-4c39-8a6c-0bd4e2b9c1aa"
	plain     = `{"asyncCaller":1,"requestId":"r1","createdAt":"2000-01-01T00:00:00Z",` +
		`"call":{"url":"https://target.example/orders","body":"<a/>"}%s}`
	callback = `,"callback":{"url":"https://sender.example/done"},"context":{"order":[42]}`
	seen503  = `,"attempts":3,"latestAttemptAt":"1999-12-31T23:59:00Z","trail":[{"at":"1999-12-31T23:59:00Z",` +
		`"status":503,"tookMs":12}]`
	letter = `,"deadLetter":{"at":"1999-12-31T00:00:00Z","reason":"expired","detail":"x","queue":"async-caller",` +
		`"attempts":3}`
)

var midnight = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

func rules() decision.Rules {
	return decision.Rules{
		Expiration: 7 * 24 * time.Hour, GiveUp: envelope.GiveUpDeadLetter, Retry: retry.Default(),
		MaxDelay: storage.MaxDelay,
		Limits:   retry.Limits{MinDelay: time.Second, MaxDelay: 24 * time.Hour, MaxAttempts: 1000},
	}
}

func answer(status int, headers ...string) decision.Outcome {
	o := decision.Outcome{
		Status: status, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("answer"),
		Took: 40 * time.Millisecond,
	}
	for i := 0; i < len(headers); i += 2 {
		o.Header.Set(headers[i], headers[i+1])
	}
	return o
}

func failure(f decision.Failure) decision.Outcome {
	return decision.Outcome{Failure: f, Detail: "in words", Took: 40 * time.Millisecond}
}

// settlementTable is every row of the settlement table that a decision can lead to, and what it leads to.
func settlementTable() map[string]struct {
	content string
	outcome decision.Outcome
	want    string
} {
	type row = struct {
		content string
		outcome decision.Outcome
		want    string
	}
	with := func(extra string) string { return fmt.Sprintf(plain, extra) }
	rows := map[string]row{
		"delivered":               {with(""), answer(201), "finish delivered"},
		"delivered_with_callback": {with(callback), answer(201), "callback delivered"},
		"temporary":               {with(""), answer(500), "reschedule temporary_status"},
		"temporary_fourth":        {with(seen503), answer(500), "reschedule temporary_status"},
		"temporary_own_schedule": {
			with(`,"retry":{"schedule":["0.1s","90s"]}`), answer(500),
			"reschedule temporary_status",
		},
		"temporary_cycles": {with(`,"retry":"cycles","attempts":5`), answer(500), "reschedule temporary_status"},
		"temporary_weeks": {
			with(`,"retry":"io","attempts":20,"deadline":"2000-03-01T00:00:00Z"`), answer(500),
			"reschedule temporary_status",
		},
		"temporary_keeps_all":  {with(callback + seen503), answer(503), "reschedule temporary_status"},
		"forced_by_header":     {with(""), answer(400, "X-Async-Caller-Retry", "yes"), "reschedule temporary_status"},
		"ended_by_header":      {with(""), answer(500, "X-Async-Caller-Retry", "no"), "dead_letter rejected"},
		"retry_after":          {with(""), answer(429, "Retry-After", "120"), "reschedule temporary_status"},
		"retry_after_nonsense": {with(""), answer(429, "Retry-After", "soon"), "reschedule temporary_status"},
		"retry_after_deadline": {with(""), answer(429, "Retry-After", "900000"), "reschedule temporary_status"},
		"last_attempt": {with(`,"deadline":"2000-01-01T00:00:20Z","retry":{"schedule":["1s","1h"]},` +
			`"attempts":1`), answer(500), "reschedule temporary_status"},
		"no_time": {with(`,"deadline":"2000-01-01T00:00:04Z"`), answer(500), "dead_letter expired"},
		"no_time_with_callback": {
			with(callback + `,"deadline":"2000-01-01T00:00:04Z"`), failure(decision.FailureDNS),
			"callback expired",
		},
		"time_by_chance": {
			with(`,"deadline":"2000-01-01T00:00:05Z"`), answer(500),
			"reschedule temporary_status or dead_letter expired",
		},
		"cut_by_chance": {
			with(`,"deadline":"2000-01-01T00:00:40Z","attempts":3`), answer(500),
			"reschedule temporary_status",
		},
		"exhausted": {with(`,"retry":{"maxAttempts":1}`), answer(500), "dead_letter exhausted"},
		"exhausted_drop": {with(`,"retry":{"policy":"cycles","receiveRetryCount":0,"maxRetryCycles":0,` +
			`"receiveErrorHandling":"Drop"}`), answer(500), "drop exhausted"},
		"rejected":               {with(""), answer(400), "dead_letter rejected"},
		"rejected_with_callback": {with(callback + seen503), answer(400), "callback rejected"},
		"rejected_drop":          {with(`,"giveUp":"drop"`), answer(400), "drop rejected"},
		"rejected_fault":         {with(`,"giveUp":"fault"`), answer(400), "fault rejected"},
		"early":                  {with(seen503 + `,"nextAttemptAt":"2000-01-01T00:00:30.5Z"`), answer(200), "reschedule not_due"},
		"not_before_a_month":     {with(`,"notBefore":"2000-01-31T00:00:00Z"`), answer(200), "reschedule not_due"},
		"expired":                {with(`,"deadline":"2000-01-01T00:00:00Z"`), answer(200), "dead_letter expired"},
		"expired_with_callback": {
			with(callback + seen503 + `,"deadline":"1999-12-31T23:59:59Z"`), answer(200),
			"callback expired",
		},
		"expired_drop": {with(`,"giveUp":"drop","deadline":"2000-01-01T00:00:00Z"`), answer(200), "drop expired"},
		"moved_back": {
			with(`,"deadline":"1999-12-01T00:00:00Z"` + seen503 + letter), answer(500),
			"reschedule temporary_status",
		},
		"large":           {with(`,"x":"` + strings.Repeat("x", 49152-200) + `"`), answer(500), "reschedule temporary_status"},
		"not_json":        {"hello", answer(200), "dead_letter malformed"},
		"not_an_envelope": {`{"call":{"url":"https://t.example/"}}`, answer(200), "dead_letter malformed"},
		"bad_url":         {`{"asyncCaller":1,"call":{"url":"ftp://t.example/"}}`, answer(200), "dead_letter malformed"},
		"unknown_policy":  {with(`,"retry":"often"`), answer(200), "dead_letter malformed"},
		"bad_policy":      {with(`,"retry":{"factor":0.5}`), answer(200), "dead_letter malformed"},
		"no_room": {`{"asyncCaller":1,"call":{"url":"https://t.example/",` +
			`"body":"` + strings.Repeat("x", 49152-80) + `"}}`, answer(200), "dead_letter malformed"},
	}
	for _, f := range []decision.Failure{
		decision.FailureTimeout, decision.FailureDNS, decision.FailureConnect,
		decision.FailureTLS, decision.FailureConnection, decision.FailureCertificate, decision.FailureInterrupted,
	} {
		rows["failure_"+string(f)] = row{with(""), failure(f), "reschedule " + string(f)}
	}
	for _, f := range []decision.Failure{
		decision.FailureRedirected, decision.FailureBadURL,
		decision.FailureTargetRefused,
	} {
		rows["failure_"+string(f)] = row{with(""), failure(f), "dead_letter " + string(f)}
	}
	return rows
}

// TestExplain holds the explanation of every row to what the row leads to, and to the message that it writes.
func TestExplain(t *testing.T) {
	for name, row := range settlementTable() {
		t.Run(name, func(t *testing.T) {
			x := explain.About(rules(), question(row.content, &row.outcome))
			steps := []explain.Step{x.Arrival}
			if x.Arrival.Action == decision.Call {
				steps = []explain.Step{*x.AfterCall}
				if x.Otherwise != nil {
					steps = append(steps, *x.Otherwise)
				}
			}
			var explained []string
			for _, step := range steps {
				explained = append(explained, fmt.Sprintf("%s %s", step.Action, step.Reason))
				checkStep(t, step)
			}
			if got := strings.Join(explained, " or "); got != row.want {
				t.Errorf("explained as %q, want %q", got, row.want)
			}
		})
	}
}

func checkStep(t *testing.T, step explain.Step) {
	t.Helper()
	want := map[decision.Action]string{
		decision.Reschedule: mainQueue, decision.Callback: mainQueue,
		decision.DeadLetter: mainQueue + "-poison",
	}[step.Action]
	isWritten := strings.Contains(step.Writes, " of 49152 bytes to "+want+",")
	if isWritten != (want != "") || !isWritten && step.Writes != "" {
		t.Errorf("%s writes %q, want it on %q", step.Action, step.Writes, want)
	}
	n := step.Next
	switch {
	case (n != nil) != (step.Action == decision.Reschedule), (step.Action == decision.Callback) != step.Callback:
		t.Errorf("%s with callback %v and next attempt %v", step.Action, step.Callback, n)
	case n != nil && (n.Earliest.After(n.Latest) || n.Shortest > n.Longest || n.Shortest < 0):
		t.Errorf("next attempt %+v", n)
	}
}
