package admission

import (
	"math"
	"time"

	"asynccaller/handler/internal/plain/bounds"
)

// Bounds of the delay of a busy message.
const (
	minBusyDelay = time.Second
	maxBusyDelay = 15 * time.Minute
)

// overbooking is how many more messages than slots come back, as a multiple of the square root of the limit. It uses 79
// to 94 % of the slots in the simulation of a backlog, for 1.1 to 1.7 reschedules a message (handler/tools/simulation).
const overbooking = 2.5

// flow estimates how fast the calls in flight free their slots, and has the line of messages that were refused.
type flow struct {
	line line
	// began is the sum of the times at which the calls in flight began, in Unix milliseconds, which never overflows.
	began int64
	// mean is the moving average of the duration of a call, in seconds.
	mean float64
	// trust is that of a target over all functions.
	trust trust
}

// atRest reports whether the flow is as if it were new, but for what is an estimate, the mean duration and whether a
// target hangs or answers: no message waits for its turn, and the target is not trusted.
func (f *flow) atRest(now time.Time) bool {
	return !f.line.until.After(now) && !f.trust.answeredLately(now)
}

// meanWeight is the weight of the latest call in the average.
const meanWeight = 1.0 / 8

func (f *flow) begin(at time.Time) { f.began += at.UnixMilli() }

func (f *flow) leave(began time.Time) { f.began -= began.UnixMilli() }

func (f *flow) took(d time.Duration) {
	if f.mean == 0 {
		f.mean = d.Seconds()
	}
	f.mean += meanWeight * (d.Seconds() - f.mean)
}

// pace returns how many slots become free in a second, if the flow has a limit. The age of the calls in flight shows a
// target that hangs before the first of them has ended.
func (f *flow) pace(calls, limit int, now time.Time) float64 {
	age := 0.0
	if calls > 0 {
		age = (float64(now.UnixMilli()) - float64(f.began)/float64(calls)) / 1000
	}
	return paceOf(limit, max(f.mean, age))
}

// paceOf returns how many of so many slots become free in a second, if each is held for so many seconds.
func paceOf(slots int, held float64) float64 {
	const shortest = 0.001
	return float64(max(slots, 1)) / max(held, shortest)
}

// line is the line of messages that were rescheduled because there was no slot. They come back spread over the time in
// which slots become free, so that each is rescheduled once as a rule.
type line struct {
	// places is how many messages were in the line at the time at, until is when it is the turn of the last of them.
	places    float64
	at, until time.Time
}

// queueDelay adds a message to the line of a limit for which pace slots a second become free. It returns when it is the
// message's turn, varied by a quarter and 2 s either way: storage counts whole seconds, so messages that were refused
// together would otherwise come back together. Messages beyond the longest delay come back in its second half, and
// queueDelay again.
//
// The line moves faster than that, by a square root as for the staffing of a service with random arrivals: messages do
// not come back exactly when a slot is free, and a slot that waits for its message is lost. If the pace rises, new
// messages do not wait for those that have got a late turn; if it falls, those that are on their way are not counted
// again at the slower pace.
func (l *line) queueDelay(pace float64, limit int, now time.Time, jitter float64) time.Duration {
	pace *= 1 + overbooking/math.Sqrt(float64(max(limit, 1)))
	if left := l.until.Sub(now); left > 0 {
		l.places *= left.Seconds() / l.until.Sub(l.at).Seconds()
	} else {
		l.places, l.until = 0, now
	}
	l.places++
	l.at = now
	turn := min(l.until.Sub(now).Seconds()+1/pace, l.places/pace)
	delay := turn + (2*jitter-1)*(turn/4+2)
	longest := maxBusyDelay.Seconds()
	if turn > longest {
		turn, delay = longest, longest*(0.5+0.5*jitter)
	}
	if end := now.Add(bounds.Seconds(turn)); end.After(l.until) {
		l.until = end
	}
	return max(min(bounds.Seconds(delay), maxBusyDelay), minBusyDelay)
}
