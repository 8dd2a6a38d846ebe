package limit

import (
	"encoding/json"
	"maps"
	"math"
	"time"
)

// Constants of permits.
const (
	// lease is how long an instance that stops renewing keeps its permits. It renews them every renewEvery, and begins
	// no call in the last leaseReserve.
	lease        = time.Minute
	renewEvery   = 15 * time.Second
	leaseReserve = 5 * time.Second
	// The line of messages that wait for a permit moves early: a permit that waits for its message is lost. A message
	// comes back after earlyShare of the time until its turn, less earlyLead. Slack, times the square root of the
	// limit, is how many places earlier than its own it may come.
	earlyShare = 0.8
	earlyLead  = 3 * time.Second
	slack      = 1.5
	// While a fifth of the permits is free for a time, messages without a ticket need not wait behind the line
	// (newcomer), and then the line counts as lost (lost), both beside the mean duration of a call.
	freeShare = 5
	newcomer  = 5 * time.Second
	lost      = time.Minute
	// callOverhead is the time between the end of a call and the beginning of the next one with its permit.
	callOverhead = 30 * time.Millisecond
	// frontShare is by how much of its distance from the front a ticket moves the front.
	frontShare = 0.02
	// meanCalls is how many calls the mean duration takes into account, at least.
	meanCalls = 8
)

// permitRow has the permits of a target with a limited concurrency, and the line of the messages that wait for one.
type permitRow struct {
	// Issued is the latest ticket of the line, and Front about the latest with which a call has begun.
	Issued int64   `json:"issued"`
	Front  float64 `json:"front"`
	// Mean is the moving average of the duration of a call, in seconds.
	Mean float64 `json:"mean"`
	// FreeSince is since when a fifth of the permits is free; zero if it is not.
	FreeSince time.Time `json:"freeSince,omitzero"`
	// Holders has the permits of each instance.
	Holders map[string]holding `json:"holders,omitempty"`
}

// parsePermits reads a row. One that somebody has damaged counts as new.
func parsePermits(content []byte) permitRow {
	r := permitRow{Mean: 1}
	err := json.Unmarshal(content, &r)
	isSane := err == nil && r.Mean >= 0 && r.Mean < time.Hour.Seconds() && r.Front >= 0 && r.Issued >= 0
	if !isSane {
		return permitRow{Mean: 1}
	}
	return r
}

// holding is how many permits an instance has, and when others may take them.
type holding struct {
	Permits int       `json:"permits"`
	Until   time.Time `json:"until"`
}

// wants is what an instance knows and asks for when it updates the row.
type wants struct {
	instance string
	// used is the number of its calls in flight.
	used int
	// waiting are its messages without a permit, by ticket, those without one last.
	waiting []*waiter
	// ended are the durations of its calls, and begun the tickets with which calls have begun, since its latest update.
	ended []time.Duration
	begun []int64
}

// grants is what an instance gets by an update.
type grants struct {
	// chosen are the messages that get a permit, and tickets those that get a place in the line.
	chosen  []*waiter
	tickets map[*waiter]int64
	// permits is the number of its permits, until is when its lease ends.
	permits int
	until   time.Time
}

// update gives an instance as many permits as it needs and the limit allows.
func (r *permitRow) update(limit int, now time.Time, w wants) grants {
	r.Holders = maps.Clone(r.Holders)
	maps.DeleteFunc(r.Holders, func(_ string, h holding) bool { return !h.Until.After(now) })
	mine := r.Holders[w.instance]
	delete(r.Holders, w.instance)
	others := 0
	for _, h := range r.Holders {
		others += h.Permits
	}
	for _, ticket := range w.begun {
		r.advance(ticket)
	}
	for _, took := range w.ended {
		r.Mean += (took.Seconds() - r.Mean) / float64(max(meanCalls, limit))
	}
	g := r.choose(w, max(w.used, limit-others), limit, now)
	g.permits = w.used + len(g.chosen)
	if g.permits > 0 {
		g.until = mine.Until
		if g.permits > mine.Permits || mine.Until.Before(now.Add(lease-renewEvery/2)) {
			g.until = now.Add(lease)
		}
		if r.Holders == nil {
			r.Holders = map[string]holding{}
		}
		r.Holders[w.instance] = holding{g.permits, g.until}
	}
	isFree := others+g.permits <= limit-max(1, limit/freeShare)
	if !isFree {
		r.FreeSince = time.Time{}
	} else if r.FreeSince.IsZero() {
		r.FreeSince = now
	}
	return g
}

// choose divides the messages that wait into those that get a permit, of which the instance may have room in all, and
// those that get a ticket.
func (r *permitRow) choose(w wants, room, limit int, now time.Time) grants {
	g := grants{tickets: map[*waiter]int64{}}
	free := time.Duration(0)
	if !r.FreeSince.IsZero() {
		free = now.Sub(r.FreeSince)
	}
	for _, m := range w.waiting {
		hasTurn := m.ticket > 0 || !r.isLine() || free > newcomer+seconds(r.Mean/2)
		if hasTurn && w.used+len(g.chosen) < room {
			if m.ticket > 0 {
				r.advance(m.ticket)
			}
			g.chosen = append(g.chosen, m)
			continue
		}
		if m.ticket == 0 && (float64(r.Issued+1)-r.Front)/r.pace(limit) < m.deadline.Sub(now).Seconds() {
			r.Issued++
			g.tickets[m] = r.Issued
		}
	}
	if free > lost+seconds(2*r.Mean) {
		r.Front, r.FreeSince = float64(r.Issued), now
	}
	return g
}

// advance moves the front of the line by one place, because a call has begun with a ticket, and a little towards the
// ticket. One far ahead of the front means that messages between are gone, one behind it that others are there, too,
// which would come back again and again if the front moved on. The front does not move back: it may be a straggler.
func (r *permitRow) advance(ticket int64) {
	r.Issued = max(r.Issued, ticket)
	r.Front += max(0, 1+frontShare*(float64(ticket)-r.Front-1))
	r.Front = min(r.Front, float64(r.Issued))
}

// isLine reports whether messages wait in the line.
func (r *permitRow) isLine() bool { return r.Front < float64(r.Issued) }

// pace is how many calls begin in a second if all permits are in use.
func (r *permitRow) pace(limit int) float64 {
	return float64(limit) / (1.03*r.Mean + callOverhead.Seconds())
}

// wait returns after which time a message with a ticket should come back.
func (r *permitRow) wait(ticket int64, limit int) time.Duration {
	places := float64(ticket) - r.Front + 0.5 - slack*math.Sqrt(float64(limit))
	return max(0, min(seconds(earlyShare*places/r.pace(limit)), longest)-earlyLead)
}
