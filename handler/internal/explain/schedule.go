package explain

import (
	"encoding/json"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/retry"
)

// maxAttempts bounds a timetable: one attempt a second for a week. Storage counts whole seconds, so a
// queue can do no more in the time that an envelope has by default.
const maxAttempts = 7 * 24 * 3600

// Timetable tells when a policy makes its attempts at a target that never answers.
type Timetable struct {
	Policy string
	// MaxAttempts is the policy's; 0 means as many as fit.
	MaxAttempts int
	// Limited says which of the operator's limits changed the policy.
	Limited string
	// Deadline counts from the first call.
	Deadline time.Duration
	Attempts []Attempt
	// Shortest is what happens when every wait is as short as it can be, Longest when every wait is as
	// long as it can be.
	Shortest, Longest Run
}

// Attempt is one call of a timetable. Its number is its index and 1. Waits count from the attempt before,
// moments from the first call. The wait before a last attempt is cut, so that it comes before the deadline.
type Attempt struct {
	ShortestWait, LongestWait time.Duration
	Earliest, Latest          time.Duration
	// Certain says that it is made even with the longest waits; otherwise Latest is the deadline.
	Certain bool
}

// Run is how a timetable ends for one kind of waits.
type Run struct {
	Attempts int
	// Last is the moment of the last attempt.
	Last time.Duration
	// Reason is why there are no more; empty when the timetable was cut because there are too many.
	Reason decision.Reason
}

// Schedule makes the timetable of a policy under the rules, for an envelope that is first called when it is
// created.
func Schedule(rules decision.Rules, policy retry.Policy, deadline time.Duration) Timetable {
	t := Timetable{Policy: policy.Name, MaxAttempts: policy.MaxAttempts, Limited: policy.Limited, Deadline: deadline}
	short, long := run(rules, policy, deadline, lowestJitter), run(rules, policy, deadline, highestJitter)
	t.Shortest, t.Longest = short.summary(), long.summary()
	for i := range max(len(short.moments), len(long.moments)) {
		t.Attempts = append(t.Attempts, attempt(policy, deadline, short.moments, long.moments, i))
	}
	return t
}

func attempt(policy retry.Policy, deadline time.Duration, short, long []time.Duration, i int) Attempt {
	a := Attempt{Certain: i < len(short) && i < len(long)}
	wait := func(moments []time.Duration) time.Duration {
		if i == 0 {
			return 0
		}
		return moments[i] - moments[i-1]
	}
	switch {
	case a.Certain: // where one of the two is a last attempt, its wait is cut and may be the shorter one
		a.Earliest, a.Latest = min(short[i], long[i]), max(short[i], long[i])
		a.ShortestWait, a.LongestWait = min(wait(short), wait(long)), max(wait(short), wait(long))
	case i < len(short):
		a.Earliest, a.ShortestWait = short[i], wait(short)
	default:
		a.Earliest, a.ShortestWait = long[i], wait(long)
	}
	if !a.Certain {
		_, longest := policy.Bounds(i)
		a.Latest, a.LongestWait = deadline, max(a.ShortestWait, min(longest, deadline))
	}
	return a
}

// attempts is a run through virtual time.
type attempts struct {
	moments []time.Duration
	reason  decision.Reason
}

func (a attempts) summary() Run {
	r := Run{Attempts: len(a.moments), Reason: a.reason}
	if r.Attempts > 0 {
		r.Last = a.moments[r.Attempts-1]
	}
	return r
}

// run drives the rules from the first call to the end.
func run(rules decision.Rules, policy retry.Policy, deadline time.Duration, jitter float64) attempts {
	begin := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	in := decision.Intake{Policy: policy}
	in.Envelope = &envelope.Envelope{Deadline: begin.Add(deadline), State: envelope.State{CreatedAt: begin}}
	unanswered := decision.Outcome{Failure: decision.FailureConnect} // temporary, whatever the settings say of statuses
	var made attempts
	for now := begin; len(made.moments) < maxAttempts; {
		d := rules.BeforeCall(in, now)
		if d.Action == decision.Call {
			made.moments = append(made.moments, now.Sub(begin))
			d = rules.AfterCall(in, unanswered, now, now, jitter)
		}
		if d.Action != decision.Reschedule {
			made.reason = d.Reason
			return made
		}
		now = now.Add(d.Delay)
		d.State.Trail = nil // it costs time, and decides nothing
		in.Envelope = in.Envelope.WithState(d.State)
	}
	return made
}

// MarshalJSON writes durations as seconds.
func (t Timetable) MarshalJSON() ([]byte, error) {
	type wireAttempt struct {
		N        int     `json:"n"`
		Shortest float64 `json:"shortestWaitSeconds"`
		Longest  float64 `json:"longestWaitSeconds"`
		Earliest float64 `json:"earliestSeconds"`
		Latest   float64 `json:"latestSeconds"`
		Certain  bool    `json:"certain"`
	}
	type wireRun struct {
		Attempts int             `json:"attempts"`
		Last     float64         `json:"lastSeconds"`
		Reason   decision.Reason `json:"reason,omitempty"`
	}
	rows := make([]wireAttempt, len(t.Attempts))
	for i, a := range t.Attempts {
		rows[i] = wireAttempt{i + 1, a.ShortestWait.Seconds(), a.LongestWait.Seconds(), a.Earliest.Seconds(), a.Latest.Seconds(), a.Certain}
	}
	return json.Marshal(struct {
		Policy      string        `json:"policy"`
		MaxAttempts int           `json:"maxAttempts,omitempty"`
		Limited     string        `json:"limited,omitempty"`
		Deadline    float64       `json:"deadlineSeconds"`
		Shortest    wireRun       `json:"withShortestWaits"`
		Longest     wireRun       `json:"withLongestWaits"`
		Attempts    []wireAttempt `json:"attempts"`
	}{
		t.Policy,
		t.MaxAttempts,
		t.Limited,
		t.Deadline.Seconds(),
		wireRun{t.Shortest.Attempts, t.Shortest.Last.Seconds(), t.Shortest.Reason},
		wireRun{t.Longest.Attempts, t.Longest.Last.Seconds(), t.Longest.Reason},
		rows,
	})
}
