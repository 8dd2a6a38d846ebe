package decision

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/retry"
)

// Action is what happens to a message. It is a closed set; each is settled in exactly one way.
type Action string

// The actions.
const (
	// Call: it is due, make the call. The only action that is not an end.
	Call Action = "call"
	// Finish: nothing has to be written.
	Finish Action = "finish"
	// Reschedule: write the successor with a delay.
	Reschedule Action = "reschedule"
	// Callback: tell the sender.
	Callback Action = "callback"
	// DeadLetter: write it to the poison queue for a person.
	DeadLetter Action = "dead_letter"
	// Drop: given up, and the operator or the sender wants nothing kept.
	Drop Action = "drop"
	// Fault: given up, and the host's own dequeue count and poison queue are to take it.
	Fault Action = "fault"
)

// Reason is why an action was chosen: one of those below or a [Failure]. It is a closed set.
type Reason string

// The reasons that are no failures of a call.
const (
	Delivered   Reason = "delivered"        // 2xx
	Status      Reason = "temporary_status" // the target answered, and may answer otherwise later
	NotDue      Reason = "not_due"          // nextAttemptAt or notBefore is in the future
	Due         Reason = "due"
	Interrupted        = Reason(FailureInterrupted)
	Rejected    Reason = "rejected"  // the target answered, and will not answer otherwise
	Expired     Reason = "expired"   // the deadline has passed or comes before the next attempt
	Exhausted   Reason = "exhausted" // the policy's attempts are used up
	Malformed   Reason = "malformed" // not an envelope
)

// lastAttemptLead is how long before the deadline a last attempt becomes due: longer than the host
// needs to notice a visible message (maxPollingInterval, 2 s, and rounding to whole seconds), so that
// it is not expired when it arrives.
const lastAttemptLead = 10 * time.Second

// Decision is what is to be done with a message.
type Decision struct {
	Action Action
	Reason Reason
	// Detail explains the reason in a few words, without URL, headers or bodies.
	Detail string
	// GivenUp says that we tried as long as we may, or were told that it never will work: the log says
	// so at error level.
	GivenUp bool
	// Delay is how long the successor stays invisible; at most Rules.MaxDelay.
	Delay time.Duration
	// Status is the target's latest answer, or 0.
	Status int
	// State is the envelope's state from now on.
	State envelope.State
	// CallbackDeadline is when the callback, if one is written, is given up itself.
	CallbackDeadline time.Time
	// Rule says which rule judged the call's outcome, or why there was no call.
	Rule string
	// Limited says which of the operator's limits changed the envelope's own policy, if any.
	Limited string
	// Ignored names what the target said about trying again that makes no sense.
	Ignored []string
}

// Rules is what the operator decided for every message.
type Rules struct {
	// Expiration is how long an envelope without a deadline is tried.
	Expiration time.Duration
	GiveUp     envelope.GiveUp
	// Retry is the policy of an envelope that asks for none.
	Retry retry.Policy
	// Policies are those that an envelope may ask for by name, beside the built-in ones; Limits is how
	// much it may ask for.
	Policies retry.Policies
	Limits   retry.Limits
	// Statuses are the answers that are tried again.
	Statuses Statuses
	// MaxDelay is the longest delay that the queue accepts; zero means no limit. A longer wait is made of
	// several delays.
	MaxDelay time.Duration
}

// delay returns the delay of a successor until the given time.
func (r Rules) delay(now, until time.Time) time.Duration {
	d := until.Sub(now)
	if r.MaxDelay > 0 {
		d = min(d, r.MaxDelay)
	}
	return d
}

// BeforeCall decides what to do with a message on arrival.
func (r Rules) BeforeCall(in Intake, now time.Time) Decision {
	if in.Malformed != nil {
		d := Decision{Action: DeadLetter, Reason: Malformed, Detail: in.Malformed.Error()}
		if in.Envelope != nil {
			d.State = in.Envelope.State
		}
		return d
	}
	e := in.Envelope
	deadline, due := e.GiveUpAt(r.Expiration), e.DueAt()
	switch {
	case !now.Before(deadline):
		d := r.giveUp(e, Expired, "the deadline has passed", Outcome{Status: e.LatestStatus()}, e.State)
		d.CallbackDeadline = now.Add(r.Expiration)
		return d
	case due.After(now):
		if due.After(deadline) {
			due = deadline // where it expires: no need to come back later than that
		}
		state := e.State
		state.NextAttemptAt, state.Expires = due, deadline
		return Decision{Action: Reschedule, Reason: NotDue, Delay: r.delay(now, due), State: state, Status: e.LatestStatus()}
	}
	return Decision{Action: Call, Reason: Due, State: e.State}
}

// AfterCall decides about an envelope whose call began at started and has just come to an end. Jitter
// is a random number from 0 up to, not including, 1.
func (r Rules) AfterCall(in Intake, o Outcome, started, now time.Time, jitter float64) Decision {
	e := in.Envelope
	j := r.judge(o)
	if j.verdict == interrupted {
		state := e.State
		state.NextAttemptAt, state.Expires = time.Time{}, e.GiveUpAt(r.Expiration)
		return Decision{Action: Reschedule, Reason: Interrupted, Detail: j.rule, Rule: j.rule, State: state, Status: e.LatestStatus()}
	}
	state := e.State
	state.Attempts++
	state.LatestAttemptAt = started
	state.NextAttemptAt, state.Expires = time.Time{}, e.GiveUpAt(r.Expiration)
	if answer := o.Answer(); answer != nil {
		state.Latest = answer
	}
	state.Trail = envelope.AppendAttempt(e.Trail, attempt(o, started))

	var d Decision
	switch j.verdict {
	case delivered:
		d = finish(e, Delivered, o, state)
	case permanent:
		d = r.reject(e, o, state)
	case temporary, interrupted:
		d = r.retry(e, in.Policy, o, state, now, jitter)
		d.Limited = in.Policy.Limited
	}
	d.Rule, d.CallbackDeadline = j.rule, now.Add(r.Expiration)
	if j.ignored != "" {
		d.Ignored = append(d.Ignored, j.ignored)
	}
	return d
}

// retry decides about a temporary failure.
func (r Rules) retry(e *envelope.Envelope, policy retry.Policy, o Outcome, state envelope.State, now time.Time, jitter float64) Decision {
	detail := describe(o)
	if policy.Exhausted(state.Attempts) {
		r.GiveUp = cmp.Or(policy.GiveUp, r.GiveUp)
		return r.giveUp(e, Exhausted, fmt.Sprintf("%d attempts, the last one: %s", state.Attempts, detail), o, state)
	}
	deadline := state.Expires
	delay := policy.Delay(state.Attempts, jitter)
	wanted, source, ignored := o.pressure(now)
	if wanted > 0 {
		detail += fmt.Sprintf(", %s asks for %v", source, wanted.Round(time.Second))
		// Never earlier than the target wants, and not all at the same moment.
		delay = max(delay, wanted+time.Duration(jitter*pressureJitter*float64(wanted)))
	}
	next := now.Add(delay)
	if !next.Before(deadline) {
		first, _ := policy.Bounds(1)
		next = deadline.Add(-lastAttemptLead)
		if !next.After(now.Add(first)) {
			d := r.giveUp(e, Expired, "the deadline comes before the next attempt; the last one: "+detail, o, state)
			d.Ignored = ignored
			return d
		}
	}
	state.NextAttemptAt = next
	reason := Status
	if o.Failure != "" {
		reason = Reason(o.Failure)
	}
	return Decision{
		Action: Reschedule, Reason: reason, Detail: detail,
		Delay: r.delay(now, next), Status: o.Status, State: state, Ignored: ignored,
	}
}

// reject decides about a permanent failure: the sender is told, or it is given up.
func (r Rules) reject(e *envelope.Envelope, o Outcome, state envelope.State) Decision {
	reason := Rejected
	if o.Failure != "" {
		reason = Reason(o.Failure)
	}
	if e.Callback != nil {
		d := finish(e, reason, o, state)
		d.Detail = describe(o)
		return d
	}
	return r.giveUp(e, reason, describe(o), o, state)
}

// finish ends a message whose sender is told if he asked for it.
func finish(e *envelope.Envelope, reason Reason, o Outcome, state envelope.State) Decision {
	action := Finish
	if e.Callback != nil {
		action = Callback
	}
	return Decision{Action: action, Reason: reason, Status: o.Status, State: state}
}

// giveUp tells the sender or, where nobody listens, does what the sender or the operator wants.
func (r Rules) giveUp(e *envelope.Envelope, reason Reason, detail string, o Outcome, state envelope.State) Decision {
	d := Decision{Reason: reason, Detail: detail, GivenUp: true, Status: cmp.Or(o.Status, e.LatestStatus()), State: state}
	if e.Callback != nil {
		d.Action = Callback
		return d
	}
	switch cmp.Or(e.GiveUp, r.GiveUp) {
	case envelope.GiveUpDrop:
		d.Action = Drop
	case envelope.GiveUpFault:
		d.Action = Fault
	case envelope.GiveUpDeadLetter:
		d.Action = DeadLetter
	default: // never neither: a person is told whatever the rules say
		d.Action = DeadLetter
	}
	return d
}

func attempt(o Outcome, started time.Time) envelope.Attempt {
	a := envelope.Attempt{At: started, Status: o.Status, Took: o.Took}
	if o.Failure != "" {
		a.Error = describe(o)
	}
	return a
}

// describe says in a few words what came of a call.
func describe(o Outcome) string {
	switch {
	case o.Failure == "":
		return "answered " + strconv.Itoa(o.Status)
	case o.Detail == "":
		return string(o.Failure)
	}
	return string(o.Failure) + ": " + o.Detail
}
