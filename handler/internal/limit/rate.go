package limit

import (
	"time"

	"asynccaller/handler/internal/targets"
)

// Constants of a rate. Those of the whole package were chosen in a simulation (handler/tools/simulation).
const (
	// lateAfter is how long after its reserved time a message may still be called. After that, another message may have
	// got the room that it left.
	lateAfter = 5 * time.Second
	// lateShare is how many times slower than the others those messages are called that have missed their time.
	lateShare = 6
	// callLead is how long before its deadline a message must be called.
	callLead = time.Second
	// longest bounds the time from now to the latest reserved time.
	longest = 10 * 365 * 24 * time.Hour
)

// rateRow is what is promised to the messages of a target with a limited rate: the generic cell rate algorithm, shared
// by all instances.
type rateRow struct {
	// Next is when the next call is due if calls come evenly. Late is the same for messages that have missed the time
	// that they had reserved.
	Next time.Time `json:"next"`
	Late time.Time `json:"late,omitzero"`
}

// reserve returns the earliest time at which a message may be called, and takes it. It returns false, and takes
// nothing, if that is too late for the deadline. A message that has missed its time does not wait behind the others,
// if that is earlier. No message gets a time at which it cannot be here.
func (r *rateRow) reserve(p targets.Profile, now time.Time, m *waiter) (at time.Time, ok bool) {
	interval := interval(p)
	last := m.deadline.Add(-callLead)
	at = later(now, r.Late)
	if !m.canCome(at, now) {
		at = m.back
	}
	if m.missed && at.Before(r.Next) && !at.After(last) {
		r.Late = at.Add(lateShare * interval)
		return at, true
	}
	at = later(now, r.Next.Add(-time.Duration(min(float64(p.Burst-1)*float64(interval), float64(longest)))))
	if at.After(last) || at.Sub(now) > longest {
		return time.Time{}, false
	}
	r.Next = later(now, r.Next).Add(interval)
	return at, true
}

// canCome reports whether the message is here at a time: it waits for it in the handler, or is back.
func (m *waiter) canCome(at, now time.Time) bool {
	return at.Sub(now) <= shortWait || !at.Before(m.back)
}

// interval is the time between two calls.
func interval(p targets.Profile) time.Duration { return seconds(1 / float64(p.Rate)) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
