package functionshost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/robfig/cron/v3"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
)

// clock invokes one timer function on its schedule, one invocation at a time. A time that passes during an invocation
// is skipped. After the machine was suspended, the next invocation is late.
type clock struct {
	timer    functionapp.Timer
	schedule *cron.SpecSchedule
	invoke   func(context.Context, invocation) result
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
		schedule, err := functionapp.ParseCron(timer.Schedule)
		if err != nil { // show the schedule as written: a setting that it names may be secret
			err = fmt.Errorf("%s/function.json: schedule %q: %w; the local host runs no intervals",
				timer.Name, timer.ScheduleAsWritten, err)
			problems = append(problems, err)
		}
		all = append(all, &clock{timer: timer, schedule: schedule})
	}
	return all, errors.Join(problems...)
}

// run follows the schedule until stopping is closed, and returns when no invocation is in flight. The end of ctx cuts
// one short.
func (c *clock) run(ctx context.Context, stopping <-chan struct{}) {
	if c.timer.RunOnStartup && !closed(stopping) {
		c.fire(ctx)
	}
	for !closed(stopping) {
		next := c.schedule.Next(time.Now())
		if next.IsZero() || !pause(time.Until(next), stopping) { // zero: it does not come within five years
			return
		}
		c.fire(ctx)
	}
}

// fire invokes the function once.
func (c *clock) fire(ctx context.Context) {
	if c.invoke(ctx, timerInvocation(c.timer, time.Now(), uuid.NewString())) == failed {
		c.log.Warn().Msg("timer function failed: its next invocation is at the next scheduled time")
	}
}
