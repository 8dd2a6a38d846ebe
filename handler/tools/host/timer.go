package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/robfig/cron/v3"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
)

// clock runs one timer function on its schedule, one run at a time. A time that passes during a run is skipped. After
// the machine was suspended, the next run is late.
type clock struct {
	timer    functionapp.Timer
	schedule *cron.SpecSchedule
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
		schedule, err := parseSchedule(timer.Schedule)
		if err != nil { // show the schedule as written: a setting that it names may be secret
			err = fmt.Errorf("%s/function.json: schedule %q: %w", timer.Name, timer.ScheduleAsWritten, err)
			problems = append(problems, err)
		}
		all = append(all, &clock{timer: timer, schedule: schedule})
	}
	return all, errors.Join(problems...)
}

var errSchedule = errors.New(`it is not an NCRONTAB expression of 5 or 6 fields, such as "0 0 * * * *"; ` +
	"the local host runs no intervals, and knows names of months and days by three letters")

// parseSchedule reads an NCRONTAB expression (docs/host.md, "Timers"). The error does not repeat the schedule, which
// may come from a setting.
func parseSchedule(text string) (*cron.SpecSchedule, error) {
	if strings.Contains(text, "=") { // a time zone, with which the library panics if nothing follows
		return nil, errSchedule
	}
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	parsed, err := parser.Parse(text)
	schedule, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, errSchedule
	}
	const star = 1 << 63 // the library's mark of a day field that is *; without it, one matching day field is enough
	schedule.Dom |= star
	schedule.Location = time.UTC
	return schedule, nil
}

// run follows the schedule until stopping is closed, and returns when no run is in flight. The end of ctx
// cuts a run short.
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

// fire makes one run.
func (c *clock) fire(ctx context.Context) {
	if c.invoke(ctx, timerInvocation(c.timer, time.Now(), uuid.NewString())) == failed {
		c.log.Warn().Msg("timer run failed: the next run is at the next scheduled time")
	}
}
