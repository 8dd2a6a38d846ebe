package listener

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

const hourly = "0 0 * * * *"

// runClock runs a clock for a time in a synctest bubble, which begins at 2000-01-01, a Saturday. It returns when its
// runs began, and the log.
func runClock(t *testing.T, timer functionapp.Timer, do work, during time.Duration) (at []time.Duration, log string) {
	t.Helper()
	var lines strings.Builder
	begin := time.Now()
	timer.Name = "TimerFn"
	clock, err := NewClock(timer, func(ctx context.Context, _, _ time.Time) Result {
		at = append(at, time.Since(begin)) // a data race if two runs are in flight
		return do(ctx, storage.Message{})
	}, zerolog.New(&lines))
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithTimeout(t.Context(), during)
	defer leave()
	clock.Run(ctx, context.Background())
	return at, lines.String()
}

func TestClock(t *testing.T) {
	const minute, hour, day = time.Minute, time.Hour, 24 * time.Hour
	for name, test := range map[string]struct {
		schedule  string
		onStartup bool
		do        work
		during    time.Duration
		want      []time.Duration
	}{
		"hourly":             {hourly, false, takes(minute), 2*hour + minute, []time.Duration{hour, 2 * hour}},
		"on_startup":         {hourly, true, takes(minute), hour + minute, []time.Duration{0, hour}},
		"five_fields":        {"0 * * * *", false, takes(0), 61 * minute, []time.Duration{hour}},
		"names":              {"0 0 0 * Jan Tue", false, takes(0), 8 * day, []time.Duration{3 * day}},
		"long_names":         {"0 0 0 * January tuesday", false, takes(0), 8 * day, []time.Duration{3 * day}},
		"both_days_match":    {"0 0 12 1-7 * Mon", false, takes(0), 30 * day, []time.Duration{2*day + 12*hour}},
		"long_wait":          {"0 0 0 1 1 *", false, takes(0), 366*day + hour, []time.Duration{366 * day}},
		"never":              {"0 0 0 30 2 *", false, takes(0), 400 * day, nil},
		"longer_than_a_turn": {hourly, false, takes(70 * minute), 4 * hour, []time.Duration{hour, 3 * hour}},
		"exactly_a_turn":     {hourly, false, takes(hour), 4*hour + minute, []time.Duration{hour, 3 * hour}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer := functionapp.Timer{Schedule: test.schedule, RunOnStartup: test.onStartup}
				got, _ := runClock(t, timer, test.do, test.during)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("runs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A run that fails is logged and not repeated before its next time.
func TestClockFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		at, log := runClock(t, functionapp.Timer{Schedule: hourly}, func(context.Context, storage.Message) Result {
			runs++
			if runs == 1 {
				return Failed
			}
			return Succeeded
		}, 2*time.Hour+time.Minute)
		if diff := cmp.Diff([]time.Duration{time.Hour, 2 * time.Hour}, at); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		if strings.Count(log, `"level":"warn"`) != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// An error names the file, and shows no setting that the schedule names.
func TestNewClockRefusesIntervals(t *testing.T) {
	timer := functionapp.Timer{Name: "TimerFn", Schedule: "01:00:00", ScheduleAsWritten: "%EVERY%"}
	_, err := NewClock(timer, nil, zerolog.Nop())
	if err == nil || !strings.HasPrefix(err.Error(), `TimerFn/function.json: schedule "%EVERY%": `) ||
		strings.Contains(err.Error(), timer.Schedule) {
		t.Errorf("error %v, want one that shows what the file says", err)
	}
}
