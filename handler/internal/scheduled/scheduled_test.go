package scheduled_test

import (
	"testing"
	"time"

	"asynccaller/handler/internal/scheduled"
)

func TestStale(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		due        time.Duration
		empty      bool
		isDue      bool
		wantsStale bool
	}{
		"waiting":        {time.Second, true, false, false},
		"due_now":        {0, true, true, false},
		"just_due":       {-scheduled.StaleAfter, true, true, false},
		"gone":           {-scheduled.StaleAfter - 1, true, true, true},
		"behind_a_queue": {-24 * time.Hour, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			row := scheduled.Row{NextAttemptAt: now.Add(test.due)}
			if got := row.IsStale(now, test.empty); got != test.wantsStale {
				t.Errorf("stale %t, want %t", got, test.wantsStale)
			}
			if got := row.IsDue(now); got != test.isDue {
				t.Errorf("due %t, want %t", got, test.isDue)
			}
		})
	}
}
