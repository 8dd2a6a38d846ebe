package listener

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

const hourly = "0 0 * * * *"

// clockTest is a clock in a synctest bubble, and the runs that it began.
type clockTest struct {
	*Clock
	begin   time.Time
	leave   context.CancelFunc
	running sync.WaitGroup
	log     strings.Builder // read it after the stop
	do      work

	mu       sync.Mutex
	at       []time.Duration // since begin
	together int             // runs in flight
}

// newClockTest returns a clock whose bubble begins at 2000-01-01, a Saturday.
func newClockTest(t *testing.T, schedule string, do work) *clockTest {
	t.Helper()
	c := &clockTest{begin: time.Now(), do: do}
	timer := functionapp.Timer{Name: "TimerFn", Binding: "timer", Schedule: schedule}
	invoke := func(ctx context.Context, _, _ time.Time) Result { return c.invoked(ctx, t) }
	var err error
	c.Clock, err = NewClock(timer, invoke, zerolog.New(&c.log))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *clockTest) invoked(ctx context.Context, t *testing.T) Result {
	t.Helper()
	c.mu.Lock()
	c.at = append(c.at, time.Since(c.begin))
	c.together++
	if c.together > 1 {
		t.Errorf("%d runs at a time", c.together)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.together--
	}()
	return c.do(ctx, storage.Message{})
}

func (c *clockTest) start() {
	ctx, leave := context.WithCancel(context.Background())
	c.leave = leave
	c.running.Go(func() { c.Run(ctx, context.Background()) })
}

func (c *clockTest) stop() {
	c.leave()
	c.running.Wait()
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
				c := newClockTest(t, test.schedule, test.do)
				c.timer.RunOnStartup = test.onStartup
				c.start()
				pass(test.during)
				c.stop()
				if diff := cmp.Diff(test.want, c.at); diff != "" {
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
		c := newClockTest(t, hourly, func(context.Context, storage.Message) Result {
			runs++
			if runs == 1 {
				return Failed
			}
			return Succeeded
		})
		c.start()
		pass(2*time.Hour + time.Minute)
		c.stop()
		if diff := cmp.Diff([]time.Duration{time.Hour, 2 * time.Hour}, c.at); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		if got := c.log.String(); strings.Count(got, `"level":"warn"`) != 1 {
			t.Errorf("log:\n%s", got)
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
