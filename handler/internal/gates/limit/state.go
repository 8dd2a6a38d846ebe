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

// LongestWait is how long a message waits at the gate at most, until its call begins or it is refused.
const LongestWait = backWait + turnWait

// The constants of the line were chosen in a simulation (handler/tools/simulation).
const (
	// turnWait and lineWait are how long a message waits in the handler for its turn, and to be the first in the line.
	turnWait = 2 * time.Second
	lineWait = 4 * time.Second
	// backWait is the same for a message without room for a ticket that has come back: each delivery is one of few.
	backWait = 30 * time.Second
	// lease is how long an instance that stops renewing keeps its permits. It renews them every renewEvery, and begins
	// no call in the last leaseReserve.
	lease        = time.Minute
	renewEvery   = 15 * time.Second
	leaseReserve = 5 * time.Second
	// The line moves early: a permit or a turn that waits for its message is lost. A message comes back after
	// earlyShare of the time until it is the first, less earlyLead. EarlyPlaces, times the square root of the calls
	// that can begin at once, is how many places earlier than its own it may come.
	earlyShare  = 0.8
	earlyLead   = 3 * time.Second
	earlyPlaces = 1.5
	// One without room for a ticket comes back after lateShare of the time: it does not wait behind others then.
	lateShare = 1.2
	// patience is how long no message with a ticket was left waiting, or permits and turns were free, until newcomers
	// may be called: tickets were lost. Each moves the front by driftShare of the line. From spareTime on, a newcomer
	// waits in the handler for that, because its place in the line would be a late one.
	patience   = 5 * time.Second
	spareTime  = 2 * time.Second
	driftShare = 0.1
	// A message with a ticket that has waited for lineWait moves the front back by pullShare of its distance: fewer
	// tickets were lost than it seemed.
	pullShare = 0.2
	// freeShare is the part of the permits that is free if calls could begin: a fifth.
	freeShare = 5
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
	// longestLine is more places than any line has. Most lines have no more than the calls of a month, or so many as
	// shortLine, because the limit may have been higher.
	longestLine = 1e9
	shortLine   = 1e6
	month       = 30 * 24 * time.Hour
	// A row has room for maxHolders instances, of whose names it has nameBytes: 48 random bits of a UUID.
	maxHolders = 1000
	nameBytes  = 13
)

// Bounds of the delay of a message that waits in the line.
const (
	longestSleep = 10 * time.Minute
	lineShare    = 4 // of the time that the line takes, if that is longer
	sleepShare   = 3 // of the time until its deadline
	ageFactor    = 2 // of the age of the message, because the line before it may have been cancelled
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
// in the state. The limits do not depend on the state.
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
	// FreeSince is since when a fifth of the permits is free, and a turn; zero if that is not so. LeftAt is when a
	// message with a ticket was left waiting for the last time, MovedAt when the front moved.
	FreeSince time.Time `json:"freeSince,omitzero"`
	LeftAt    time.Time `json:"leftAt,omitzero"`
	MovedAt   time.Time `json:"movedAt,omitzero"`
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
	isSane := err == nil && s.Mean >= 0 && s.Issued > 0 && s.Issued < envelope.MaxTicket-longestLine &&
		math.Abs(float64(s.Issued)-s.Front) < longestLine
	if isSane {
		return s
	}
	start := 1 + rand.Int64N(1<<48) //nolint:gosec // the runtime's generator is a cipher
	return state{Issued: start, Front: float64(start), Mean: 1}
}

// doubt corrects what no instance can have written by now. Anyone who can write to the table may have done it, and
// would stop the target until then.
func (s *state) doubt(q question) {
	latest := q.now.Add(grace)
	for _, at := range []*time.Time{&s.FreeSince, &s.LeftAt, &s.MovedAt} {
		if at.After(latest) {
			*at = time.Time{}
		}
	}
	maps.DeleteFunc(s.Holders, func(_ string, h holding) bool {
		return !h.Until.After(q.now) || h.Until.After(latest.Add(lease)) || h.Permits <= 0
	})
	farthest := q.now.Add(longestAhead + times(q.profile.Burst, interval(q.profile)))
	if q.profile.Rate > 0 && s.Next.After(farthest) {
		s.Next = farthest
	}
	s.Mean = min(s.Mean, targets.MaxTimeout.Seconds())
	fastest := state{}
	waiting := float64(s.Issued) - s.Front
	if waiting < 0 || waiting > max(shortLine, month.Seconds()*fastest.pace(q.profile)) {
		s.Front = float64(s.Issued)
	}
}

// waiter is a message that asks to be called.
type waiter struct {
	// expires is its deadline by the clock of this machine, and deadline by that of the row.
	expires, deadline time.Time
	// since is when it came, by the clock of this machine, and waited how long ago that was when it asks.
	since  time.Time
	waited time.Duration
	// lag is how long before it was due, if that is known. Age is how long ago it was created or, if that is later, its
	// call was attempted; 0 without a ticket.
	lag, age time.Duration
	// ticket is its place in the line, 0 for none. Deliveries is how often one without room for a ticket was
	// delivered; 0 for others.
	ticket     int64
	deliveries int
	// hasPlace says that it may wait in the handler.
	hasPlace bool
	answer   chan answer
}

// canStay reports whether the message waits in the handler for what comes after a time, at most so long in all.
func (w *waiter) canStay(ahead, longest time.Duration) bool {
	return w.hasPlace && w.waited < longest && ahead < longest-w.waited
}

// isBack reports whether it is one without room for a ticket that has come back.
func (w *waiter) isBack() bool { return w.deliveries > 1 }

// hasTicket reports whether the line knows the message.
func (w *waiter) hasTicket() bool { return w.ticket > 0 || w.isBack() }

// inLine orders messages by their places in the line. Those without a place are the last.
func inLine(a, b *waiter) int {
	if a.isBack() || b.isBack() {
		return cmp.Compare(b.deliveries, a.deliveries)
	}
	if a.ticket == 0 || b.ticket == 0 {
		return cmp.Compare(b.ticket, a.ticket)
	}
	return cmp.Compare(a.ticket, b.ticket)
}

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
	// lag is how late messages arrive, because others are before them on the queue.
	lag time.Duration
	// waiting are its messages that wait, in the order of [inLine].
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
	free := s.freeFor(q.now)
	s.checkTickets(q)
	grant := math.MaxInt
	if p.Concurrency > 0 {
		grant = max(q.used, p.Concurrency-others)
		if len(s.Holders) >= maxHolders {
			grant = q.used // the row has no room
		}
	}
	r = s.choose(q, grant, free)
	s.Front = min(s.Front, float64(s.Issued))
	r.permits = q.used + r.chosen
	isFree := !s.turn(p, q.now).After(q.now)
	if p.Concurrency > 0 {
		r.until = s.hold(q, mine, r.permits)
		isFree = isFree && others+r.permits <= p.Concurrency-max(1, p.Concurrency/freeShare)
	}
	switch {
	case !isFree:
		s.FreeSince = time.Time{}
	case s.FreeSince.IsZero():
		s.FreeSince = q.now
	}
	if r.chosen > 0 || q.begun > 0 {
		s.MovedAt = q.now
	}
	s.answerRest(q, grant, &r)
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
	s.Front += float64(q.begun)
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

// checkTickets takes tickets from messages that are not of this line: a sender can write any number.
func (s *state) checkTickets(q question) {
	for _, m := range q.waiting {
		if !s.knows(q.profile, m.ticket) {
			m.ticket = 0
		}
	}
	slices.SortStableFunc(q.waiting, inLine)
}

// knows reports whether a ticket is of this line.
func (s *state) knows(p targets.Profile, ticket int64) bool {
	oldest := s.Front - validPlaces - validFor.Seconds()*min(s.pace(p), 1e6)
	return 0 < ticket && ticket <= s.Issued && float64(ticket) >= oldest
}

// choose gives permits and turns to the first messages of the instance, which may have so many permits, and tickets to
// the others. Messages without a ticket wait behind the line, unless tickets seem to be lost.
func (s *state) choose(q question, grant int, free time.Duration) reply {
	p, now := q.profile, q.now
	r := reply{answers: map[*waiter]answer{}}
	if s.LeftAt.IsZero() {
		s.LeftAt = now.Truncate(time.Second)
	}
	late := patience + 2*q.lag
	isLost := now.Sub(s.LeftAt) > late+2*s.unit(p) || free > late+s.unit(p)/2
	ahead := s.ahead(p)
	for _, m := range q.waiting {
		at := s.turn(p, now)
		isHere := !at.After(now) || m.hasPlace && at.Sub(now) <= ahead
		isNext := m.hasTicket() || !s.isLine() || isLost
		switch {
		case !m.deadline.After(now):
			if m.hasTicket() {
				s.Front++
			}
			r.answers[m] = answer{}
		case isNext && isHere && at.Before(m.deadline) && q.used+r.chosen < grant:
			s.begin(m, q)
			r.chosen++
			r.answers[m] = answer{granted: true, hasPermit: p.Concurrency > 0, at: at}
		case (isLost || free > spareTime) && !m.hasTicket() && m.canStay(at.Sub(now), lineWait):
			r.answers[m] = answer{stays: true}
		default:
			r.answers[m] = answer{ticket: s.leave(m, q)}
		}
	}
	return r
}

// begin takes the turn of a message, and moves the front of the line.
func (s *state) begin(m *waiter, q question) {
	switch {
	case m.hasTicket():
		s.Front++
	case s.isLine():
		s.Front += 1 + driftShare*(float64(s.Issued)-s.Front)
	}
	if !m.hasTicket() && !s.FreeSince.IsZero() {
		s.FreeSince = q.now // the next one waits as long
	}
	if q.profile.Rate > 0 {
		s.Next = bounds.Later(s.Next, q.now).Add(interval(q.profile))
	}
}

// leave notes that a message is left waiting, and returns its ticket; 0 if it would come too late.
func (s *state) leave(m *waiter, q question) (ticket int64) {
	p := q.profile
	if m.hasTicket() {
		s.LeftAt = q.now.Truncate(time.Second)
	}
	if m.ticket > 0 && m.waited >= lineWait {
		distance := s.Front - float64(m.ticket) - 2*math.Sqrt(float64(min(p.Concurrency, 100))) - 30*s.pace(p)
		s.Front -= pullShare * max(0, distance)
	}
	if !m.hasTicket() && s.timeOf(p, s.Issued+1) < m.deadline.Sub(q.now) {
		s.Issued++
		return s.Issued
	}
	return m.ticket
}

// answerRest says what the messages do that get no permit or turn.
func (s *state) answerRest(q question, grant int, r *reply) {
	p, now := q.profile, q.now
	detail := "limit " + p.RateText
	if p.Rate == 0 || q.used+r.chosen >= grant {
		detail = fmt.Sprintf("limit %d at a time", p.Concurrency)
	}
	again := time.Second + min(s.unit(p)/againShare, longestAgain)
	longest := max(longestSleep, s.timeOf(p, s.Issued)/lineShare)
	before := 0
	for _, m := range q.waiting {
		a := r.answers[m]
		if a.granted || a.stays || !m.deadline.After(now) {
			continue
		}
		before++
		left := m.deadline.Sub(now)
		ahead, wait := left/2, lineWait // no turn before the deadline, as it looks
		if a.ticket > 0 {
			ahead = s.wait(q, max(float64(a.ticket)-s.Front+0.5, float64(before)))
		}
		if m.isBack() {
			ahead, wait = 0, backWait
		}
		ahead = max(ahead, s.turn(p, now).Sub(now)-turnWait)
		a.detail = detail
		a.stays = m.canStay(ahead, wait)
		switch {
		case m.isBack():
			a.delay = max(ahead, backWait)
		case m.deliveries > 0 && a.ticket > 0: // once, and rather late: it is served from the front
			a.delay = max(again, bounds.Seconds(lateShare*s.timeOf(p, a.ticket).Seconds()))
		default:
			byAge := max(patience+2*s.unit(p), bounds.Seconds(ageFactor*m.age.Seconds()))
			most := min(longest, left/sleepShare, byAge)
			a.delay = min(max(ahead, again), bounds.Seconds((0.8+0.2*q.random())*most.Seconds()))
		}
		r.answers[m] = a
	}
	r.look = s.look(q)
}

// look returns after which time a message that waits may be called.
func (s *state) look(q question) time.Duration {
	p := q.profile
	look := min(max(s.unit(p)/lookShare, shortestLook), longestLook)
	look = bounds.Seconds((0.5 + 0.5*q.random()) * look.Seconds())
	return min(max(look, s.turn(p, q.now).Add(-s.ahead(p)).Sub(q.now)), lineWait)
}

// wait returns after which time a message should come back that has so many places of the line before it.
func (s *state) wait(q question, places float64) time.Duration {
	p := q.profile
	atOnce := max(p.Burst, 1)
	if p.Concurrency > 0 {
		atOnce = min(p.Concurrency, atOnce)
	}
	if p.Rate == 0 {
		atOnce = p.Concurrency
	}
	places -= earlyPlaces * math.Sqrt(float64(atOnce))
	until := max(0, bounds.Seconds(places/s.pace(p)))
	if !s.MovedAt.IsZero() {
		until -= q.now.Sub(s.MovedAt) // at most the longest duration
	}
	return max(0, bounds.Seconds(earlyShare*until.Seconds())-earlyLead)
}

// timeOf returns how long the line takes until a ticket is the first.
func (s *state) timeOf(p targets.Profile, ticket int64) time.Duration {
	return bounds.Seconds(max(0, float64(ticket)-s.Front) / s.pace(p))
}

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

// freeFor returns how long calls could have begun.
func (s *state) freeFor(now time.Time) time.Duration {
	if s.FreeSince.IsZero() {
		return 0
	}
	return now.Sub(s.FreeSince)
}

// pace is how many calls begin in a second if the limits are in use.
func (s *state) pace(p targets.Profile) float64 { return Pace(p, s.Mean) }

// Pace returns how many calls of a profile begin in a second if its limits are in use and a call takes so many seconds
// on average; +Inf if it has none.
func Pace(p targets.Profile, mean float64) float64 {
	pace := math.Inf(1)
	if p.Concurrency > 0 {
		pace = float64(p.Concurrency) / (1.03*mean + callOverhead.Seconds())
	}
	if p.Rate > 0 {
		pace = min(pace, float64(p.Rate))
	}
	return pace
}

// unit is how long a permit is used or, without permits, the time between two turns.
func (s *state) unit(p targets.Profile) time.Duration {
	if p.Concurrency > 0 {
		return bounds.Seconds(s.Mean)
	}
	return interval(p)
}

// interval is the time between two turns.
func interval(p targets.Profile) time.Duration { return bounds.Seconds(1 / float64(p.Rate)) }

func times(n int, d time.Duration) time.Duration { return bounds.Seconds(float64(n) * d.Seconds()) }
