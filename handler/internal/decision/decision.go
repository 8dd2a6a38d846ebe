package decision

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/retry"
	"asynccaller/handler/internal/targets"
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
	Busy        Reason = "busy"        // no slot for the target
	TargetDown  Reason = "target_down" // the target's circuit breaker is open
	Paused      Reason = "paused"      // an operator has paused the target
	Cancelled   Reason = "cancelled"   // an operator has deleted the scheduled message
	Duplicate   Reason = "duplicate"   // the history says that the call was delivered
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
func handBack(left time.Duration, jitter float64) time.Duration {
	return inTime(handBackDelay+time.Duration(jitter*float64(handBackJitter)), left)
}

// A held message stays invisible for holdDelay ± holdJitter.
const (
	holdDelay  = 5 * time.Minute
	holdJitter = time.Minute
)

// lastAttemptLead is how long before the deadline a last attempt becomes due. It is longer than the host needs
// to notice a visible message (maxPollingInterval, 2 s, and rounding to whole seconds), so that the message
// does not arrive expired.
const lastAttemptLead = 10 * time.Second

// MinRecordedDelay is the shortest delay of a message that is recorded as scheduled: shorter ones cost no transaction.
const MinRecordedDelay = 30 * time.Second

// A message that is refused after the time of its last attempt comes back after soon to 2 * soon.
const soon = time.Second

// inTime shortens a delay so that a message whose deadline is left away arrives before it: the host needs up to 2 s to
// notice a visible message (maxPollingInterval). The result is never shorter than a second, the shortest delay that
// a queue has.
func inTime(delay, left time.Duration) time.Duration {
	const notice = 2 * time.Second
	return min(delay, max(left, notice+time.Second)-notice)
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
	// Rule names the rule that judged the outcome of the call.
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
	// MaxDelay is the longest delay that the queue accepts; zero means no limit. A longer wait is made of
	// several delays.
	MaxDelay time.Duration
}

// BeforeCall decides what to do with a message on arrival.
func (r Rules) BeforeCall(in Intake, now time.Time) Decision {
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
	case !now.Before(deadline):
		return giveUp(e, Decision{Reason: Expired, Detail: "the deadline has passed", State: e.State}, r.GiveUp)
	case e.DeadlineLimited && !e.NotBefore.Before(deadline): // the call could never be made
		const detail = "notBefore is not before the latest deadline that is allowed"
		return giveUp(e, Decision{Reason: Expired, Detail: detail, State: e.State}, r.GiveUp)
	case due.After(now):
		if due.After(deadline) {
			due = deadline // the message expires then
		}
		d := Decision{Reason: NotDue, State: e.State, Status: e.LatestStatus()}
		d.State.Expires = deadline
		return r.reschedule(d, now, due)
	}
	return Decision{Action: Call, Reason: CallDue, State: e.State}
}

// IsLastAttempt reports whether the deadline leaves no time for a later attempt than one that begins now.
func (r Rules) IsLastAttempt(e *envelope.Envelope, now time.Time) bool {
	return !now.Before(e.GiveUpAt(r.Expiration).Add(-lastAttemptLead))
}

// Refusal says why the call of a message that is due must not begin now.
type Refusal struct {
	// Reason is [Busy], [TargetDown] or [Paused]. Detail explains it in a few words.
	Reason Reason
	Detail string
	// Delay is when the message should come back.
	Delay time.Duration
	// Reserved is what the message is promised; empty if that is unchanged.
	Reserved string
}

// Refuse decides about a message that is due, but whose call must not begin now. It comes back
// after the delay, but not after the time of the last attempt. From then on it comes back every second or two, until
// in the last second before its deadline it is given up.
func (r Rules) Refuse(in Intake, refusal Refusal, now time.Time, jitter float64) Decision {
	e, delay := in.Envelope, refusal.Delay
	d := Decision{Reason: refusal.Reason, Detail: refusal.Detail, State: e.State, Status: e.LatestStatus()}
	d.State.Expires = e.GiveUpAt(r.Expiration)
	d.State.Reserved = cmp.Or(refusal.Reserved, e.Reserved)
	left := d.State.Expires.Sub(now)
	switch {
	case left <= soon:
		d.Reason, d.Detail = Expired, string(refusal.Reason)
		return giveUp(e, d, r.GiveUp)
	case r.IsLastAttempt(e, now):
		delay = inTime(soon+time.Duration(jitter*float64(soon)), left)
	default:
		delay = min(delay, left-lastAttemptLead)
	}
	d = r.reschedule(d, now, now.Add(delay))
	if d.Reason == Busy && d.Delay < MinRecordedDelay {
		d.State.NextAttemptAt = e.NextAttemptAt // it stays due, however the clocks of the instances differ
	}
	return d
}

// pausedWait and a quarter of it, which spreads the messages, is the longest time until a message for a paused target
// comes back. It need not be long: the message also finds out when the pause is longer.
const pausedWait = 8 * time.Minute

// Pause decides about a message that is due, but whose target an operator has paused; until is zero if the pause has no
// end. The message comes back when the pause ends, or after some minutes, as [Rules.Refuse] says. So its last attempt
// is not made.
func (r Rules) Pause(in Intake, until, now time.Time, jitter float64) Decision {
	detail, wait := "until an operator resumes the target", pausedWait
	if !until.IsZero() {
		detail = "until " + until.UTC().Format(time.RFC3339)
		wait = min(wait, max(until.Sub(now), time.Second))
	}
	wait += time.Duration(jitter * float64(wait/4))
	return r.Refuse(in, Refusal{Reason: Paused, Detail: detail, Delay: wait}, now, jitter)
}

// AfterCall decides what to do with a message whose call began at started and has just ended. The jitter is a
// random number from 0 up to, not including, 1.
func (r Rules) AfterCall(in Intake, o Outcome, started, now time.Time, jitter float64) Decision {
	e := in.Envelope
	j := r.judge(e.Call.Target, o, now)
	d := Decision{Detail: o.detail(), Status: o.Status, State: e.State, Rule: j.rule, Ignored: j.ignored}
	d.State.NextAttemptAt, d.State.Expires = time.Time{}, e.GiveUpAt(r.Expiration)
	if j.verdict == interrupted {
		d.Action, d.Reason, d.Detail = Reschedule, Interrupted, j.rule
		d.Delay = handBack(d.State.Expires.Sub(now), jitter)
		// as if the call had not begun
		d.Status = e.LatestStatus()
		d.State.NextAttemptAt = e.NextAttemptAt
		return d
	}
	d.State.Reserved = ""
	d.State.Attempts = min(d.State.Attempts+1, envelope.MaxAttempts)
	d.State.LatestAttemptAt = started
	d.State.Latest = cmp.Or(o.Answer(), d.State.Latest)
	d.State.Trail = envelope.AppendAttempt(e.Trail, o.attempt(started))
	if j.verdict == temporary {
		return r.retry(in, d, o, now, jitter)
	}
	isDelivered := j.verdict == delivered
	if isDelivered {
		d.Reason, d.Detail = Delivered, ""
	} else {
		d.Reason = o.reason(Rejected)
		d.Ignored = append(o.askedWait(now).ignored, d.Ignored...)
	}
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

// Duplicate decides about a message whose call was delivered before. Its callback was sent then, too.
func (r Rules) Duplicate(in Intake, delivered time.Time) Decision {
	detail := "the call was delivered at " + delivered.UTC().Format(time.RFC3339)
	return Decision{Action: Finish, Reason: Duplicate, Detail: detail, State: in.Envelope.State}
}

// Hold decides about a message in hold mode, in which a setting is invalid. The message comes back unchanged, after
// some minutes or, if that is later, when it is due.
func (r Rules) Hold(in Intake, now time.Time, jitter float64) Decision {
	d := Decision{Action: Hold, Reason: BadSetting, Delay: holdDelay + time.Duration((2*jitter-1)*float64(holdJitter))}
	if in.Envelope != nil {
		d.State, d.Delay = in.Envelope.State, max(d.Delay, in.Envelope.DueAt().Sub(now))
	}
	if r.MaxDelay > 0 {
		d.Delay = min(d.Delay, r.MaxDelay)
	}
	return d
}

// Release decides about a message whose host is gone, so that the next host need not wait for the end of the lease. It
// applies even if the call has ended: no host is left that would delete the message.
func (r Rules) Release(in Intake, now time.Time, jitter float64) Decision {
	left := time.Duration(math.MaxInt64)
	if in.Envelope != nil {
		left = in.Envelope.GiveUpAt(r.Expiration).Sub(now)
	}
	return Decision{Action: Release, Reason: HostGone, Delay: handBack(left, jitter)}
}

// WithoutRoom changes the decision about a message of a route whose envelope is larger than a message. Its attempts are
// the host's deliveries, so it is rescheduled in place; canWait reports whether the host will deliver it again after a
// delay. If not, it is given up.
func (r Rules) WithoutRoom(in Intake, d Decision, canWait func(time.Duration) bool) Decision {
	if !in.NoRoom || d.Action != Reschedule || canWait(d.Delay) {
		return d
	}
	d.Detail = fmt.Sprintf("the envelope has no room in a message, and the host may not deliver it again; the last: %s",
		strings.TrimSuffix(string(d.Reason)+", "+d.Detail, ", "))
	d.Reason, d.Delay = Exhausted, 0
	return giveUp(in.Envelope, d, r.GiveUp)
}

// retry decides about a temporary failure.
func (r Rules) retry(in Intake, d Decision, o Outcome, now time.Time, jitter float64) Decision {
	d.Limited = in.Policy.Limited
	if in.Policy.Exhausted(d.State.Attempts) {
		d.Reason, d.Detail = Exhausted, fmt.Sprintf("%d attempts, the last one: %s", d.State.Attempts, o.describe())
		return giveUp(in.Envelope, d, cmp.Or(in.Policy.GiveUp, r.GiveUp))
	}
	delay := in.Policy.Delay(d.State.Attempts, jitter)
	asked := o.askedWait(now)
	d.Ignored = append(asked.ignored, d.Ignored...)
	last := o.describe()
	if asked.wait > 0 {
		asks := fmt.Sprintf(", %s asks for %v", asked.header, asked.wait)
		d.Detail = strings.TrimPrefix(d.Detail+asks, ", ")
		last += asks
		// Never earlier than the target asks for, and not all calls at the same time.
		delay = max(delay, asked.wait+time.Duration(jitter*AskedWaitJitter*float64(asked.wait)))
	}
	next := now.Add(delay)
	if !next.Before(d.State.Expires) {
		first, _ := in.Policy.Bounds(1)
		next = d.State.Expires.Add(-lastAttemptLead)
		if !next.After(now.Add(first)) {
			d.Reason, d.Detail = Expired, "the deadline comes before the next attempt; the last one: "+last
			return giveUp(in.Envelope, d, r.GiveUp)
		}
	}
	d.Reason = o.reason(Status)
	return r.reschedule(d, now, next)
}

// reschedule completes the decision to reschedule a message until it is due.
func (r Rules) reschedule(d Decision, now, due time.Time) Decision {
	d.Action, d.Delay, d.State.NextAttemptAt = Reschedule, due.Sub(now), due
	if r.MaxDelay > 0 {
		d.Delay = min(d.Delay, r.MaxDelay)
	}
	return d
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
