package admission

import (
	"net/http"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/targets"
)

const (
	// minTimeout is the shortest call whose timeout means that the target is down. A sender may ask for less.
	minTimeout = 10 * time.Second
	// The pause between two probes is a twentieth of the outage's age, from minDelay to maxProbePause. Each costs a
	// message one of its attempts, and so lengthens its back-off.
	probeShare    = 20
	maxProbePause = time.Minute
)

// breaker is the circuit breaker of a target. It is our own, because no library has all of this: outcomes that say
// nothing about the target, calls that go out although it is open, a wait that the target asks for, and the age of the
// outage.
type breaker struct {
	open bool
	// failures are those in a row, since is when the first of them began.
	failures int
	since    time.Time
	// success is when a call last succeeded. Calls that began before say nothing about the time after it.
	success time.Time
	// probeAt is when the next probe may begin while the breaker is open; probing says that one is in flight.
	probeAt time.Time
	probing bool
	// waitsUntil is when the last message comes back that the breaker has rescheduled, or could have.
	waitsUntil time.Time
	// limitedUntil is when calls may begin again although the target is up: it said that its rate limit is reached.
	limitedUntil time.Time
}

// atRest reports whether the breaker may be forgotten: it has seen no failure since the last success, or no message
// waits for it any more; and the target's rate limit is not reached.
func (b *breaker) atRest(now time.Time) bool {
	isUnused := !b.open && b.failures == 0 || !b.waitsUntil.After(now)
	return isUnused && !b.limitedUntil.After(now)
}

// longestWait is longer than the breaker ever reschedules a message.
func longestWait(settings targets.Breaker) time.Duration {
	return time.Duration((1 + decision.AskedWaitJitter) * float64(max(settings.MaxDelay, decision.MaxSharedWait)))
}

// Change is a change of a circuit breaker's state. The zero value is none.
type Change struct {
	Opened, Closed bool
	// IsOpen says that the breaker is open now.
	IsOpen bool
	// Failures are the failures in a row that opened the breaker.
	Failures int
	// Down is how long the target has been down.
	Down time.Duration
}

// wait returns when a message should come back while the breaker is open, or zero if its call may begin as a probe. The
// delay is half to all of the outage's age: the waits grow with it, and the messages spread. It is not shorter than the
// message's own back-off, so that messages late in their schedule do not come more often than without a breaker.
func (b *breaker) wait(settings targets.Breaker, backoff time.Duration, now time.Time, jitter float64) time.Duration {
	asked := b.probeAt.Sub(now)
	if asked <= 0 && !b.probing {
		return 0
	}
	b.waitsUntil = now.Add(longestWait(settings))
	delay := time.Duration((0.5 + 0.5*jitter) * float64(now.Sub(b.since)))
	delay = max(min(max(delay, backoff), settings.MaxDelay), settings.MinDelay)
	if asked > delay {
		delay = asked + time.Duration(decision.AskedWaitJitter*jitter*float64(asked))
	}
	return delay
}

// limitWait returns when a message should come back while the target's rate limit is reached, or zero if it is not.
func (b *breaker) limitWait(now time.Time, jitter float64) time.Duration {
	wait := b.limitedUntil.Sub(now)
	if wait <= 0 {
		return 0
	}
	return wait + time.Duration(decision.AskedWaitJitter*jitter*float64(wait))
}

// ended records the outcome of a call.
func (b *breaker) ended(settings targets.Breaker, o decision.Outcome, began, now time.Time, probe bool) Change {
	limitWait := min(o.LimitWait(now), decision.MaxSharedWait)
	if limitedUntil := now.Add(limitWait); limitWait > 0 && limitedUntil.After(b.limitedUntil) {
		b.limitedUntil = limitedUntil
	}
	switch judge(o) {
	case up:
		change := Change{Closed: b.open}
		if b.open {
			change.Down = now.Sub(b.since)
		}
		*b = breaker{success: now, limitedUntil: b.limitedUntil}
		return change
	case down:
		return b.failed(settings, o, began, now, probe)
	case unknown:
	}
	return Change{}
}

func (b *breaker) failed(
	settings targets.Breaker, o decision.Outcome, began, now time.Time, probe bool,
) (change Change) {
	if began.Before(b.success) {
		return change
	}
	if b.failures == 0 {
		b.since = began
	}
	b.failures++
	b.waitsUntil = now.Add(longestWait(settings))
	// A target that has just answered is not down: a gateway can fail for one of its paths and work for the others.
	opens := !b.open && b.failures >= settings.Failures && now.Sub(b.success) >= settings.MinDelay
	if opens {
		b.open = true
		change = Change{Opened: true, Failures: b.failures, Down: now.Sub(b.since)}
	}
	pause := min(o.AskedWait(now), decision.MaxSharedWait)
	if opens || probe {
		pause = max(pause, min(now.Sub(b.since)/probeShare, maxProbePause), settings.MinDelay)
	}
	if next := now.Add(pause); next.After(b.probeAt) {
		b.probeAt = next
	}
	return change
}

// state is what an outcome says about the target.
type state int

const (
	unknown state = iota
	up
	down
)

// judge says whether an outcome means that the target is up or down. Failures that depend on the call rather than on
// the target mean neither.
func judge(o decision.Outcome) state {
	switch o.Failure {
	case decision.FailureConnect, decision.FailureDNS, decision.FailureTLS, decision.FailureConnection:
		return down
	case decision.FailureTimeout:
		if o.Took >= minTimeout {
			return down
		}
		return unknown
	case decision.FailureInterrupted, decision.FailureBadURL, decision.FailureTargetRefused,
		decision.FailureCertificate:
		return unknown
	case "", decision.FailureRedirected:
	}
	switch o.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return down
	}
	return up
}
