package instance_test

import (
	"fmt"
	"net/url"
	"testing"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// TestRefusals: the counts say for which targets messages were refused, and their number is bounded.
func TestRefusals(t *testing.T) {
	const hosts = 500
	refusals := &instance.Refusals{}
	refuse := func(host string, reason decision.Reason) {
		e := &envelope.Envelope{Call: envelope.Call{Target: &url.URL{Scheme: "https", Host: host}}}
		refusals.Observe(&delivery.Report{
			Intake:  &decision.Intake{Envelope: e},
			Verdict: &decision.Verdict{Refusal: &decision.Refusal{Reason: reason, Detail: "share"}},
		})
	}
	for i := range hosts {
		refuse(fmt.Sprintf("t%d.example", i), decision.Busy)
		refuse(fmt.Sprintf("t%d.example", i), decision.Paused) // has lines of its own
	}
	counts, total := refusals.Take(), 0
	for refusal, n := range counts {
		total += n
		if refusal.Reason != decision.Busy || refusal.Detail != "share" {
			t.Errorf("%+v", refusal)
		}
	}
	others := instance.Refusal{Reason: decision.Busy, Detail: "share"}
	if total != hosts || len(counts) != 101 || counts[others] != hosts-100 {
		t.Errorf("%d refusals of %d targets, want %d of 100 and the others", total, len(counts), hosts)
	}
	if again := refusals.Take(); len(again) != 0 {
		t.Errorf("counted twice: %v", again)
	}
}
