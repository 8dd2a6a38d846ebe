package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// gate is a gate that says what it is told. Unless the verdict is nil, no call passes.
type gate struct {
	name    string
	verdict *decision.Verdict
	told    *[]string
}

func (g gate) Enter(context.Context, *decision.Due) (decision.Pass, *decision.Verdict) {
	*g.told = append(*g.told, "enter "+g.name)
	return g, g.verdict
}

func (g gate) Ended(o *decision.Outcome, _ time.Time) {
	what := "not made"
	if o != nil {
		what = o.Summary()
	}
	*g.told = append(*g.told, fmt.Sprintf("ended %s: %s", g.name, what))
}

func (g gate) Released(time.Time) { *g.told = append(*g.told, "released "+g.name) }

// TestGates: each gate that has let a call pass is told both ends, the last one first: also if a later gate stops the
// call, the call panics, or the message cannot be settled. What a gate says decides what becomes of the message.
func TestGates(t *testing.T) {
	busy := &decision.Verdict{Refusal: &decision.Refusal{Reason: decision.Busy, Delay: 40 * time.Second}}
	refused := &decision.Verdict{Outcome: &decision.Outcome{Failure: decision.FailureTargetRefused}}
	stopped := []string{
		"enter a", "enter b", "enter c", "ended b: not made", "ended a: not made", "released b", "released a",
	}
	called := func(what string) []string {
		return []string{
			"enter a", "enter b", "enter c", "ended c: " + what, "ended b: " + what, "ended a: " + what,
			"released c", "released b", "released a",
		}
	}
	for name, test := range map[string]struct {
		verdict *decision.Verdict
		answer  func(context.Context, *envelope.Envelope) decision.Outcome
		faults  []string
		told    []string
		reason  decision.Reason
	}{
		"delivered": {told: called("answered 200"), reason: decision.Delivered},
		"not_settled": {
			answer: func(context.Context, *envelope.Envelope) decision.Outcome { return decision.Outcome{Status: 503} },
			faults: []string{"refused"}, told: called("answered 503"), reason: decision.Status,
		},
		"panic": {
			answer: func(context.Context, *envelope.Envelope) decision.Outcome { panic("a call") },
			told:   called("not made"),
		},
		"refused": {verdict: busy, told: stopped, reason: decision.Busy},
		"outcome": {verdict: refused, told: stopped, reason: decision.Reason(decision.FailureTargetRefused)},
		"delivered_before": {
			verdict: &decision.Verdict{Delivered: midnight}, told: stopped, reason: decision.Duplicate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := answers(decision.Outcome{Status: 200})
				if test.answer != nil {
					called.answer = test.answer
				}
				b := setup(t, called)
				b.store.faults["put"] = test.faults
				var told []string
				b.connect.Do(func() {}) // these gates alone
				b.Gates = []delivery.Gate{
					gate{"a", nil, &told}, gate{"b", nil, &told}, gate{"c", test.verdict, &told},
				}
				var result *delivery.Result
				func() {
					defer func() { _ = recover() }()
					result = b.deliver(plain)
				}()
				if diff := cmp.Diff(test.told, told); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if result != nil && (result.Reason != test.reason || (result.Err == nil) != (test.faults == nil)) {
					t.Errorf("%s, %v, want %s, faults %v", result.Reason, result.Err, test.reason, test.faults)
				}
			})
		})
	}
}
