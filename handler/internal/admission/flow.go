package admission

import (
	"math"
	"time"
)

// Bounds of the delay of a busy message.
const (
	minBusyDelay = time.Second
	maxBusyDelay = 15 * time.Minute
)

// flow estimates how fast the calls in flight free their slots, and has the line of messages that were refused.
type flow struct {
	line line
	// began is the sum of the times at which the calls in flight began, in Unix milliseconds, which never overflows.
	began int64
	// mean is the moving average of the time that a call held its slot, in seconds.
	mean float64
}

// meanWeight is the weight of the latest call in the average.
const meanWeight = 1.0 / 8

func (f *flow) begin(at time.Time) { f.began += at.UnixMilli() }

func (f *flow) end(began, now time.Time) {
	f.began -= began.UnixMilli()
	held := now.Sub(began).Seconds()
	if f.mean == 0 {
		f.mean = held
	}
	f.mean += meanWeight * (held - f.mean)
}

// pace returns how many slots become free in a second, if the flow has a limit. The age of the calls in flight shows a target
// that hangs before the first of them has ended.
func (f *flow) pace(calls, limit int, now time.Time) float64 {
	const shortest = 0.001 // seconds
	age := 0.0
	if calls > 0 {
		age = (float64(now.UnixMilli()) - float64(f.began)/float64(calls)) / 1000
	}
	return float64(max(limit, 1)) / max(f.mean, age, shortest)
}

// line is the line of messages that were rescheduled because there was no slot. They are spread over the time in which
// slots become free, so that each is rescheduled once as a rule.
type line struct {
	// places is how many messages were in the line at the time at. The line moves on by itself, at the pace at which slots
	// become free.
	places float64
	at     time.Time
}

// admit returns zero if a message may take the slot, if there is one, or when the message should come back: its place in the
// line divided by the pace at which slots become free, varied by a tenth either way. A message that has not waited yet
// does not overtake those that have.
//
// With exactly that pace slots would remain unused, because messages do not come back exactly when a slot is free. So the line
// moves faster, by the square-root rule for the staffing of a service with random arrivals. Messages beyond the longest delay come
// back in its second half, and join again.
func (l *line) admit(slot, waited bool, pace float64, limit int, now time.Time, jitter float64) time.Duration {
	pace *= 1 + 1/math.Sqrt(float64(max(limit, 1)))
	l.places = max(0, l.places-now.Sub(l.at).Seconds()*pace)
	l.at = now
	if slot && (waited || l.places < 1) {
		return 0
	}
	l.places++
	seconds := l.places / pace * (0.9 + 0.2*jitter)
	if longest := maxBusyDelay.Seconds(); l.places/pace > longest {
		l.places = longest * pace
		seconds = longest * (0.5 + 0.5*jitter)
	}
	return max(min(time.Duration(seconds*float64(time.Second)), maxBusyDelay), minBusyDelay)
}
