package record_test

import (
	"testing"
	"time"

	"asynccaller/handler/internal/observers/record"
)

// TestPresence: no message is gone before the longest time has passed for which a host, or hold mode, can have it.
func TestPresence(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		due, front time.Duration
		isDue      bool
		want       record.Presence
	}{
		"waiting":        {time.Second, 0, false, record.Expected},
		"due_now":        {0, 0, true, record.Expected},
		"just_due":       {-record.OverdueAfter, 0, true, record.Expected},
		"overdue":        {-record.OverdueAfter - 1, 0, true, record.Unseen},
		"leased":         {-10 * time.Minute, 0, true, record.Unseen},
		"lease_renewed":  {-15 * time.Minute, 0, true, record.Unseen},
		"held_after":     {-record.LongestInvisible, 0, true, record.Unseen},
		"gone":           {-record.LongestInvisible - 1, 0, true, record.Gone},
		"overtaken":      {-24 * time.Hour, -23 * time.Hour, true, record.Gone},
		"behind_a_queue": {-24 * time.Hour, -24 * time.Hour, true, record.Expected},
		"far_behind":     {-24 * time.Hour, -24*time.Hour + 10*time.Minute, true, record.Unseen},
	} {
		t.Run(name, func(t *testing.T) {
			row := record.Row{NextAttemptAt: now.Add(test.due)}
			if got := row.Presence(now.Add(test.front)); got != test.want {
				t.Errorf("presence %d, want %d", got, test.want)
			}
			if got := row.IsDue(now); got != test.isDue {
				t.Errorf("due %t, want %t", got, test.isDue)
			}
		})
	}
}
