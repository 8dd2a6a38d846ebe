package admission

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

const (
	// minTimeout is the shortest call whose timeout means that the target is down. A sender may ask for less.
	minTimeout = 10 * time.Second
	// The pause between two probes is a twentieth of the outage's age, from minDelay to maxProbePause. Each costs a
	// message one of its attempts, and so lengthens its back-off.
	probeShare    = 20
	maxProbePause = time.Minute
)

// Breakers is the gate that has the circuit breaker of each target. It is safe for concurrent use.
type Breakers struct {
	now func() time.Time
	log zerolog.Logger

	mu       sync.Mutex
	breakers *table[breaker]
}

// NewBreakers returns the circuit breakers of an instance. The log has a line about each that opens or closes.
func NewBreakers(now func() time.Time, log zerolog.Logger) *Breakers {
	return &Breakers{now: now, log: log, breakers: newTable((*breaker).atRest)}
}

// Enter implements [delivery.Gate]. While a breaker is open, it lets last attempts pass, and one call at a time as a
// probe.
func (b *Breakers) Enter(_ context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	settings, now, call := due.Intake.Profile.Breaker, b.now(), due.Intake.Envelope
	if settings.Off {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.breakers.get(due.Target, now)
	if e == nil {
		return nil, nil
	}
	isProbe := e.value.open && !due.LastAttempt
	if isProbe {
		backoff := time.Duration(0)
		if call.Attempts > 0 {
			backoff = due.Intake.Policy.Delay(call.Attempts, due.Jitter)
		}
		if delay := e.value.wait(settings, backoff, now, due.Jitter); delay > 0 {
			return nil, &decision.Verdict{Refusal: &decision.Refusal{
				Reason: decision.TargetDown, Detail: "the circuit breaker is open", Delay: delay,
			}}
		}
	}
	if delay := e.value.limitWait(now, due.Jitter); delay > 0 && !due.LastAttempt {
		return nil, busy("the target's rate limit", delay)
	}
	e.calls++
	e.value.probing = e.value.probing || isProbe
	return &watched{breakers: b, entry: e, due: due, isProbe: isProbe}, nil
}

// has reports whether a target has a circuit breaker: it is not turned off, and there was room for it.
func (b *Breakers) has(target string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.breakers.entries[target] != nil
}

// IsOpen reports whether the circuit breaker of a target is open.
func (b *Breakers) IsOpen(target *url.URL) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.breakers.entries[targets.Address(target)]
	return e != nil && e.value.open
}

// watched is a call whose outcome a circuit breaker counts.
type watched struct {
	breakers *Breakers
	entry    *entry[breaker]
	// due is the call, until it has ended.
	due *decision.Due
	// isProbe says that the call tests whether the target is up again.
	isProbe bool
}

// Ended implements [decision.Pass].
func (w *watched) Ended(o *decision.Outcome, at time.Time) {
	c := w.count(o, at)
	if o != nil {
		w.logChange(*o, c)
	}
	w.due = nil // its envelope takes memory
}

func (w *watched) count(o *decision.Outcome, at time.Time) (c change) {
	w.breakers.mu.Lock()
	defer w.breakers.mu.Unlock()
	w.entry.calls--
	if w.isProbe {
		w.entry.value.probing = false
	}
	if o != nil {
		c = w.entry.value.ended(w.due.Intake.Profile.Breaker, *o, at, w.isProbe)
	}
	return c
}

// Released implements [decision.Pass].
func (w *watched) Released(time.Time) {}

// logChange writes a line if the call has opened or closed the breaker.
func (w *watched) logChange(o decision.Outcome, c change) {
	if !c.opened && !c.closed {
		return
	}
	about := &logs.Message{
		Message: w.due.Message, Identity: w.due.Intake.Identity(), Tenant: w.due.Intake.Tenant,
		RequestID: w.due.Intake.RequestID,
	}
	switch {
	case c.opened:
		w.breakers.log.Warn().EmbedObject(about).Int(logs.Failures, c.failures).
			Str(logs.Reason, string(cmp.Or(decision.Reason(o.Failure), decision.Status))).Str(logs.Detail, o.Summary()).
			Msg("circuit breaker opened: messages for the target are rescheduled without a call, " +
				"except one at a time as a probe")
	case c.closed:
		w.breakers.log.Info().EmbedObject(about).Int64(logs.Down, logs.Millis(c.down)).
			Msg("circuit breaker closed: the target is up again")
	}
}

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

// change is a change of a circuit breaker's state. The zero value is none.
type change struct {
	opened, closed bool
	// failures are the failures in a row that opened the breaker.
	failures int
	// down is how long the target has been down.
	down time.Duration
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
func (b *breaker) ended(settings targets.Breaker, o decision.Outcome, now time.Time, probe bool) change {
	limitWait := min(o.LimitWait(now), decision.MaxSharedWait)
	if limitedUntil := now.Add(limitWait); limitWait > 0 && limitedUntil.After(b.limitedUntil) {
		b.limitedUntil = limitedUntil
	}
	switch judge(o) {
	case up:
		c := change{closed: b.open}
		if b.open {
			c.down = now.Sub(b.since)
		}
		*b = breaker{success: now, limitedUntil: b.limitedUntil}
		return c
	case down:
		return b.failed(settings, o, now, probe)
	case unknown:
	}
	return change{}
}

func (b *breaker) failed(settings targets.Breaker, o decision.Outcome, now time.Time, probe bool) (c change) {
	began := now.Add(-o.Took)
	if began.Before(b.success) {
		return c
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
		c = change{opened: true, failures: b.failures}
	}
	pause := min(o.AskedWait(now), decision.MaxSharedWait)
	if opens || probe {
		pause = max(pause, min(now.Sub(b.since)/probeShare, maxProbePause), settings.MinDelay)
	}
	if next := now.Add(pause); next.After(b.probeAt) {
		b.probeAt = next
	}
	return c
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
		decision.FailureCertificate, decision.FailureAuth:
		return unknown
	case "", decision.FailureRedirected:
	}
	switch o.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return down
	}
	return up
}
