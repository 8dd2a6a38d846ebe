package decision

import "time"

// Due is a call that may begin if every gate lets it pass.
type Due struct {
	// Function is the name of the function that got the message.
	Function string
	Intake   Intake
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
