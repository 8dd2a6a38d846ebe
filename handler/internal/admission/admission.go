// Package admission decides whether a call that is due may begin now. It keeps a target that hangs or is down from
// taking the slots of the others: each target has a share of the slots and a circuit breaker, and may have limits of
// its own. Those that are not known to answer have only a part of the slots together. A message that is refused does
// not wait, because that would hold a slot: it is rescheduled.
//
// The state is in memory, for this instance only, and none of it has to survive. There is no I/O, and the time is an
// argument.
package admission

import (
	"cmp"
	"net/url"
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

// poolBytes is the memory of the calls that the targets share over all functions, without a minimum: that of ordinary
// calls of 400 KiB. The handler must do with 256 MiB (docs/performance.md).
const poolBytes = targets.MaxCalls * 400 << 10

// ordinaryBytes is the part of [Request.Memory] that the memory of an ordinary call includes: some dozens of headers.
const ordinaryBytes = 16 << 10

// Gate admits calls. It is safe for concurrent use.
type Gate struct {
	// poolSize is how many invocations of a queue function may be in flight before the host stops to receive.
	poolSize int
	// callBytes is the most memory that an ordinary call takes.
	callBytes int

	mu sync.Mutex
	// inFlight has the slots taken of each queue function, and bytes the memory of all.
	inFlight map[string]int
	bytes    int
	// calls are those that have not ended, in no order.
	calls []*Slot
	// lines has the lines of messages that wait because the targets of a class hold too many slots.
	lines map[lineOf]*line
	// shares has the calls of each target by function, totals those of all functions; limits has those of each scope of
	// a profile. Each is a table of its own: making room for one entry of a call must not forget another of the call.
	shares, totals, limits *table[flow]
	breakers               *table[breaker]
	refused                map[Refused]int
}

// allFunctions stands for all functions; no function has this name.
const allFunctions = ""

// New returns a gate for queue functions that receive messages while at most newBatchThreshold are in flight, and
// for calls that take at most callBytes of memory beside what of [Request.Memory] is not ordinary.
func New(newBatchThreshold, callBytes int) *Gate {
	return &Gate{
		poolSize:  newBatchThreshold,
		callBytes: callBytes,
		inFlight:  map[string]int{},
		lines:     map[lineOf]*line{},
		shares:    newTable((*flow).atRest),
		totals:    newTable((*flow).atRest),
		limits:    newTable((*flow).atRest),
		breakers:  newTable((*breaker).atRest),
		refused:   map[Refused]int{},
	}
}

// Request asks for a slot.
type Request struct {
	// Function is the name of the queue function.
	Function string
	Target   *url.URL
	Profile  targets.Profile
	// Memory is how many bytes the envelope and its request take ([envelope.Envelope.Memory]).
	Memory int
	// Backoff is how long the message's retry policy waits after its latest attempt. While the target is down, it does
	// not come back sooner.
	Backoff time.Duration
	// IsShared says that the limits of the profile are counted elsewhere, for all instances together.
	IsShared bool
	// Waits says that the message may have to wait before its call begins: the caller calls [Slot.Begin] or
	// [Slot.Cancel].
	Waits bool
	// LastAttempt says that the deadline leaves no time for a later attempt. The circuit breaker then allows this one.
	LastAttempt bool
}

// Refused identifies the refusals that [Gate.Refused] counts.
type Refused struct {
	// Target is host and port, or empty for all targets for which there is no room.
	Target string
	Reason decision.Reason
	Detail string
}

// maxRefused bounds the targets that are counted by name.
const maxRefused = 100

// Refused returns how many messages were refused since it was last called.
func (g *Gate) Refused() map[Refused]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	counted := g.refused
	g.refused = map[Refused]int{}
	return counted
}

func (g *Gate) count(target string, r *decision.Refusal) {
	counted := Refused{target, r.Reason, r.Detail}
	_, known := g.refused[counted]
	if !known && len(g.refused) >= maxRefused {
		counted.Target = ""
	}
	g.refused[counted]++
}

// Slot is the permission for one call. Its holder calls [Slot.Ended] with the outcome of the call, and [Slot.Release]
// in any case when the invocation ends.
type Slot struct {
	gate     *Gate
	function string
	// bytes is the memory of the call.
	bytes int
	began time.Time
	// index is its place in the gate's calls.
	index int
	// share has the target's calls of the function, all those of all functions.
	share, all *entry[flow]
	// limit is nil if the profile has no limits, breaker if the profile turns it off or there is no room for it.
	limit    *entry[flow]
	breaker  *entry[breaker]
	settings targets.Breaker
	// probe says that the call tests whether the target is up again, ended that it has ended.
	probe, ended bool
	// waits says that the call has not begun.
	waits bool
}

// Admit returns a slot, or a refusal. The jitter is a random number from 0 up to, not including, 1.
func (g *Gate) Admit(r Request, now time.Time, jitter float64) (*Slot, *decision.Refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	target := targets.Address(r.Target)
	s := &Slot{
		gate:     g,
		function: r.Function,
		bytes:    g.callBytes + max(r.Memory-ordinaryBytes, 0),
		began:    now,
		share:    g.shares.getOrShare(r.Function+" "+target, r.Function, now),
		all:      g.totals.getOrShare(target, allFunctions, now),
		settings: r.Profile.Breaker,
	}
	if (r.Profile.Concurrency > 0 || r.Profile.Rate > 0) && !r.IsShared {
		s.limit = g.limits.getOrShare(r.Profile.Scope, r.Profile.Pattern, now)
	}
	if !r.Profile.Breaker.Off {
		s.breaker = g.breakers.get(target, now)
	}
	refusal := cmp.Or(s.down(r, now, jitter), s.limited(r, now, jitter))
	if refusal == nil { // which changes the lines
		refusal = s.noSlot(r, now, jitter)
	}
	if refusal != nil {
		g.count(target, refusal)
		return nil, refusal
	}
	s.take()
	if !r.Waits {
		s.begin(now)
	}
	return s, nil
}

// down refuses a call while the circuit breaker is open.
func (s *Slot) down(r Request, now time.Time, jitter float64) *decision.Refusal {
	if s.breaker == nil || !s.breaker.value.open || r.LastAttempt {
		return nil
	}
	if delay := s.breaker.value.wait(s.settings, r.Backoff, now, jitter); delay > 0 {
		return &decision.Refusal{Reason: decision.TargetDown, Detail: "the circuit breaker is open", Delay: delay}
	}
	s.probe = true
	return nil
}

// limited refuses a call while the target says that its rate limit is reached.
func (s *Slot) limited(r Request, now time.Time, jitter float64) *decision.Refusal {
	if s.breaker == nil || r.LastAttempt {
		return nil
	}
	if delay := s.breaker.value.limitWait(now, jitter); delay > 0 {
		return busy("the target's rate limit", delay)
	}
	return nil
}

func busy(detail string, delay time.Duration) *decision.Refusal {
	return &decision.Refusal{Reason: decision.Busy, Detail: detail, Delay: delay}
}

// noSlot refuses a call for which there is no slot.
func (s *Slot) noSlot(r Request, now time.Time, jitter float64) *decision.Refusal {
	g := s.gate
	freeOfAll := (poolBytes - g.bytes) / g.callBytes
	share := max(shareOf(g.poolSize-g.inFlight[s.function], begun(s.share)), minShare)
	var bounds []bound
	if class := s.all.value.trust.class(now); class > trusted {
		held := g.held(s.function, now)
		for c := untrusted; c <= class; c++ {
			h, part, partOfAll := held[c], max(g.poolSize>>c, minShare), poolBytes>>c/g.callBytes
			ofAll := h.bytes / g.callBytes
			bounds = append(bounds,
				bound{c.String(), g.line(s.function, c), h.calls, part, paceOf(part, h.longest)},
				bound{c.String(), g.line(allFunctions, c), ofAll, partOfAll, paceOf(partOfAll, h.longest)})
			freeOfAll = min(freeOfAll, partOfAll-ofAll)
			// A target gets half of what is free of its part, so that others find a slot there, too.
			share = (max(part-h.calls, 0) + begun(s.share) + 1) / 2
		}
	}
	if s.breaker == nil && !r.Profile.Breaker.Off { // nothing would notice that the target is down
		share = min(share, minShare)
	}
	switch {
	case r.Profile.Concurrency == 0:
		bounds = append(bounds,
			boundOf("instance", s.all, shareOf(freeOfAll, begun(s.all)), now),
			boundOf("share", s.share, share, now))
	case r.IsShared: // the limit is instead of the shares
		bounds = append(bounds, boundOf("instance", s.all, begun(s.all)+max(freeOfAll, 0), now))
	default:
		bounds = append(bounds,
			boundOf("instance", s.all, begun(s.all)+max(freeOfAll, 0), now),
			boundOf("concurrency", s.limit, r.Profile.Concurrency, now))
	}
	for _, b := range bounds {
		if b.calls >= b.limit {
			return busy(b.name, b.line.queueDelay(b.pace, b.limit, now, jitter))
		}
	}
	if r.Profile.Rate > 0 && !r.IsShared {
		return s.tooFast(r.Profile, now, jitter)
	}
	return nil
}

// tooFast refuses a call beyond the profile's limit on calls per second.
func (s *Slot) tooFast(p targets.Profile, now time.Time, jitter float64) *decision.Refusal {
	scope := &s.limit.value
	if scope.rate == nil {
		scope.rate = rate.NewLimiter(p.Rate, p.Burst)
	}
	if scope.rate.AllowN(now, 1) {
		return nil
	}
	return busy("rate", scope.rateLine.queueDelay(float64(p.Rate), p.Burst, now, jitter))
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
	calls := begun(e)
	return bound{name, &e.value.line, calls, limit, e.value.pace(calls, limit, now)}
}

// shareOf returns a target's share of a pool, from the slots that are free for all targets and the target's calls in
// flight.
func shareOf(free, calls int) int { return (max(free, 0) + calls + sharePart) / (sharePart + 1) }

// take takes the slot.
func (s *Slot) take() {
	s.gate.inFlight[s.function]++
	s.gate.bytes += s.bytes
	s.waits = true
	for _, f := range s.flows() {
		f.calls++
		f.value.waiting++
	}
	if s.breaker != nil {
		s.breaker.calls++
		s.breaker.value.probing = s.breaker.value.probing || s.probe
	}
}

// Begin says that the call begins, after its message has waited for a limit that is counted elsewhere.
func (s *Slot) Begin(now time.Time) {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	s.begin(now)
}

// begin makes a message in flight a call.
func (s *Slot) begin(now time.Time) {
	s.began, s.waits = now, false
	s.index = len(s.gate.calls)
	s.gate.calls = append(s.gate.calls, s)
	s.all.value.trust.began = append(s.all.value.trust.began, now)
	for _, f := range s.flows() {
		f.value.waiting--
		f.value.begin(now)
	}
}

// Cancel says that the call is not made: a limit of all instances has refused it, or, if refusal is nil, it was made
// before.
func (s *Slot) Cancel(refusal *decision.Refusal) {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	if refusal != nil {
		s.gate.count(s.all.name, refusal)
	}
	s.leave()
}

// Ended says how the call ended. The target has its place in the share and in its limits again; the host's slot stays
// taken until [Slot.Release]. It returns how the outcome changed the state of the target.
func (s *Slot) Ended(o decision.Outcome, now time.Time) Change {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	hasBegun := !s.waits
	s.end(now)
	if hasBegun {
		s.all.value.trust.ended(now.Sub(s.began), judge(o), now)
	}
	if s.breaker == nil || !hasBegun {
		return Change{}
	}
	change := s.breaker.value.ended(s.settings, o, s.began, now, s.probe)
	change.IsOpen = s.breaker.value.open
	return change
}

// end ends the call for the target. The time to settle does not count, because the target has no part in it.
func (s *Slot) end(now time.Time) {
	if s.ended {
		return
	}
	for _, f := range s.flows() {
		if !s.waits {
			f.value.took(now.Sub(s.began))
		}
	}
	s.leave()
}

// leave gives back the places of the call.
func (s *Slot) leave() {
	s.ended = true
	if !s.waits {
		s.gate.remove(s)
		s.all.value.trust.leave(s.began)
	}
	for _, f := range s.flows() {
		f.calls--
		if s.waits {
			f.value.waiting--
		} else {
			f.value.leave(s.began)
		}
	}
	if s.probe {
		s.breaker.value.probing = false
	}
}

// flows returns what counts the call.
func (s *Slot) flows() []*entry[flow] {
	flows := []*entry[flow]{s.share, s.all}
	if s.limit != nil {
		flows = append(flows, s.limit)
	}
	return flows
}

// Release frees the slot. A nil slot is none.
func (s *Slot) Release(now time.Time) {
	if s == nil {
		return
	}
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	s.end(now) // a call that never ended
	s.gate.inFlight[s.function]--
	s.gate.bytes -= s.bytes
	if s.breaker != nil {
		s.breaker.calls--
	}
}
