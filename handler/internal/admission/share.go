package admission

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/targets"
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
	// isLimitedTogether says that a gate before this one counts the limits of profiles, for all instances together.
	isLimitedTogether bool
	now               func() time.Time

	mu sync.Mutex
	// calls are those in flight, in no order.
	calls []*share
	// lines has the lines of messages that wait because the targets of a class hold too many slots.
	lines map[lineOf]*line
	// shares has the calls of each target by function, totals those of all functions; limits has those of each scope of
	// a profile. Each is a table of its own: making room for one entry of a call must not forget another of the call.
	shares, totals, limits *table[flow]
}

// allFunctions stands for all functions; no function has this name.
const allFunctions = ""

// NewShares returns the shares of an instance. IsLimitedTogether says that a gate before this one counts the limits of
// profiles that are not those of each instance.
func NewShares(room *Room, breakers *Breakers, isLimitedTogether bool, now func() time.Time) *Shares {
	return &Shares{
		room: room, breakers: breakers, isLimitedTogether: isLimitedTogether, now: now,
		lines:  map[lineOf]*line{},
		shares: newTable((*flow).atRest),
		totals: newTable((*flow).atRest),
		limits: newTable((*flow).atRest),
	}
}

// share is the place of a call in the shares.
type share struct {
	shares   *Shares
	function string
	// bytes is the memory of the call.
	bytes int
	began time.Time
	// index is its place in the calls.
	index int
	// ofFunction has the target's calls of the function, ofAll those of all functions.
	ofFunction, ofAll *entry[flow]
	// limit is nil if the profile has no limits that are counted here.
	limit *entry[flow]
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
	if (profile.Concurrency > 0 || profile.Rate > 0) && !s.isLimitedElsewhere(profile) {
		c.limit = s.limits.getOrShare(profile.Scope, profile.Pattern, now)
	}
	bounds := s.bounds(c, profile, freeSlots, freeCalls, hasBreaker)
	for _, b := range bounds {
		if b.calls >= b.limit {
			return nil, busy(b.name, b.line.queueDelay(b.pace, b.limit, now, due.Jitter))
		}
	}
	if profile.Rate > 0 && c.limit != nil {
		if delay := c.tooFast(profile, now, due.Jitter); delay > 0 {
			return nil, busy("rate", delay)
		}
	}
	c.begin()
	return c, nil
}

func (s *Shares) isLimitedElsewhere(p *targets.Profile) bool {
	return s.isLimitedTogether && p.IsLimited()
}

// bound is a limit on calls in flight.
type bound struct {
	name         string
	line         *line
	calls, limit int
	// pace is how many of them end in a second, if the limit is reached.
	pace float64
}

func boundOf(name string, e *entry[flow], limit int, now time.Time) bound {
	return bound{name, &e.value.line, e.calls, limit, e.value.pace(e.calls, limit, now)}
}

// bounds returns the limits of a call, for which so many slots of its function, and calls of all, are free.
func (s *Shares) bounds(c *share, p *targets.Profile, freeSlots, freeCalls int, hasBreaker bool) (bounds []bound) {
	now := c.began
	limit := max(shareOf(freeSlots, c.ofFunction.calls), minShare)
	if class := c.ofAll.value.trust.class(now); class > trusted {
		held := s.held(c.function, now)
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
	switch {
	case p.Concurrency == 0:
		return append(bounds,
			boundOf("instance", c.ofAll, shareOf(freeCalls, c.ofAll.calls), now),
			boundOf("share", c.ofFunction, limit, now))
	case c.limit != nil: // the limit is instead of the shares
		return append(bounds,
			boundOf("instance", c.ofAll, c.ofAll.calls+max(freeCalls, 0), now),
			boundOf("concurrency", c.limit, p.Concurrency, now))
	}
	return append(bounds, boundOf("instance", c.ofAll, c.ofAll.calls+max(freeCalls, 0), now))
}

// shareOf returns a target's share of a pool, from the slots that are free for all targets and the target's calls in
// flight.
func shareOf(free, calls int) int { return (max(free, 0) + calls + sharePart) / (sharePart + 1) }

// tooFast returns when a call beyond the profile's limit on calls per second comes back; zero if it is within it.
func (c *share) tooFast(p *targets.Profile, now time.Time, jitter float64) time.Duration {
	scope := &c.limit.value
	if scope.rate == nil {
		scope.rate = rate.NewLimiter(p.Rate, p.Burst)
	}
	if scope.rate.AllowN(now, 1) {
		return 0
	}
	return scope.rateLine.queueDelay(float64(p.Rate), p.Burst, now, jitter)
}

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
func (c *share) flows() []*entry[flow] {
	flows := []*entry[flow]{c.ofFunction, c.ofAll}
	if c.limit != nil {
		flows = append(flows, c.limit)
	}
	return flows
}

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
