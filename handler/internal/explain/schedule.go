package explain

import (
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/retry"
)

// maxAttempts bounds a schedule: one attempt a second for a week. Storage counts whole seconds, so a queue cannot do
// more in the time that an envelope has by default.
const maxAttempts = 7 * 24 * 3600

// Schedule is when a policy makes its attempts at a target that never responds.
type Schedule struct {
	Policy string `json:"policy"`
	// MaxAttempts is the policy's; 0 means as many as fit.
	MaxAttempts int `json:"maxAttempts,omitempty"`
	// Limited names the operator's limits that changed the policy.
	Limited string `json:"limited,omitempty"`
	// Deadline counts from the first call.
	Deadline Seconds `json:"deadlineSeconds"`
	// Shortest is the result if every wait is as short as possible, Longest if every wait is as long as possible.
	Shortest Run       `json:"withShortestWaits"`
	Longest  Run       `json:"withLongestWaits"`
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one call of a schedule. Waits count from the previous attempt, times from the first call. The wait
// before a last attempt is cut, so that the attempt comes before the deadline.
type Attempt struct {
	N            int     `json:"n"`
	ShortestWait Seconds `json:"shortestWaitSeconds"`
	LongestWait  Seconds `json:"longestWaitSeconds"`
	Earliest     Seconds `json:"earliestSeconds"`
	Latest       Seconds `json:"latestSeconds"`
	// Certain says that the attempt is made even with the longest waits. Otherwise Latest is the deadline.
	Certain bool `json:"certain"`
}

// Run is the end of a schedule with the shortest or with the longest waits.
type Run struct {
	Attempts int `json:"attempts"`
	// Last is the time of the last attempt.
	Last Seconds `json:"lastSeconds"`
	// Reason is why there are no more attempts; empty if the schedule was cut because there are too many.
	Reason decision.Reason `json:"reason,omitempty"`
}

// Simulate returns the schedule of a policy under the rules, for an envelope that is first called when it is created.
func Simulate(rules decision.Rules, policy retry.Policy, deadline time.Duration) Schedule {
	s := Schedule{Policy: policy.Name, MaxAttempts: policy.MaxAttempts, Limited: policy.Limited, Deadline: Seconds(deadline)}
	var short, long []Seconds
	short, s.Shortest = run(rules, policy, deadline, lowestJitter)
	long, s.Longest = run(rules, policy, deadline, highestJitter)
	for i := range max(len(short), len(long)) {
		s.Attempts = append(s.Attempts, attempt(policy, s.Deadline, i, short, long))
	}
	return s
}

// attempt combines the attempt of that index from runs of which one at least made it.
func attempt(policy retry.Policy, deadline Seconds, i int, runs ...[]Seconds) Attempt {
	a := Attempt{N: i + 1, ShortestWait: deadline, Earliest: deadline, Certain: true}
	for _, times := range runs {
		if i >= len(times) {
			a.Certain = false
			continue
		}
		at, wait := times[i], times[i]-times[max(i-1, 0)]
		a.Earliest, a.Latest = min(a.Earliest, at), max(a.Latest, at)
		a.ShortestWait, a.LongestWait = min(a.ShortestWait, wait), max(a.LongestWait, wait)
	}
	if !a.Certain {
		_, longest := policy.Bounds(i)
		a.Latest, a.LongestWait = deadline, max(a.ShortestWait, min(Seconds(longest), deadline))
	}
	return a
}

// run follows the rules through virtual time, from the first call to the end. It returns the time of each attempt.
func run(rules decision.Rules, policy retry.Policy, deadline time.Duration, jitter float64) (times []Seconds, end Run) {
	begin := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	in := decision.Intake{Policy: policy}
	in.Envelope = &envelope.Envelope{Deadline: begin.Add(deadline), State: envelope.State{CreatedAt: begin}}
	unanswered := decision.Outcome{Failure: decision.FailureConnect} // temporary, whatever statuses are configured
	for now := begin; end.Attempts < maxAttempts; {
		d := rules.BeforeCall(in, now)
		if d.Action == decision.Call {
			end.Attempts, end.Last = end.Attempts+1, Seconds(now.Sub(begin))
			times = append(times, end.Last)
			d = rules.AfterCall(in, unanswered, now, now, jitter)
		}
		if d.Action != decision.Reschedule {
			end.Reason = d.Reason
			break
		}
		now = now.Add(d.Delay)
		d.State.Trail = nil // it takes time and does not influence a decision
		in.Envelope = in.Envelope.WithState(d.State)
	}
	return times, end
}
