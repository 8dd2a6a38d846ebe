package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
)

// clock runs one timer function on its schedule, one run at a time. A time that passes during a run is skipped. After
// the machine was suspended, the next run is late.
type clock struct {
	timer    functionapp.Timer
	schedule schedule
	invoke   func(context.Context, invocation) outcome
	log      zerolog.Logger
}

// CheckTimers reports the timers whose schedule is invalid. Each problem names the file.
func CheckTimers(app *functionapp.App) error {
	if app == nil {
		return nil
	}
	_, err := clocks(app.Timers)
	return err
}

// clocks returns a clock for each timer. The error joins all problems.
func clocks(timers []functionapp.Timer) ([]*clock, error) {
	var all []*clock
	var problems []error
	for _, timer := range timers {
		parsed, err := parseSchedule(timer.Schedule)
		if err != nil { // show the schedule as written: a setting that it names may be secret
			problems = append(problems, fmt.Errorf("%s/function.json: schedule %q: %w", timer.Name, timer.ScheduleAsWritten, err))
		}
		all = append(all, &clock{timer: timer, schedule: parsed})
	}
	return all, errors.Join(problems...)
}

// run follows the schedule until stopping is closed, and returns when no run is in flight. The end of ctx
// cuts a run short.
func (c *clock) run(ctx context.Context, stopping <-chan struct{}) {
	status := scheduleStatus{next: c.schedule.after(time.Now().UTC())}
	if c.timer.RunOnStartup && !closed(stopping) {
		status = c.fire(ctx, status)
	}
	for !status.next.IsZero() && pause(time.Until(status.next), stopping) && !closed(stopping) {
		status = c.fire(ctx, status)
	}
}

// fire makes one run and returns the schedule's state after it.
func (c *clock) fire(ctx context.Context, status scheduleStatus) scheduleStatus {
	begin := time.Now().UTC().Round(0)
	stored := &status
	if c.schedule.frequent {
		stored = nil
	}
	out := c.invoke(ctx, timerInvocation(c.timer, stored, begin, uuid.NewString()))
	after := scheduleStatus{last: begin, next: c.schedule.after(begin)}
	if ended := time.Now().UTC().Round(0); !after.next.After(ended) { // the time passed during the run
		after.next = c.schedule.after(ended)
	}
	if out == failed {
		c.log.Warn().Time("next", after.next).Msg("timer run failed: the next run is at the next scheduled time")
	}
	return after
}
