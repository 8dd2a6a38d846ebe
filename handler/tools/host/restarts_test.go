package host

import (
	"testing"
	"time"
)

func TestEnding_isError(t *testing.T) {
	for _, test := range []struct {
		how  ending
		code int
		want bool
	}{
		{exited, 0, false},
		{exited, 200, false},
		{exited, 1, true},
		{exited, -1, true}, // a signal
		{neverReady, -1, true},
		{condemned, -1, false},
		{condemned, 1, false},
		{hostStopped, 1, false},
	} {
		if got := test.how.isError(test.code); got != test.want {
			t.Errorf("ending %d with code %d is an error: %v, want %v", test.how, test.code, got, test.want)
		}
	}
}

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
