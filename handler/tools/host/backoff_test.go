package host

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBackoff(t *testing.T) {
	for name, test := range map[string]struct {
		longest time.Duration
		random  float64
		want    []int // milliseconds
	}{
		"middle":      {time.Minute, 0.5, []int{100, 200, 300, 500, 900, 1700, 3300, 6500, 12900, 25700, 51300, 60000, 60000}},
		"low":         {time.Minute, 0, []int{100, 180, 260, 420, 740}},
		"high":        {time.Minute, 1, []int{100, 220, 340, 580, 1060}},
		"development": {2 * time.Second, 0.5, []int{100, 200, 300, 500, 900, 1700, 2000, 2000}},
		"shortest":    {shortestPoll, 0.5, []int{100, 100, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			b := backoff{longest: test.longest}
			for round := range 2 {
				var got []int
				for range test.want {
					got = append(got, int(b.next(test.random).Round(time.Millisecond)/time.Millisecond))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("round %d (-want +got):\n%s", round, diff)
				}
				b.found()
			}
		})
	}
}

// Once at the longest wait it stays there, whatever the random number, and for ever.
func TestBackoff_stays_capped(t *testing.T) {
	b := backoff{longest: 2 * time.Second}
	for range 10 {
		b.next(1)
	}
	for n := range 10_000 {
		if got := b.next(0); got != b.longest {
			t.Fatalf("wait %d is %v, want %v", n, got, b.longest)
		}
	}
}

func TestPollLimit(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0:                2 * time.Second,
		time.Minute:      2 * time.Second,
		time.Second:      time.Second,
		30 * time.Second: 30 * time.Second,
		time.Hour:        time.Hour,
	} {
		if got := pollLimit(asked); got != want {
			t.Errorf("pollLimit(%v) = %v, want %v", asked, got, want)
		}
	}
}
