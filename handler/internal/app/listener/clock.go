package listener

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

// Clock invokes one timer function on its schedule, one invocation at a time. A time that passes during an invocation
// is skipped. After the machine was suspended, the next invocation is late. Create it with [NewClock].
type Clock struct {
	timer    functionapp.Timer
	schedule *cron.SpecSchedule
	invoke   func(ctx context.Context, due, next time.Time) Result
	log      zerolog.Logger
}

// NewClock returns a clock that does not run yet. It invokes the function with the time at which it is due, and the
// next one. The error names the file of an invalid schedule, or of an interval.
func NewClock(
	timer functionapp.Timer, invoke func(ctx context.Context, due, next time.Time) Result, log zerolog.Logger,
) (*Clock, error) {
	schedule, err := functionapp.ParseCron(timer.Schedule)
	if err != nil { // show the schedule as written: a setting that it names may be secret
		return nil, fmt.Errorf("%s/function.json: schedule %q: %w", timer.Name, timer.ScheduleAsWritten, err)
	}
	return &Clock{timer, schedule, invoke, log.With().Str("function", timer.Name).Logger()}, nil
}

// Run follows the schedule until ctx ends, and returns when no invocation is in flight. The end of invocations, which
// outlives ctx, cuts one short.
func (c *Clock) Run(ctx, invocations context.Context) {
	if c.timer.RunOnStartup && ctx.Err() == nil {
		c.fire(invocations, time.Now())
	}
	for ctx.Err() == nil {
		next := c.schedule.Next(time.Now())
		if next.IsZero() || !storage.Sleep(ctx, time.Until(next)) { // zero: it does not come within five years
			return
		}
		c.fire(invocations, next)
	}
}

// fire invokes the function once.
func (c *Clock) fire(ctx context.Context, due time.Time) {
	if c.invoke(ctx, due, c.schedule.Next(due)) == Failed {
		c.log.Warn().Msg("timer function failed: its next invocation is at the next scheduled time")
	}
}
