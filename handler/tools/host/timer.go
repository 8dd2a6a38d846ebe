package host

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
)

const (
	// timerTime is how Newtonsoft.Json writes a DateTime of a host whose time zone is UTC: no zeros at the
	// end of the fraction, and the offset in digits.
	timerTime = "2006-01-02T15:04:05.9999999-07:00"
	// longestNap bounds one wait of a clock. The wait does not go on while a laptop sleeps and knows
	// nothing of a clock that was set, so the time of day is looked at again.
	longestNap = time.Minute
)

// scheduleStatus is what the real host remembers of a timer.
type scheduleStatus struct {
	last time.Time // when the latest run began; zero before the first
	next time.Time // when the run is due that is to come or under way
}

// body encodes the invocation of a timer. A local timer is never past due.
func (s scheduleStatus) body(timer functionapp.Timer, now time.Time, randGUID string) []byte {
	last := s.last.UTC().Format(timerTime)
	b := append([]byte(nil), `{"Data":{`...)
	b = appendString(b, timer.Binding)
	b = append(b, `:{"Schedule":{"AdjustForDST":true},"ScheduleStatus":{"Last":`...)
	b = appendString(b, last)
	b = append(b, `,"Next":`...)
	b = appendString(b, s.next.UTC().Format(timerTime))
	b = append(b, `,"LastUpdated":`...)
	b = appendString(b, last)
	b = append(b, `},"IsPastDue":false}},"Metadata":{"sys":`...)
	b = append(b, sysMetadata(timer.Name, now, randGUID)...)
	return append(b, `}}`...)
}

// invokeTimer has the handler run a timer function. It returns when the run is over, at the latest when
// ctx has ended.
func (i *invoker) invokeTimer(ctx context.Context, timer functionapp.Timer, status scheduleStatus) outcome {
	return i.run(ctx, trigger{
		function: timer.Name,
		reason:   "Timer fired at " + time.Now().UTC().Format(timerTime),
		body: func(now time.Time, randGUID string) ([]byte, error) {
			return status.body(timer, now, randGUID), nil
		},
	})
}

// clock runs one timer function at its times. It does nothing else while a run is under way, so there
// are never two, and a time that comes meanwhile is passed over.
type clock struct {
	timer  functionapp.Timer
	invoke func(context.Context, functionapp.Timer, scheduleStatus) outcome
	counts *counters
	log    zerolog.Logger
}

// run follows the schedule until stopping is closed, and returns when no run is under way any more. The
// end of ctx cuts a run short.
func (c *clock) run(ctx context.Context, stopping <-chan struct{}) {
	status := scheduleStatus{next: c.timer.Schedule.Next(wallClock())}
	if c.timer.RunOnStartup && !closed(stopping) {
		status = c.fire(ctx, status)
	}
	for pauseUntil(status.next, stopping) && !closed(stopping) {
		status = c.fire(ctx, status)
	}
}

// fire makes one run and returns what is known after it.
func (c *clock) fire(ctx context.Context, status scheduleStatus) scheduleStatus {
	begin := wallClock()
	out := c.invoke(ctx, c.timer, status)
	c.counts.countInvocation(c.timer.Name, out)
	after := scheduleStatus{last: begin, next: upcoming(c.timer.Schedule, begin, wallClock())}
	if out == failedTry {
		c.log.Warn().Time("next", after.next).Msg("timer run failed: it is run again at its next time")
	}
	return after
}

// upcoming is when a timer runs next whose latest run began and ended at these times. An interval counts
// from the beginning, unless it is over by the end.
func upcoming(schedule functionapp.Schedule, began, ended time.Time) time.Time {
	if next := schedule.Next(began); next.After(ended) {
		return next
	}
	return schedule.Next(ended)
}

// wallClock is the time of day, without the clock that stands still while the machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// pauseUntil waits for a time of day and reports whether it came, rather than the signal. The zero time
// never comes.
func pauseUntil(when time.Time, signal <-chan struct{}) bool {
	if when.IsZero() {
		<-signal
		return false
	}
	for now := wallClock(); now.Before(when); now = wallClock() {
		if !pause(min(when.Sub(now), longestNap), signal) {
			return false
		}
	}
	return true
}
