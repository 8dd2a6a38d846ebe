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

// TestExplain holds the explanation of each kind of decision to what it leads to, and to the message that it writes.
// The settlement table itself is in package decision.
func TestExplain(t *testing.T) {
	const again, late = "reschedule temporary_status", `,"deadline":"2000-01-01T00:00:04Z"`
	with := func(extra string) string { return fmt.Sprintf(plain, extra) }
	for name, row := range map[string]struct {
		content string
		outcome decision.Outcome
		want    string
	}{
		"delivered":               {with(""), answer(201), "finish delivered"},
		"delivered_with_callback": {with(callback), answer(201), "callback delivered"},
		"temporary":               {with(callback + seen503), answer(500), again},
		"own_schedule":            {with(`,"retry":{"schedule":["0.1s","90s"]}`), answer(500), again},
		"weeks":                   {with(`,"retry":"io","attempts":20,"deadline":"2000-03-01T00:00:00Z"`), answer(500), again},
		"ended_by_header":         {with(""), answer(500, "X-Async-Caller-Retry", "no"), "dead_letter rejected"},
		"retry_after":             {with(""), answer(429, "Retry-After", "120"), again},
		"retry_after_deadline":    {with(""), answer(429, "Retry-After", "900000"), again},
		"no_time":                 {with(late), answer(500), "dead_letter expired"},
		"no_time_with_callback":   {with(callback + late), failure(decision.FailureDNS), "callback expired"},
		"time_by_chance":          {with(`,"deadline":"2000-01-01T00:00:05Z"`), answer(500), again + " or dead_letter expired"},
		"cut_by_chance":           {with(`,"deadline":"2000-01-01T00:00:40Z","attempts":3`), answer(500), again},
		"exhausted":               {with(`,"retry":{"maxAttempts":1}`), answer(500), "dead_letter exhausted"},
		"rejected_drop":           {with(`,"giveUp":"drop"`), answer(400), "drop rejected"},
		"rejected_fault":          {with(`,"giveUp":"fault"`), answer(400), "fault rejected"},
		"early":                   {with(seen503 + `,"nextAttemptAt":"2000-01-01T00:00:30.5Z"`), answer(200), "reschedule not_due"},
		"expired":                 {with(`,"deadline":"2000-01-01T00:00:00Z"`), answer(200), "dead_letter expired"},
		"moved_back":              {with(`,"deadline":"1999-12-01T00:00:00Z"` + seen503 + letter), answer(500), again},
		"not_json":                {"hello", answer(200), "dead_letter malformed"},
		"bad_policy":              {with(`,"retry":{"factor":0.5}`), answer(200), "dead_letter malformed"},
		"interrupted":             {with(""), failure(decision.FailureInterrupted), "reschedule interrupted"},
		"bad_url":                 {with(""), failure(decision.FailureBadURL), "dead_letter bad_url"},
	} {
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
