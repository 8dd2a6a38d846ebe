// Package decision decides what happens to a message: the settlement table as pure functions. The clock and the
// random number are arguments, and nothing is written here.
//
// [Rules.Open] opens a message, [Rules.Decide] decides about it, once, and [Rules.Compose] returns the message that
// settling the decision writes.
package decision

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
)

// Action says what happens to a message. It is a closed set; each action is settled in exactly one way.
type Action string

// The actions.
const (
	// Call: the message is due, make the call. It is the only action that does not end the message.
	Call Action = "call"
	// Finish: write nothing.
	Finish Action = "finish"
	// Reschedule: write the successor with a delay.
	Reschedule Action = "reschedule"
	// Callback: report to the sender.
	Callback Action = "callback"
	// DeadLetter: write to the poison queue, for a person to handle.
	DeadLetter Action = "dead_letter"
	// Drop: given up; the operator or the sender wants nothing kept.
	Drop Action = "drop"
	// Fault: given up; leave the message to the host's dequeue count and poison queue.
	Fault Action = "fault"
	// Hold: write the original content unchanged, with a delay. No call was made.
	Hold Action = "hold"
	// Release: end the lease of a host that is gone, with a delay. The message itself stays.
	Release Action = "release"
)

// Ends reports whether the call will not be made again.
func (a Action) Ends() bool {
	switch a {
	case Finish, Callback, DeadLetter, Drop, Fault:
		return true
	case Call, Reschedule, Hold, Release:
	}
	return false
}

// Reason says why an action was chosen: one of the constants below or a [Failure]. It is a closed set.
type Reason string

// The reasons that are not failures of a call.
const (
	Delivered   Reason = "delivered"        // 2xx
	Status      Reason = "temporary_status" // the target's response is temporary
	NotDue      Reason = "not_due"          // nextAttemptAt or notBefore is in the future
	CallDue     Reason = "due"
	Interrupted        = Reason(FailureInterrupted)
	Rejected    Reason = "rejected"  // the target's response is permanent
	Expired     Reason = "expired"   // the deadline has passed or is before the next attempt
	Exhausted   Reason = "exhausted" // the policy's attempts are used up
	Malformed   Reason = "malformed" // not a valid envelope
	BadSetting  Reason = "bad_setting"
	HostGone    Reason = "host_gone"
	Busy        Reason = "busy"              // no slot for the target
	TargetDown  Reason = "target_down"       // the target's circuit breaker is open
	Auth               = Reason(FailureAuth) // no token for the target
	Paused      Reason = "paused"            // an operator has paused the target
	Cancelled   Reason = "cancelled"         // an operator has deleted the scheduled message
	Duplicate   Reason = "duplicate"         // the history says that the call was delivered
)

// A message that the handler hands back stays invisible for handBackDelay to handBackDelay + handBackJitter: a host
// that stops still receives messages for 10 s and fails them, because its handler has ended (docs/host.md, "Stop of the
// host").
const (
	handBackDelay  = 10 * time.Second
	handBackJitter = 5 * time.Second
)

// handBack returns how long a message that is handed back stays invisible. A message that expires in the meantime comes
// back earlier.
func (r Rules) handBack(left time.Duration, jitter float64) time.Duration {
	return r.inTime(handBackDelay+time.Duration(jitter*float64(handBackJitter)), left)
}

// A held message stays invisible for holdDelay ± holdJitter, at most for LongestHold.
const (
	holdDelay   = 5 * time.Minute
	holdJitter  = time.Minute
	LongestHold = holdDelay + holdJitter
)

// HostNotice is how long the host needs to notice a message that has become visible (maxPollingInterval).
const HostNotice = 2 * time.Second

// leadMargin is how much earlier than that, before its deadline, a last attempt becomes due, so that the message does
// not arrive expired: delays are rounded to whole seconds.
const leadMargin = 8 * time.Second

// MinRecordedDelay is the shortest delay of a message that is recorded as scheduled: shorter ones cost no transaction.
const MinRecordedDelay = 30 * time.Second

// A message that is refused after the time of its last attempt comes back after lastDelay to 2 * lastDelay.
const lastDelay = time.Second

// tokenWait is the shortest time until a call whose token was refused is made again. By then, another one may be
// requested.
const tokenWait = time.Minute

// notice is how long the app needs to notice a message that has become visible.
func (r Rules) notice() time.Duration { return cmp.Or(r.Notice, HostNotice) }

// lastAttemptLead is how long before the deadline a last attempt becomes due.
func (r Rules) lastAttemptLead() time.Duration { return r.notice() + leadMargin }

// inTime shortens a delay so that a message whose deadline is left away arrives before it. The result is never shorter
// than a second, the shortest delay that a queue has.
func (r Rules) inTime(delay, left time.Duration) time.Duration {
	return min(delay, max(left, r.notice()+time.Second)-r.notice())
}

// Decision says what to do with a message.
type Decision struct {
	Action Action
	Reason Reason
	// Detail explains the reason in a few words, without URL, headers or bodies.
	Detail string
	// GivenUp says that no further attempt is allowed or useful. The log reports it at error level.
	GivenUp bool
	// Delay is how long the successor stays invisible; at most Rules.MaxDelay.
	Delay time.Duration
	// Status is the target's latest response, or 0.
	Status int
	// State is the envelope's state from now on.
	State envelope.State
	// Judged is what the outcome of the call was judged to be: [Delivered], [Status], [Rejected] or a failure, also if
	// the message is released. It is empty if the call was not made.
	Judged Reason
	// Rule names the rule that judged it.
	Rule string
	// Limited names the operator's limits that changed the envelope's own policy, if any.
	Limited string
	// Ignored names the retry signals in the response that are invalid.
	Ignored []string
}

// Rules are the operator's choices for every message.
type Rules struct {
	// Expiration is how long an envelope without a deadline is tried.
	Expiration time.Duration
	// MaxDeadline is how far ahead of its creation or notBefore an envelope's deadline may be; zero means no limit.
	MaxDeadline time.Duration
	GiveUp      envelope.GiveUp
	// Retry is the policy of an envelope that asks for none.
	Retry retry.Policy
	// Policies are the policies that an envelope may ask for by name, in addition to the built-in ones. Limits
	// are the limits on what it may ask for.
	Policies retry.Policies
	Limits   retry.Limits
	// Profiles are what the operator says about single targets. A profile's policy takes the place of Retry.
	Profiles targets.Profiles
	// Statuses are the temporary responses; nil means [DefaultStatuses].
	Statuses Statuses
	// Notice is how long the app needs to notice a message that has become visible; zero means [HostNotice].
	Notice time.Duration
	// MaxDelay is the longest delay that the queue accepts; zero means no limit. A longer wait is made of
	// several delays.
	MaxDelay time.Duration
}

// World is the state of the world that a decision depends on.
type World struct {
	// Arrived is when the message arrived, and Now when it is decided.
	Arrived, Now time.Time
	// Jitter is a random number from 0 up to, not including, 1.
	Jitter float64
	// Hold says that no calls are made, because a setting is invalid. HostGone says that the Functions host has ended.
	Hold, HostGone bool
	// UpdatableUntil is the time before which the message must be due again, so that the host delivers it a further
	// time if it stays as it is. Zero means that it must not stay.
	UpdatableUntil time.Time
}

// IsDue reports whether the call of a message is due now. [Rules.Decide] then needs a verdict.
func (r Rules) IsDue(in *Intake, w World) bool {
	return !w.Hold && !w.HostGone && r.onArrival(in, w).Action == Call
}

// IsExpired reports whether the deadline of a message has passed: without a verdict, it is given up.
func (r Rules) IsExpired(in *Intake, w World) bool {
	return !w.Hold && !w.HostGone && r.onArrival(in, w).Reason == Expired
}

// Decide decides what to do with a message: on arrival if the verdict is nil, otherwise after a gate has not let its
// call pass or the call has ended.
func (r Rules) Decide(in *Intake, v *Verdict, w World) Decision {
	switch {
	case w.HostGone:
		return r.release(in, v, w)
	case w.Hold:
		return r.hold(in, w)
	case v == nil:
		return r.onArrival(in, w)
	case v.Refusal != nil:
		return r.refuse(in, *v.Refusal, w)
	case v.Outcome != nil:
		return r.afterCall(in, *v.Outcome, w)
	}
	return duplicate(in, v.Delivered)
}

// onArrival decides what to do with a message that has just arrived.
func (r Rules) onArrival(in *Intake, w World) Decision {
	e := in.Envelope
	if in.Malformed != nil {
		d := Decision{Action: DeadLetter, Reason: Malformed, Detail: in.Malformed.Error()}
		if e != nil {
			d.State = e.State
		}
		return d
	}
	deadline, due := e.GiveUpAt(r.Expiration), e.DueAt()
	switch {
	case !w.Now.Before(deadline):
		return giveUp(e, Decision{Reason: Expired, Detail: "the deadline has passed", State: e.State}, r.GiveUp)
	case e.DeadlineLimited && !e.NotBefore.Before(deadline): // the call could never be made
		const detail = "notBefore is not before the latest deadline that is allowed"
		return giveUp(e, Decision{Reason: Expired, Detail: detail, State: e.State}, r.GiveUp)
	case due.After(w.Now):
		if due.After(deadline) {
			due = deadline // the message expires then
		}
		d := Decision{Reason: NotDue, State: e.State, Status: e.LatestStatus()}
		d.State.Expires = deadline
		return r.reschedule(in, d, due, w)
	}
	return Decision{Action: Call, Reason: CallDue, State: e.State}
}

// DueCall returns the call of a message that is due.
func (r Rules) DueCall(in *Intake, w World) Due {
	deadline := in.Envelope.GiveUpAt(r.Expiration)
	return Due{
		Intake: in, Target: targets.Address(in.Call().Target),
		Deadline: deadline, LastAttempt: r.isLastAttempt(deadline, w.Now), Arrived: w.Arrived, Jitter: w.Jitter,
	}
}

// isLastAttempt reports whether the deadline leaves no time for a later attempt than one that begins now.
func (r Rules) isLastAttempt(deadline, now time.Time) bool {
	return !now.Before(deadline.Add(-r.lastAttemptLead()))
}

// refuse decides about a message that is due, but whose call must not begin now. It comes back after the delay, but not
// after the time of the last attempt. From then on it comes back every second or two, until in the last second before
// its deadline it is given up.
func (r Rules) refuse(in *Intake, refusal Refusal, w World) Decision {
	e, delay := in.Envelope, refusal.Delay
	d := Decision{Reason: refusal.Reason, Detail: refusal.Detail, State: e.State, Status: e.LatestStatus()}
	d.State.Expires = e.GiveUpAt(r.Expiration)
	d.State.Ticket = cmp.Or(refusal.Ticket, e.Ticket)
	left := d.State.Expires.Sub(w.Now)
	switch {
	case left <= lastDelay:
		d.Reason, d.Detail = Expired, string(refusal.Reason)
		return giveUp(e, d, r.GiveUp)
	case r.isLastAttempt(d.State.Expires, w.Now):
		delay = r.inTime(lastDelay+time.Duration(w.Jitter*float64(lastDelay)), left)
	default:
		delay = min(delay, left-r.lastAttemptLead())
	}
	if d.Reason == Busy && delay < MinRecordedDelay {
		return r.wait(in, d, delay, w) // it stays due, however the clocks of the instances differ
	}
	return r.reschedule(in, d, w.Now.Add(delay), w)
}

// afterCall decides what to do with a message whose call has just ended.
func (r Rules) afterCall(in *Intake, o Outcome, w World) Decision {
	e := in.Envelope
	j := r.judge(in, o, w.Now)
	d := Decision{Detail: o.Summary(), Status: o.Status, State: e.State, Rule: j.rule, Ignored: j.ignored}
	d.State.Expires = e.GiveUpAt(r.Expiration)
	if j.verdict == interrupted { // as if the call had not begun
		d.Reason, d.Judged, d.Detail, d.Status = Interrupted, Interrupted, j.rule, e.LatestStatus()
		return r.wait(in, d, r.handBack(d.State.Expires.Sub(w.Now), w.Jitter), w)
	}
	d.State.NextAttemptAt, d.State.Ticket = time.Time{}, 0
	d.State.Attempts = min(d.State.Attempts+1, envelope.MaxAttempts)
	d.State.LatestAttemptAt = w.Arrived
	d.State.Latest = cmp.Or(o.Answer(), d.State.Latest)
	d.State.Trail = envelope.AppendAttempt(e.Trail, o.attempt(w.Arrived))
	if j.verdict == temporary {
		d.Judged = o.reason(Status)
		return r.retry(in, d, o, w)
	}
	isDelivered := j.verdict == delivered
	if isDelivered {
		d.Judged, d.Detail = Delivered, o.Detail
	} else {
		d.Judged = o.reason(Rejected)
		d.Ignored = append(o.askedWait(w.Now).ignored, d.Ignored...)
	}
	d.Reason = d.Judged
	switch {
	case e.Callback != nil:
		d.Action = Callback
	case isDelivered:
		d.Action = Finish
	default:
		return giveUp(e, d, r.GiveUp)
	}
	return d
}

// duplicate decides about a message whose call was delivered before. Its callback was sent then, too.
func duplicate(in *Intake, delivered time.Time) Decision {
	detail := "the call was delivered at " + delivered.UTC().Format(time.RFC3339)
	return Decision{Action: Finish, Reason: Duplicate, Detail: detail, State: in.Envelope.State}
}

// hold decides about a message in hold mode. The message comes back unchanged, after some minutes or, if that is later,
// when it is due.
func (r Rules) hold(in *Intake, w World) Decision {
	delay := holdDelay + time.Duration((2*w.Jitter-1)*float64(holdJitter))
	d := Decision{Action: Hold, Reason: BadSetting, Delay: delay}
	if in.Envelope != nil {
		d.State, d.Delay = in.Envelope.State, max(d.Delay, in.Envelope.DueAt().Sub(w.Now))
	}
	d.Delay = r.shortened(d.Delay)
	return d
}

// release decides about a message whose host is gone, so that the next host need not wait for the end of the lease. It
// applies even if the call has ended: no host is left that would delete the message.
func (r Rules) release(in *Intake, v *Verdict, w World) Decision {
	d := Decision{Action: Release, Reason: HostGone}
	left := time.Duration(math.MaxInt64)
	if in.Envelope != nil {
		left = in.Envelope.GiveUpAt(r.Expiration).Sub(w.Now)
	}
	if v != nil && v.Outcome != nil {
		called := r.afterCall(in, *v.Outcome, w)
		d.Judged, d.Status, d.State = called.Judged, called.Status, called.State
	}
	d.Delay = r.handBack(left, w.Jitter)
	return d
}

// retry decides about a temporary failure.
func (r Rules) retry(in *Intake, d Decision, o Outcome, w World) Decision {
	d.Limited = in.Policy.Limited
	if in.Policy.Exhausted(d.State.Attempts) {
		d.Reason, d.Detail = Exhausted, fmt.Sprintf("%d attempts, the last one: %s", d.State.Attempts, o.describe())
		return giveUp(in.Envelope, d, cmp.Or(in.Policy.GiveUp, r.GiveUp))
	}
	delay := in.Policy.Delay(d.State.Attempts, w.Jitter)
	if o.isUnauthorized() {
		delay = max(delay, jittered(tokenWait, w.Jitter))
	}
	asked := o.askedWait(w.Now)
	d.Ignored = append(asked.ignored, d.Ignored...)
	last := o.describe()
	if asked.wait > 0 {
		asks := fmt.Sprintf(", %s asks for %v", asked.header, asked.wait)
		d.Detail = strings.TrimPrefix(d.Detail+asks, ", ")
		last += asks
		// Never earlier than the target asks for, and not all calls at the same time.
		delay = max(delay, jittered(asked.wait, w.Jitter))
	}
	next := w.Now.Add(delay)
	if !next.Before(d.State.Expires.Add(-r.notice())) {
		first, _ := in.Policy.Bounds(1)
		lead := d.State.Expires.Add(-r.lastAttemptLead())
		switch {
		case lead.After(w.Now.Add(first)):
			next = lead
		case !next.Before(d.State.Expires):
			d.Reason, d.Detail = Expired, "the deadline comes before the next attempt; the last one: "+last
			return giveUp(in.Envelope, d, r.GiveUp)
		}
	}
	d.Reason = d.Judged
	return r.reschedule(in, d, next, w)
}

// jittered returns a wait that is up to a fifth longer.
func jittered(wait time.Duration, jitter float64) time.Duration {
	return wait + time.Duration(jitter*AskedWaitJitter*float64(wait))
}

// reschedule completes the decision to reschedule a message until it is due.
func (r Rules) reschedule(in *Intake, d Decision, due time.Time, w World) Decision {
	d.State.NextAttemptAt = due
	return r.wait(in, d, due.Sub(w.Now), w)
}

// wait completes the decision to reschedule a message by a delay. A message of a route whose envelope has no room in a
// message stays as it is. If the host may not deliver it again after the delay, it is given up.
func (r Rules) wait(in *Intake, d Decision, delay time.Duration, w World) Decision {
	delay = r.shortened(delay)
	if in.NoRoom && !w.Now.Add(delay).Before(w.UpdatableUntil) {
		d.Detail = "the envelope has no room in a message, and the host may not deliver it again; the last: " +
			strings.TrimSuffix(string(d.Reason)+", "+d.Detail, ", ")
		d.Reason = Exhausted
		return giveUp(in.Envelope, d, r.GiveUp)
	}
	d.Action, d.Delay = Reschedule, delay
	return d
}

// shortened returns a delay that the queue accepts.
func (r Rules) shortened(delay time.Duration) time.Duration {
	if r.MaxDelay > 0 {
		return min(delay, r.MaxDelay)
	}
	return delay
}

// giveUp completes the decision to give an envelope up: report to the sender if there is a callback, otherwise
// do what the envelope says, or else the given default.
func giveUp(e *envelope.Envelope, d Decision, byDefault envelope.GiveUp) Decision {
	d.GivenUp = true
	if d.Status/100 == 2 { // it broke off
		d.Status = 0
	}
	d.Status = cmp.Or(d.Status, e.LatestStatus())
	choice := cmp.Or(e.GiveUp, byDefault)
	switch {
	case e.Callback != nil:
		d.Action = Callback
	case choice == envelope.GiveUpDrop:
		d.Action = Drop
	case choice == envelope.GiveUpFault:
		d.Action = Fault
	default: // also without any choice: either the sender or an operator must learn of it
		d.Action = DeadLetter
	}
	return d
}
