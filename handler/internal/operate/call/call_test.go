package call

import (
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/sight"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// newAccount returns the account of a test, whose app reads async-caller.
func newAccount(t *testing.T, store *memory.Queues) *account.Account {
	t.Helper()
	for _, name := range []string{"async-caller", "async-caller-poison"} {
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return &account.Account{
		Store: store, Name: "test", AppQueues: []string{"async-caller"}, Table: &memory.Table{},
		Rules: message.Rules{
			Encoding: storage.Base64,
			Decision: decision.Rules{Expiration: 168 * time.Hour, GiveUp: envelope.GiveUpDeadLetter},
		},
	}
}

// tracedEnvelope returns an envelope whose trace has a number.
func tracedEnvelope(id string, number int, more string) string {
	return fmt.Sprintf(`{"asyncCaller":1,"requestId":%q,"trace":{"traceparent":"00-%032x-00f067aa0ba902b7-01"},`+
		`"call":{"url":"https://t.example/orders/7"}%s}`, id, number, more)
}

// TestConcerns: a step of a run is about a call if it is about one of its messages, or about its request id and not
// about another trace.
func TestConcerns(t *testing.T) {
	rules := newAccount(t, memory.New()).Rules
	c := Call{finding: finding{trace: fmt.Sprintf("%032x", 1)}}
	c.ID, c.RequestID = "m1", "order-1"
	take := func(id string, number int) *journal.Take {
		return &journal.Take{
			Queue: "q", ID: id, Text: storage.Base64.Encode([]byte(tracedEnvelope("order-1", number, ""))),
		}
	}
	for name, test := range map[string]struct {
		step     journal.Step
		progress journal.Progress
		want     bool
	}{
		"taken":       {journal.Step{Take: take("m1", 2)}, journal.Progress{}, true},
		"written":     {journal.Step{Take: take("m2", 2)}, journal.Progress{NewID: "m1"}, true},
		"same_trace":  {journal.Step{Take: take("m2", 1), RequestID: "order-1"}, journal.Progress{}, true},
		"other_trace": {journal.Step{Take: take("m2", 2), RequestID: "order-1"}, journal.Progress{}, false},
		"no_text":     {journal.Step{Take: &journal.Take{ID: "m2"}, RequestID: "order-1"}, journal.Progress{}, true},
		"other_id":    {journal.Step{Take: take("m2", 1), RequestID: "order-2"}, journal.Progress{}, false},
		"no_id":       {journal.Step{Take: take("m2", 1)}, journal.Progress{}, false},
	} {
		if got := c.concerns(rules, test.step, test.progress); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestUnansweredAge: how long a call waits for its answer is said as of the time at which the row was written. A call
// that has failed keeps its age.
func TestUnansweredAge(t *testing.T) {
	now := time.Now()
	target := sight.Target{App: "app", Cause: "no answer yet: 1 call", Since: now.Add(-2 * time.Minute)}
	target.Reason, target.Latest, target.SeenAt = sight.NoAnswerYet, target.Since, now.Add(-100*time.Second)
	want := "no answer yet: 1 call, the oldest for 20s as of 1m40s ago"
	if got := CauseText(target, now); got != want {
		t.Errorf("cause %q", got)
	}
	if got := FailureText(target, now); got != want+" (app app)" {
		t.Errorf("failure %q", got)
	}
	target.SeenAt = target.Since.Add(-time.Second) // the clocks of storage and of the handler differ
	if got := CauseText(target, now); got != "no answer yet: 1 call, the oldest for 0s as of 2m1s ago" {
		t.Errorf("cause %q", got)
	}
	target.Reason, target.Cause = "timeout", "timeout"
	if got := FailureText(target, now); got != "since 2m ago, the last time 2m ago: timeout (app app)" {
		t.Errorf("failure %q", got)
	}
}
