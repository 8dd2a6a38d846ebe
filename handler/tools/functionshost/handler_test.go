package main

import (
	"testing"
	"time"
)

func TestRestartBudget(t *testing.T) {
	for name, test := range map[string]struct {
		limit int
		after []time.Duration // each error's time since the one before
		last  bool            // whether the last error allows a restart; all others do
	}{
		"first":               {3, []time.Duration{0}, true},
		"second":              {3, []time.Duration{0, time.Second}, true},
		"third":               {3, []time.Duration{0, time.Second, time.Second}, false},
		"third_in_the_window": {3, []time.Duration{0, 30 * time.Minute, 30 * time.Minute}, false},
		"forgotten":           {3, []time.Duration{0, 0, 31 * time.Minute, 0}, true},
		"after_forgotten":     {3, []time.Duration{0, 0, 31 * time.Minute, 0, 0}, false},
		"limit_of_one":        {1, []time.Duration{0}, false},
		"unlimited":           {-1, make([]time.Duration, 50), true},
	} {
		t.Run(name, func(t *testing.T) {
			budget := restartBudget{limit: test.limit}
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for n, after := range test.after {
				now = now.Add(after)
				want := n < len(test.after)-1 || test.last
				if got := budget.spend(now); got != want {
					t.Fatalf("error %d may restart: %v, want %v", n+1, got, want)
				}
			}
		})
	}
}
