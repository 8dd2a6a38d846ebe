package metrics_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/observers/metrics"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// BenchmarkObserve counts calls of one host, and of hosts that a sender invents.
func BenchmarkObserve(b *testing.B) {
	for _, hosts := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			c := metrics.NewCollector(nil, app, "a")
			reports := make([]*delivery.Report, hosts)
			for n := range reports {
				target := &url.URL{Scheme: "https", Host: fmt.Sprintf("invented-%d.example", n)}
				reports[n] = &delivery.Report{
					Result:  delivery.Result{Decision: decision.Decision{Outcome: decision.Delivered}},
					Intake:  &decision.Intake{Envelope: &envelope.Envelope{Call: envelope.Call{Target: target}}},
					Verdict: &decision.Verdict{Outcome: &decision.Outcome{Status: 200, Took: time.Second}},
					World:   decision.World{Now: time.Now()},
				}
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				c.Observe(reports[n%hosts])
				n++
			}
		})
	}
}
