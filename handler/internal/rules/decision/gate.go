package decision

import "time"

// Message identifies a message and the invocation that delivers it.
type Message struct {
	// Function is the name of the function that got the message, InvocationID the id of its invocation.
	Function, InvocationID string
	Queue                  string
	// ID identifies the call if the envelope has no request id: 1 to 128 visible ASCII characters.
	ID string
	// DequeueCount is how often the host has received the message, or 0 if that is not known.
	DequeueCount int64
}

// Due is a call that may begin if every gate lets it pass.
type Due struct {
	Message Message
	Intake  *Intake
	// Target is the host and port that is called ([targets.Address]).
	Target string
	// Deadline is when the envelope is given up.
	Deadline time.Time
	// First says that the call cannot have been made before. LastAttempt says that the deadline leaves no time for a
	// later attempt than this one.
	First, LastAttempt bool
	// Arrived is when the message arrived.
	Arrived time.Time
	// Jitter is a random number from 0 up to, not including, 1.
	Jitter float64
}

// Refusal says why the call of a message that is due must not begin now.
type Refusal struct {
	// Reason is [Busy], [TargetDown], [Auth] or [Paused]. Detail explains it in a few words.
	Reason Reason
	Detail string
	// Delay is when the message should come back.
	Delay time.Duration
	// Ticket is the message's place in the line of a limit; 0 if that is unchanged.
	Ticket int64
}

// pausedWait and a quarter of it, which spreads the messages, is the longest time until a message for a paused target
// comes back. It need not be long: the message also finds out when the pause is longer.
const pausedWait = 8 * time.Minute

// PausedUntil refuses the call to a target that an operator has paused; until is zero if the pause has no end. The
// message comes back when the pause ends, or after some minutes. So its last attempt is not made.
func PausedUntil(until, now time.Time, jitter float64) *Refusal {
	detail, wait := "until an operator resumes the target", pausedWait
	if !until.IsZero() {
		detail = "until " + until.UTC().Format(time.RFC3339)
		wait = min(wait, max(until.Sub(now), time.Second))
	}
	wait += time.Duration(jitter * float64(wait/4))
	return &Refusal{Reason: Paused, Detail: detail, Delay: wait}
}

// Verdict says what came of a due call: a gate did not let it pass, or it was made. Exactly one field is set.
type Verdict struct {
	// Refusal says why the call must not begin now.
	Refusal *Refusal
	// Outcome is that of the call, or of a gate that says what would come of it.
	Outcome *Outcome
	// Delivered is when the call was delivered by an earlier message.
	Delivered time.Time
}

// Pass is told both ends of a call that a gate has let pass, also after a panic.
type Pass interface {
	// Ended says that the call has ended at a time. The outcome is nil if a later gate has not let it pass.
	Ended(o *Outcome, at time.Time)
	// Released says that the message is settled at a time: what it took of the host and of the memory is free.
	Released(at time.Time)
}
