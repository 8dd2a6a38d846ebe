package admission

import (
	"context"
	"sync"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// A target gets a slot of a queue function while its calls in flight are fewer than a sharePart-th of the free slots,
// and always up to minShare. This is the dynamic threshold of switches with a shared buffer (Choudhury and Hahne,
// 1998): it leaves slots free however many targets hang, and needs no configuration. With a pool of 224 one target gets
// up to 56 slots, and five get up to 28 each.
const (
	sharePart = 3
	minShare  = 8
)

// Shares is the gate that lets each target have its share of the slots. The call begins behind it. It is safe for
// concurrent use.
type Shares struct {
	room     *Room
	breakers *Breakers
	now      func() time.Time

	mu sync.Mutex
	// calls are those in flight, in no order.
	calls []*share
	// lines has the lines of messages that wait because the targets of a class hold too many slots.
	lines map[lineOf]*line
	// shares has the calls of each target by function, totals those of all functions. Each is a table of its own:
	// making room for one entry of a call must not forget another of the call.
	shares, totals *table[flow]
}

// allFunctions stands for all functions; no function has this name.
const allFunctions = ""

// NewShares returns the shares of an instance.
func NewShares(room *Room, breakers *Breakers, now func() time.Time) *Shares {
	return &Shares{
		room: room, breakers: breakers, now: now,
		lines:  map[lineOf]*line{},
		shares: newTable((*flow).atRest),
		totals: newTable((*flow).atRest),
	}
}

// share is the place of a call in the shares.
type share struct {
	shares   *Shares
	function string
	// bytes is the memory of the call.
	bytes int
	began time.Time
	// isTrial says that the target was not trusted when the call began, and none of the bounds of its class applied.
	isTrial bool
	// index is its place in the calls.
	index int
	// ofFunction has the target's calls of the function, ofAll those of all functions.
	ofFunction, ofAll *entry[flow]
}

// Enter implements [delivery.Gate].
func (s *Shares) Enter(_ context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	now, profile, bytes := s.now(), &due.Intake.Profile, s.room.bytesOf(due)
	function := due.Message.Function
	hasBreaker := profile.Breaker.Off || s.breakers.has(due.Target)
	freeSlots, freeCalls := s.room.besides(function, bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &share{
		shares:     s,
		function:   function,
		bytes:      bytes,
		began:      now,
		ofFunction: s.shares.getOrShare(function+" "+due.Target, function, now),
		ofAll:      s.totals.getOrShare(due.Target, allFunctions, now),
	}
	for _, b := range s.bounds(c, profile, freeSlots, freeCalls, hasBreaker) {
		if b.calls >= b.limit {
			return nil, busy(b.name, c.delay(b, due.Jitter))
		}
	}
	c.begin()
	return c, nil
}

// bound is a limit on calls in flight.
type bound struct {
	name         string
	line         *line
	calls, limit int
	// pace is how many of them end in a second, if the limit is reached.
	pace float64
}

// delay returns when a message comes back that a bound has refused.
func (c *share) delay(b bound, jitter float64) time.Duration {
	trust := &c.ofAll.value.trust
	if b.name == untrusted.String() && trust.answers(c.began) { // it waits for a trial, not for its part
		return trust.retryDelay(c.began, jitter)
	}
	return b.line.queueDelay(b.pace, b.limit, c.began, jitter)
}

func boundOf(name string, e *entry[flow], limit int, now time.Time) bound {
	return bound{name, &e.value.line, e.calls, limit, e.value.pace(e.calls, limit, now)}
}

// bounds returns the limits of a call, for which so many slots of its function, and calls of all, are free.
func (s *Shares) bounds(c *share, p *targets.Profile, freeSlots, freeCalls int, hasBreaker bool) (bounds []bound) {
	now := c.began
	limit := max(shareOf(freeSlots, c.ofFunction.calls), minShare)
	trust := &c.ofAll.value.trust
	if class := trust.class(now); class > trusted {
		held, tried := s.held(c.function, now)
		c.isTrial = trust.mayTry(tried, now)
		if c.isTrial {
			class = trusted
		}
		for of := untrusted; of <= class; of++ {
			h, part, partOfAll := held[of], max(s.room.poolSize>>of, minShare), poolBytes>>of/s.room.callBytes
			ofAll := h.bytes / s.room.callBytes
			bounds = append(bounds,
				bound{of.String(), s.line(c.function, of), h.calls, part, paceOf(part, h.longest)},
				bound{of.String(), s.line(allFunctions, of), ofAll, partOfAll, paceOf(partOfAll, h.longest)})
			freeCalls = min(freeCalls, partOfAll-ofAll)
			// A target gets half of what is free of its part, so that others find a slot there, too.
			limit = (max(part-h.calls, 0) + c.ofFunction.calls + 1) / 2
		}
	}
	if !hasBreaker { // nothing would notice that the target is down
		limit = min(limit, minShare)
	}
	if p.Concurrency > 0 { // which the gate of the limits counts, instead of a share
		return append(bounds, boundOf("instance", c.ofAll, c.ofAll.calls+max(freeCalls, 0), now))
	}
	return append(bounds,
		boundOf("instance", c.ofAll, shareOf(freeCalls, c.ofAll.calls), now),
		boundOf("share", c.ofFunction, limit, now))
}

// shareOf returns a target's share of a pool, from the slots that are free for all targets and the target's calls in
// flight.
func shareOf(free, calls int) int { return (max(free, 0) + calls + sharePart) / (sharePart + 1) }

// begin begins the call.
func (c *share) begin() {
	c.index = len(c.shares.calls)
	c.shares.calls = append(c.shares.calls, c)
	c.ofAll.value.trust.began = append(c.ofAll.value.trust.began, c.began)
	for _, f := range c.flows() {
		f.calls++
		f.value.begin(c.began)
	}
}

// flows returns what counts the call.
func (c *share) flows() [2]*entry[flow] { return [...]*entry[flow]{c.ofFunction, c.ofAll} }

// Ended implements [decision.Pass]. The target has its place again before the message is settled, in which it has no
// part.
func (c *share) Ended(o *decision.Outcome, at time.Time) {
	c.shares.mu.Lock()
	defer c.shares.mu.Unlock()
	took, trust := at.Sub(c.began), &c.ofAll.value.trust
	c.shares.remove(c)
	trust.leave(c.began)
	for _, f := range c.flows() {
		f.calls--
		f.value.leave(c.began)
		f.value.took(took)
	}
	if o != nil {
		trust.ended(took, judge(*o), at)
	}
}

// Released implements [decision.Pass].
func (c *share) Released(time.Time) {}

// remove removes a call that has ended.
func (s *Shares) remove(c *share) {
	last := len(s.calls) - 1
	s.calls[c.index] = s.calls[last]
	s.calls[c.index].index = c.index
	s.calls[last] = nil
	s.calls = s.calls[:last]
}
