package admission

import (
	"time"

	"golang.org/x/time/rate"

	"asynccaller/handler/internal/targets"
)

// Bounds of the delay of a busy message.
const (
	minBusyDelay = time.Second
	maxBusyDelay = 15 * time.Minute
)

// flow estimates how fast the calls in flight free their slots, and keeps the line of messages that were refused.
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

// wait returns when a message should come back: its place in the line times the mean duration of a call, divided by
// the number of calls in flight. The age of the calls in flight shows a target that hangs before the first of them has ended.
func (f *flow) wait(calls int, now time.Time, jitter float64) time.Duration {
	const shortest = 0.001 // seconds
	age, share := 0.0, max(float64(calls), 1)
	if calls > 0 {
		age = (float64(now.UnixMilli()) - float64(f.began)/share) / 1000
	}
	return f.line.join(share/max(f.mean, age, shortest), now, jitter)
}

// rateWait takes a token of the profile's rate. If there is none, it returns when the message should come back.
func (l *limit) rateWait(p targets.Profile, now time.Time, jitter float64) time.Duration {
	if l.rate == nil {
		l.rate = rate.NewLimiter(p.Rate, p.Burst)
	}
	if l.rate.AllowN(now, 1) {
		return 0
	}
	return l.rateLine.join(float64(p.Rate), now, jitter)
}

// line is the line of messages that were rescheduled because there was no slot. They are spread over the time in which
// slots become free, so that each is rescheduled once as a rule.
type line struct {
	// places is how many messages were in the line at the time at. The line moves on by itself, at the pace at which slots
	// become free.
	places float64
	at     time.Time
}

// join adds a message to a line that moves pace places a second, and returns when it is the message's turn, varied by a
// tenth either way. Messages beyond the longest delay come back in its second half, and join again.
func (l *line) join(pace float64, now time.Time, jitter float64) time.Duration {
	l.places = max(0, l.places-now.Sub(l.at).Seconds()*pace) + 1
	l.at = now
	seconds := l.places / pace * (0.9 + 0.2*jitter)
	if longest := maxBusyDelay.Seconds(); l.places/pace > longest {
		l.places = longest * pace
		seconds = longest * (0.5 + 0.5*jitter)
	}
	return max(min(time.Duration(seconds*float64(time.Second)), maxBusyDelay), minBusyDelay)
}
