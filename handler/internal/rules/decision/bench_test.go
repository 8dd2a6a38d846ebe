package decision_test

import (
	"net/http"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
)

// BenchmarkDecide opens a message and decides about a delivered and a failed call.
func BenchmarkDecide(b *testing.B) {
	rules := decision.Rules{Expiration: 7 * 24 * time.Hour, GiveUp: envelope.GiveUpDeadLetter, Retry: retry.Default()}
	content := []byte(`{"asyncCaller":1,"requestId":"r1","createdAt":"2026-01-31T11:00:00Z",` +
		`"call":{"url":"https://target.example/"}}`)
	for name, outcome := range map[string]decision.Outcome{
		"delivered": {Status: http.StatusOK, Took: time.Millisecond},
		"reschedule": {
			Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"120"}},
			Took: time.Millisecond,
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				in := rules.Open(content, "id", limit, now)
				if !rules.IsDue(&in, world(0.5)) {
					b.Fatal("not called")
				}
				rules.Decide(&in, &decision.Verdict{Outcome: &outcome}, world(0.5))
			}
		})
	}
}
