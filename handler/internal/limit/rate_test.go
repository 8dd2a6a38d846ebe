package limit

import (
	"testing"
	"time"

	"asynccaller/handler/internal/targets"
)

// TestMissedTimeInALongQueue: a message that missed its time because the queue is long gets one at which it is here
// again. Otherwise it would miss that, too, and each time take the place of another message.
func TestMissedTimeInALongQueue(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct {
		late, back, want int
	}{
		"free at once":               {late: -10, back: 30, want: 0},
		"waits in the handler":       {late: 2, back: 30, want: 2},
		"free before it is back":     {late: 6, back: 30, want: 30},
		"free when it is back":       {late: 40, back: 30, want: 40},
		"after those that are early": {late: 200, back: 30, want: 100},
	} {
		r := rateRow{Next: at(100), Late: at(c.late)}
		m := &waiter{missed: true, back: at(c.back), deadline: at(3600)}
		got, ok := r.reserve(targets.Profile{Rate: 1, Burst: 1}, now, m)
		if !ok || !got.Equal(at(c.want)) {
			t.Errorf("%s: in %v (%v), want in %d s", name, got.Sub(now), ok, c.want)
		}
	}
}
