package limit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

// The constants of the line were chosen in a simulation (handler/tools/simulation).
const (
	// turnWait and lineWait are how long a message waits in the handler for its turn, and to be the first in the line.
	turnWait = 2 * time.Second
	lineWait = 4 * time.Second
	// backWait is the same for a message without room for a ticket that has come back, and how long it goes away at
	// least: each delivery is one of few.
	backWait = 30 * time.Second
	// lease is how long an instance that stops renewing keeps its permits. It renews them every renewEvery, and begins
	// no call in the last leaseReserve.
	lease        = time.Minute
	renewEvery   = 15 * time.Second
	leaseReserve = 5 * time.Second
	// The line moves early: a permit or a turn that waits for its message is lost. A message comes back after
	// earlyShare of the time until it is the first, less earlyLead. One without room for a ticket comes back after
	// lateShare: it does not wait behind others then.
	earlyShare = 0.8
	earlyLead  = 3 * time.Second
	lateShare  = 1.2
	// In patience and the time of two calls, of at most longestUnit, the messages at the front come at least once.
	patience    = 5 * time.Second
	longestUnit = time.Minute
	// shortestAhead is how far ahead a turn can be taken at least.
	shortestAhead = 20 * time.Millisecond
	// callOverhead is the time between the end of a call and the beginning of the next one with its permit, beside a
	// share of the call.
	callOverhead = 30 * time.Millisecond
	// meanCalls is how many calls the mean duration takes into account, at least.
	meanCalls = 8
	// longestAhead is how far ahead a turn can be, beside the burst. One further ahead was not written by an instance.
	longestAhead = 10 * time.Second
	// grace is how long after now another time may be. A later one was not written by an instance.
	grace = time.Minute
	// validFor is how long before the front a ticket is valid, and validPlaces how many places before it in any case.
	validFor    = 20 * time.Minute
	validPlaces = 64
	// longestLine is how many places a line has at most. A longer one counts as lost.
	longestLine = 1e6
	// A row has room for maxHolders instances, of whose names it has nameBytes: 48 random bits of a UUID.
	maxHolders = 1000
	nameBytes  = 13
)

// Bounds of the delay of a message that waits in the line.
const (
	ageFactor    = 4 // of the age of the message: what is known of the line may be wrong
	sleepShare   = 3 // of the time until its deadline
	againShare   = 20
	longestAgain = 10 * time.Second
)

// Bounds of the time until an instance with messages that wait looks again.
const (
	lookShare    = 10
	shortestLook = 30 * time.Millisecond
	longestLook  = time.Second
)

// state is what the row of a limited target counts: permits, turns, and the line of the messages that wait for them.
// Nothing in it is promised to a message: one takes its permit and its turn when it may be called. A ticket is a place
// in the line. The limits do not depend on the line.
type state struct {
	// Issued is the latest ticket, Front about the latest whose message had its turn. A line begins at a random number,
	// so that nobody can guess a ticket.
	Issued int64   `json:"issued"`
	Front  float64 `json:"front"`
	// Mean is the moving average of the duration of a call, in seconds.
	Mean float64 `json:"mean"`
	// Next is the theoretical arrival time of the generic cell rate algorithm: when the next turn is, if calls come
	// evenly.
	Next time.Time `json:"next,omitzero"`
	// Holders has the permits of each instance.
	Holders map[string]holding `json:"holders,omitempty"`
	// Lowest is the lowest ticket of those that were left waiting since a time; 0 if there was none.
	Lowest int64     `json:"lowest,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// holding is how many permits an instance has, and when others may take them, in whole seconds.
type holding struct {
	Permits int       `json:"permits"`
	Until   time.Time `json:"until"`
}

// parse reads a row. One that somebody has damaged counts as new; see also [state.doubt].
func parse(content []byte) state {
	var s state
	err := json.Unmarshal(content, &s)
	if err == nil && s.Mean >= 0 && s.Issued > 0 && s.Issued < envelope.MaxTicket-longestLine {
		return s
	}
	start := 1 + rand.Int64N(1<<48) //nolint:gosec // the runtime's generator is a cipher
	return state{Issued: start, Front: float64(start), Mean: 1}
}

// doubt corrects what no instance can have written by now. Anyone who can write to the table may have done it, and
// would stop the target until then.
func (s *state) doubt(q question) {
	latest := q.now.Add(grace)
	if s.Since.After(latest) {
		s.Since = time.Time{}
	}
	if s.Lowest < 0 || s.Lowest > s.Issued {
		s.Lowest = 0
	}
	maps.DeleteFunc(s.Holders, func(_ string, h holding) bool {
		return !h.Until.After(q.now) || h.Until.After(latest.Add(lease)) || h.Permits <= 0
	})
	farthest := q.now.Add(longestAhead + times(q.profile.Burst, interval(q.profile)))
	if q.profile.Rate > 0 && s.Next.After(farthest) {
		s.Next = farthest
	}
	s.Mean = min(s.Mean, targets.MaxTimeout.Seconds())
	length := float64(s.Issued) - s.Front
	if length < 0 || length > longestLine {
		s.Front = float64(s.Issued)
	}
}

// waiter is a message that asks to be called.
type waiter struct {
	deadline time.Time
	// since is when it came, by the clock of this machine, and waited how long ago that was when it asks.
	since  time.Time
	waited time.Duration
	// age is how long ago it was created or, if that is later, its call was attempted.
	age time.Duration
	// ticket is its place in the line, 0 for none.
	ticket int64
	// deliveries is how often a message without room for a ticket was delivered; 0 for others.
	deliveries int
	// hasPlace says that it may wait in the handler.
	hasPlace bool
	answer   chan answer
}

// isTicketless reports whether the message has no room for a ticket, isBack whether it is one that has come back.
func (w *waiter) isTicketless() bool { return w.deliveries > 0 }
func (w *waiter) isBack() bool       { return w.deliveries > 1 }

// answer is the answer to a message: it may be called at a time, so far ahead, or it waits in the handler, or it comes
// back after a delay, and the detail says why. HasPermit says that it takes one of the permits until its call ends.
type answer struct {
	granted, hasPermit, stays bool
	at                        time.Time
	ahead, delay              time.Duration
	detail                    string
	ticket                    int64
}

// question is what an instance knows and asks for.
type question struct {
	profile  targets.Profile
	now      time.Time
	random   func() float64
	instance string
	// used is the number of its calls in flight.
	used int
	// waiting are its messages that wait.
	waiting []*waiter
	// ended are the durations of calls, and begun the number of tickets whose messages had their turn, since the latest
	// update. Unused are turns that were not used.
	ended  []time.Duration
	begun  int
	unused []time.Time
}

// reply is what an instance gets by an update.
type reply struct {
	answers map[*waiter]answer
	// permits is the number of its permits, chosen how many of them are for messages that may be called, and until when
	// its lease ends.
	permits, chosen int
	until           time.Time
	// look is after which time the messages that stay may be called.
	look time.Duration
}

// update gives permits and turns to the messages of an instance, as far as the limits allow.
func (s *state) update(q question) (r reply) {
	p := q.profile
	s.doubt(q)
	mine, others := s.takeOthers(q)
	s.count(q)
	grant := math.MaxInt
	if p.Concurrency > 0 {
		grant = max(q.used, p.Concurrency-others)
		if len(s.Holders) >= maxHolders {
			grant = q.used // the row has no room
		}
	}
	s.find(q)
	r = s.choose(q, grant)
	r.permits = q.used + r.chosen
	if p.Concurrency > 0 {
		r.until = s.hold(q, mine, r.permits)
	}
	return r
}

// takeOthers removes the permits of the instance. It returns these, and the number of the others.
func (s *state) takeOthers(q question) (mine holding, others int) {
	mine = s.Holders[q.instance]
	delete(s.Holders, q.instance)
	for _, h := range s.Holders {
		others += min(h.Permits, math.MaxInt32)
	}
	return mine, others
}

// hold notes the permits of the instance, and returns when its lease ends.
func (s *state) hold(q question, mine holding, permits int) (until time.Time) {
	if permits == 0 {
		return q.now
	}
	if permits > mine.Permits || mine.Until.Before(q.now.Add(lease-renewEvery/2)) {
		mine.Until = q.now.Add(lease).Truncate(time.Second)
	}
	if s.Holders == nil {
		s.Holders = map[string]holding{}
	}
	s.Holders[q.instance] = holding{permits, mine.Until}
	return mine.Until
}

// count notes what has happened since the latest update of the instance.
func (s *state) count(q question) {
	s.Front = min(s.Front+float64(q.begun), float64(s.Issued))
	for _, took := range q.ended {
		s.Mean += (took.Seconds() - s.Mean) / float64(max(meanCalls, min(q.profile.Concurrency, 1000)))
	}
	if q.profile.Rate == 0 {
		return
	}
	for _, at := range q.unused {
		// What is given back is used at the end of those that were given away. That is a call too many now and then if
		// it could have been used before.
		isLatest := !s.Next.Add(-times(q.profile.Burst, interval(q.profile))).After(q.now)
		if at.After(q.now) || isLatest {
			s.Next = s.Next.Add(-interval(q.profile))
		}
	}
}

// sort orders messages by their places. Those without room for a ticket that have come back are the first, because each
// delivery is one of few, and those without a place the last.
func (s *state) sort(p targets.Profile, waiting []*waiter) {
	order := func(m *waiter) int64 {
		if m.isBack() {
			return -int64(m.deliveries)
		}
		return cmp.Or(s.placeOf(p, m), math.MaxInt64)
	}
	slices.SortStableFunc(waiting, func(a, b *waiter) int { return cmp.Compare(order(a), order(b)) })
}

// placeOf returns the place of a message in the line, 0 for none: that of its ticket, if it is of this line, because a
// sender can write any number. A message without room for a ticket that has come back is the next.
func (s *state) placeOf(p targets.Profile, m *waiter) int64 {
	oldest := s.Front - validPlaces - validFor.Seconds()*min(s.pace(p), 1e6)
	switch {
	case m.isBack():
		return min(max(0, int64(s.Front))+1, s.Issued)
	case 0 < m.ticket && m.ticket <= s.Issued && float64(m.ticket) >= oldest:
		return m.ticket
	}
	return 0
}

// choose gives permits and turns to the first messages of the instance, which may have so many permits, and tickets to
// the others.
func (s *state) choose(q question, grant int) reply {
	s.sort(q.profile, q.waiting)
	p, now := q.profile, q.now
	r := reply{answers: map[*waiter]answer{}}
	before := 0
	for _, m := range q.waiting {
		at := s.turn(p, now)
		isHere := !at.After(now) || m.hasPlace && at.Sub(now) <= s.ahead(p)
		hasPermit := q.used+r.chosen < grant
		place := s.placeOf(p, m)
		if (place > 0 || !s.isLine()) && isHere && hasPermit && at.Before(m.deadline) {
			if place > 0 {
				s.Front = min(s.Front+1, float64(s.Issued))
			}
			if p.Rate > 0 {
				s.Next = bounds.Later(s.Next, now).Add(interval(p))
			}
			r.chosen++
			r.answers[m] = answer{granted: true, hasPermit: p.Concurrency > 0, at: at}
			continue
		}
		a := s.leave(m, q, place, before)
		before++
		a.detail = "limit " + p.RateText
		if p.Rate == 0 || !hasPermit {
			a.detail = fmt.Sprintf("limit %d at a time", p.Concurrency)
		}
		r.answers[m] = a
	}
	r.look = s.look(q)
	return r
}

// find moves the front to the lowest ticket that was left waiting lately: those before it were lost. It moves back as
// well, but slowly, because a sender may know old tickets.
func (s *state) find(q question) {
	longest := s.silence(q.profile)
	if q.now.Sub(s.Since) <= longest {
		return
	}
	first := float64(s.Issued)
	if s.Lowest > 0 {
		first = float64(s.Lowest - 1)
	}
	latest := max(s.Front-validPlaces, first+longest.Seconds()*s.pace(q.profile)) // it has moved meanwhile
	s.Front = min(max(s.Front, first), latest, float64(s.Issued))
	s.Lowest, s.Since = 0, q.now.Truncate(time.Second)
}

// leave returns the ticket of a message that is left waiting, and for how long it is. So many others that wait in the
// handler are before it.
func (s *state) leave(m *waiter, q question, place int64, before int) answer {
	p, age := q.profile, m.age
	if place == 0 {
		s.Issued++
		place = s.Issued
	}
	if m.ticket == 0 {
		age = 0
	}
	if !m.isBack() {
		s.Lowest = min(cmp.Or(s.Lowest, place), place)
	}
	a := answer{ticket: place}
	until := bounds.Seconds(max(float64(place)-s.Front-1, float64(before)) / s.pace(p))
	turn := s.turn(p, q.now).Sub(q.now)
	ahead := max(0, bounds.Seconds(earlyShare*until.Seconds())-earlyLead, turn-turnWait)
	longest, again := lineWait, time.Second+min(s.unit(p)/againShare, longestAgain)
	if m.isBack() {
		longest, again = backWait, backWait
	}
	a.stays = m.hasPlace && ahead < longest-m.waited
	if m.isTicketless() {
		a.delay = again + bounds.Seconds(lateShare*max(until, turn).Seconds())
		return a
	}
	most := min(max(s.silence(p), bounds.Seconds(ageFactor*age.Seconds())), max(0, m.deadline.Sub(q.now))/sleepShare)
	a.delay = min(max(ahead, again), bounds.Seconds((0.8+0.2*q.random())*most.Seconds()))
	return a
}

// look returns after which time a message that waits may be called.
func (s *state) look(q question) time.Duration {
	p := q.profile
	look := min(max(s.unit(p)/lookShare, shortestLook), longestLook)
	look = bounds.Seconds((0.5 + 0.5*q.random()) * look.Seconds())
	return min(max(look, s.turn(p, q.now).Add(-s.ahead(p)).Sub(q.now)), lineWait)
}

// silence returns after how long messages that have not come were lost.
func (s *state) silence(p targets.Profile) time.Duration { return patience + 2*s.unit(p) }

// isLine reports whether messages wait in the line.
func (s *state) isLine() bool { return float64(s.Issued)-s.Front >= 0.5 }

// turn returns when the next turn is, at once or later.
func (s *state) turn(p targets.Profile, now time.Time) time.Time {
	if p.Rate == 0 {
		return now
	}
	return bounds.Later(now, s.Next.Add(-times(p.Burst-1, interval(p))))
}

// ahead returns how far ahead a turn may be taken. With both limits, its permit is taken as well, and waits.
func (s *state) ahead(p targets.Profile) time.Duration {
	if p.Rate == 0 || p.Concurrency == 0 {
		return turnWait
	}
	return max(shortestAhead, min(turnWait, bounds.Seconds(float64(p.Concurrency)/float64(p.Rate)-s.Mean)))
}

// pace is how many calls begin in a second if the limits are in use.
func (s *state) pace(p targets.Profile) float64 {
	pace := math.Inf(1)
	if p.Concurrency > 0 {
		pace = float64(p.Concurrency) / (1.03*s.Mean + callOverhead.Seconds())
	}
	if p.Rate > 0 {
		pace = min(pace, float64(p.Rate))
	}
	return pace
}

// unit is the time between two turns, or how long a permit is used if that is longer.
func (s *state) unit(p targets.Profile) time.Duration {
	var unit time.Duration
	if p.Rate > 0 {
		unit = interval(p)
	}
	if p.Concurrency > 0 {
		unit = max(unit, min(bounds.Seconds(s.Mean), longestUnit))
	}
	return unit
}

// interval is the time between two turns.
func interval(p targets.Profile) time.Duration { return bounds.Seconds(1 / float64(p.Rate)) }

func times(n int, d time.Duration) time.Duration { return bounds.Seconds(float64(n) * d.Seconds()) }
