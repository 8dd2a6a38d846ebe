package capacity

import (
	"cmp"
	"slices"
)

// Outage is what happens while no target answers, and after. It counts on instances that keep up; where they
// do not, attempts come later and are fewer.
type Outage struct {
	Length Span `json:"seconds"`
	// AttemptsPerCall is how many attempts a call makes in vain that comes in during the outage.
	AttemptsPerCall Figure `json:"attemptsPerCall"`
	Attempts        int64  `json:"attempts"`
	Reschedules     int64  `json:"reschedules"`
	// GivenUp calls have come to the end of their policy, or to their deadline.
	GivenUp int64 `json:"givenUp"`
	// Messages wait at the end, of Bytes together.
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
	// AtTheEnd is how many attempts a second come due at the end, when they are most. InstancesToKeepUp
	// is how many instances of each Function App that takes.
	AtTheEnd          Figure `json:"attemptsPerSecondAtTheEnd"`
	InstancesToKeepUp int    `json:"instancesToKeepUp"`
	KeepsUp           bool   `json:"keepsUp"`
	// QueueMessages is what one queue then has to take a second, from as many instances as planned.
	QueueMessages Figure `json:"messagesPerQueueAtTheEnd"`
	// LastDue is when the last of what waits is called again, after the end of the outage.
	LastDue Span `json:"lastDueSeconds"`
	// MostDue is how many messages at most are due and find no place; Drained is when there are none
	// left. Both are 0 if they only grow.
	MostDue int64 `json:"mostDueMessages"`
	Drained Span  `json:"drainedSeconds"`
	Drains  bool  `json:"drains"`
	// PerSecond is how many calls a second can be made beside those that come in.
	PerSecond Figure `json:"spareCallsPerSecond"`
}

// outage runs the policy's timetable against an outage. A call that comes in when the outage still lasts
// left seconds makes every attempt that comes earlier than that, and calls come in evenly; so the attempt
// that comes m seconds after the first is made by the share 1 - m/length of them.
func (d demand) outage(s split) Outage {
	o := Outage{Length: seconds(d.length)}
	perCall, due := 0.0, 0.0
	for _, m := range d.moments {
		if m < d.length {
			perCall += 1 - m/d.length
			due++
		}
	}
	calls := d.rate * d.length
	givenUp := calls * max(1-d.moments[len(d.moments)-1]/d.length, 0)
	o.AttemptsPerCall = Figure(perCall)
	o.Attempts = count(calls * perCall)
	o.GivenUp = count(givenUp)
	o.Reschedules = o.Attempts - o.GivenUp
	o.Messages = count(calls) - o.GivenUp
	o.Bytes = count(float64(o.Messages) * d.textBytes)

	listeners := float64(s.listeners())
	atTheEnd := d.rate * due
	each := d.listener.surely(d.heldFailing)
	o.AtTheEnd = Figure(atTheEnd)
	o.InstancesToKeepUp = max(up(atTheEnd/each/float64(s.queues)), 1)
	o.KeepsUp = o.InstancesToKeepUp <= s.instances
	made := min(atTheEnd, d.listener.atMost(d.heldFailing)*listeners)
	o.QueueMessages = Figure((d.rate*d.weight + d.messagesOfFailing(made)) / float64(s.queues))

	free := d.freeAfter(s)
	lastDue, mostDue, drained, drains := drain(d.moments, d.length, d.rate, free)
	o.PerSecond = Figure(max(free, 0))
	o.LastDue = seconds(lastDue)
	if o.Drains = drains; drains {
		o.MostDue, o.Drained = count(mostDue), seconds(drained)
	}
	return o
}

// messagesOfFailing is what so many attempts a second count that all fail: got, reschedule, deleted. The
// senders' puts come on top.
func (d demand) messagesOfFailing(attempts float64) float64 {
	return attempts * (2*d.weight + 1)
}

// freeAfter is how many calls a second can be made beside those that come in: by the instances, or by what
// the queues take.
func (d demand) freeAfter(s split) float64 {
	retried := d.reschedules / d.attempts
	byStorage := (queueMessages*float64(s.queues) - d.rate*d.weight) / (d.weight*(1+retried) + 1)
	return min(d.capacity(s), byStorage)/d.attemptsPerCall() - d.rate
}

// drain follows what waits at the end of an outage, while rate calls a second come in and free more can be
// made. It tells when the last of it is due, how many are due and not made at most, and when there are none
// left.
//
// A call that waits for its attempt i came in between the moments of attempts i-1 and i before the end. So
// calls come due for attempt i at the rate of calls, from the time that it is later than the whole outage,
// or at once, until the wait before it is over.
func drain(moments []float64, length, rate, free float64) (lastDue, mostDue, drained float64, drains bool) {
	type change struct{ at, by float64 }
	var changes []change
	for i := 1; i < len(moments) && moments[i-1] < length; i++ {
		from, to := max(moments[i]-length, 0), moments[i]-moments[i-1]
		if from < to {
			changes = append(changes, change{from, rate}, change{to, -rate})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	coming, due := 0.0, 0.0
	for _, c := range changes {
		due = max(due+(coming-free)*(c.at-lastDue), 0)
		mostDue = max(mostDue, due)
		lastDue = c.at
		coming += c.by
	}
	if free <= 0 {
		return lastDue, mostDue, 0, due <= 0
	}
	return lastDue, mostDue, lastDue + due/free, true
}
