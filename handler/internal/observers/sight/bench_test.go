package sight_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"asynccaller/handler/internal/storage/memory"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/rules/decision"
)

// BenchmarkObserve counts calls of one host, and of hosts that a sender invents.
func BenchmarkObserve(b *testing.B) {
	for _, hosts := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			c := sight.New(&memory.Table{}, app, "a", zerolog.Nop())
			c.IsOpen = func(*url.URL) bool { return false }
			reports := make([]*delivery.Report, hosts)
			for n := range reports {
				delivered := decision.Decision{Judged: decision.Delivered}
				reports[n] = report(fmt.Sprintf("invented-%d.example", n), delivered, &decision.Verdict{
					Outcome: &decision.Outcome{Status: 200, Took: time.Second},
				})
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
