package record_test

import (
	"testing"
	"time"

	"asynccaller/handler/internal/record"
)

func TestStale(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		due, front time.Duration
		isDue      bool
		wantsStale bool
	}{
		"waiting":        {time.Second, 0, false, false},
		"due_now":        {0, 0, true, false},
		"just_due":       {-record.StaleAfter, 0, true, false},
		"gone":           {-record.StaleAfter - 1, 0, true, true},
		"overtaken":      {-24 * time.Hour, -23 * time.Hour, true, true},
		"behind_a_queue": {-24 * time.Hour, -24 * time.Hour, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			row := record.Scheduled{NextAttemptAt: now.Add(test.due)}
			if got := row.IsStale(now.Add(test.front)); got != test.wantsStale {
				t.Errorf("stale %t, want %t", got, test.wantsStale)
			}
			if got := row.IsDue(now); got != test.isDue {
				t.Errorf("due %t, want %t", got, test.isDue)
			}
		})
	}
}
