package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Schedule is what happens in a world. It follows from its seed.
type Schedule struct {
	Seed uint64
	// Ahead is how far the clock of storage is ahead of that of the processes.
	Ahead time.Duration
	// Calm is when the last fault has ended: storage, targets and operators are well from then on.
	Calm time.Duration

	settings  settings
	instances []instancePlan
	messages  []*message
	faults    []*fault
	outages   []outage
	troubles  []trouble
	acts      []act
	operators int
	// deploys are when another targets.json is deployed: the host moving has moved in each second one.
	deploys []time.Duration
	// sharesJournals says that the operators use the same folder.
	sharesJournals bool
}

// settings are those of the app.
type settings struct {
	update, history, tables bool
	callTimeout, expiration time.Duration
	batch, threshold        int
	polling                 time.Duration
}

// instancePlan is the life of an instance and of those that follow it in its place.
type instancePlan struct {
	isWorker bool
	start    time.Duration
	// ahead is how far its clock is ahead.
	ahead time.Duration
	// ends say when it ends, in their order.
	ends []end
}

// end is the end of an instance, or of its host.
type end struct {
	at   time.Duration
	how  how
	away time.Duration
}

// how says how a process ends.
type how int

const (
	stopped how = iota
	killed
	// handlerKilled leaves its host alive.
	handlerKilled
)

// verb is a kind of request to storage.
type verb string

const (
	put     verb = "put"
	update  verb = "update"
	remove  verb = "delete"
	receive verb = "receive"
	look    verb = "look" // peek, count, names
	write   verb = "write rows"
	read    verb = "read rows"
)

// what is what happens to a request.
type what string

const (
	fails    what = "fails"
	busy     what = "is throttled"
	notSent  what = "is not sent"
	lost     what = "is carried out, and its answer is lost"
	foreign  what = "is carried out, and another server answers"
	late     what = "has no answer, and is carried out later"
	repeated what = "is repeated on its way"
	slow     what = "is slow"
	// killBefore and killAfter kill the process that sends the request.
	killBefore what = "is not sent: its process is killed"
	killAfter  what = "is carried out, and its process is killed"
)

// isUnsure reports whether the sender of such a request cannot know whether it was carried out, or how often.
func (f what) isUnsure() bool { return slices.Contains([]what{lost, foreign, late, repeated}, f) }

// fault is what happens to the first request of a kind after a time.
type fault struct {
	from      time.Duration
	verb      verb
	by        class
	what      what
	hasStruck bool
}

// outage is what happens to all requests of a time, of queues or of tables; with a verb only to those.
type outage struct {
	from, to time.Duration
	tables   bool
	verb     verb
	what     what
}

// strikes reports whether the outage is now, and of such requests.
func (o outage) strikes(now time.Duration, a about) bool {
	return now >= o.from && now < o.to && o.tables == a.tables && (o.verb == "" || o.verb == a.verb)
}

// trouble is what a target does for a time.
type trouble struct {
	host     string
	from, to time.Duration
	mode     mode
}

// mode is what a target does with a call.
type mode string

const (
	answers   mode = "answers"
	isDown    mode = "answers 503"
	hangs     mode = "hangs"
	resets    mode = "resets the connection"
	refuses   mode = "refuses connections"
	isLimited mode = "answers 429"
	redirects mode = "answers 307"
	moves     mode = "answers 302"
	breaks    mode = "breaks off its answer"
	isGarbled mode = "answers with what is not HTTP"
)

// The hosts of targets that have rules of their own.
const (
	narrow  = "narrow.example"  // has a concurrency
	metered = "metered.example" // has a rate
	secured = "secured.example" // has a secret header
	denied  = "denied.example"  // must not be called
	probed  = "probed.example"  // is tried again a few seconds after its breaker opened
	pausing = "pausing.example" // is paused by operators
	moving  = "moving.example"  // has a secret header, or is moved to the host secured
)

// The limits of targets.json.
const (
	narrowConcurrency = 2
	meteredRate       = 15 // a minute
	meteredBurst      = 2
)

// NewSchedule returns the schedule of a seed.
func NewSchedule(seed uint64) Schedule {
	g := &generator{rand.New(rand.NewPCG(seed, 71))} //nolint:gosec // keeps no secret
	s := Schedule{Seed: seed, Calm: g.between(4*time.Minute, 9*time.Minute)}
	s.Ahead = pick(g, 0, 0, 0, 0, 3*time.Second, -3*time.Second, 40*time.Second, -40*time.Second, 4*time.Minute,
		-4*time.Minute)
	s.settings = settings{
		update: g.chance(0.3), history: g.chance(0.5), tables: !g.chance(0.05),
		callTimeout: pick(g, 10*time.Second, 30*time.Second, 2*time.Minute, 2*time.Minute),
		expiration:  g.between(12*time.Minute, 16*time.Minute).Truncate(time.Second),
		batch:       pick(g, 1, 4, 16, 32), threshold: pick(g, 8, 8, 32, 224),
		polling: pick(g, 2*time.Second, 5*time.Second, 10*time.Second),
	}
	workers := pick(g, 0, 1, 0.5, 0.5) // what one kind of instance gets wrong, the other would make good
	for n := range 2 + g.IntN(4) {
		s.instances = append(s.instances, g.instance(n, workers, s.Calm))
	}
	hosts := []string{
		"a.example", "a.example", probed, secured, secured, narrow, narrow, metered, metered, pausing,
		pausing, moving, moving,
	}
	isCrowded := g.chance(0.35)
	if isCrowded { // most calls go to one target, many at the same time, and often it does not answer for minutes
		most := pick(g, probed, probed, narrow, narrow, metered)
		hosts = []string{most, most, most, "a.example"}
		if most == probed || g.chance(0.4) {
			s.troubles = append(s.troubles, trouble{
				host: most, mode: pick(g, hangs, resets, refuses, isDown), to: g.between(s.Calm/2, s.Calm),
			})
		}
	}
	for n := range 20 + g.IntN(15) {
		m := g.message(n, hosts, s.Calm)
		if isCrowded && g.chance(0.5) {
			m.at = m.at.Truncate(time.Minute)
		}
		s.messages = append(s.messages, m)
	}
	for range 5 + g.IntN(8) {
		s.faults = append(s.faults, g.fault(s.Calm))
	}
	for range pick(g, 0, 1, 1, 2) {
		s.outages = append(s.outages, g.outage(s.Calm))
	}
	for range g.IntN(5) {
		s.troubles = append(s.troubles, g.trouble(s.Calm))
	}
	s.acts = g.acts(&s)
	for at := g.between(0, s.Calm/2); at < s.Calm; at += g.between(time.Minute, s.Calm/2) {
		s.deploys = append(s.deploys, at)
	}
	s.stage()
	return s
}

// generator makes random values.
type generator struct{ *rand.Rand }

func (g *generator) chance(p float64) bool { return g.Float64() < p }

func (g *generator) between(from, to time.Duration) time.Duration {
	return from + time.Duration(g.Int64N(int64(to-from)))
}

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// instance returns the plan of the n-th instance, which is a worker with a probability.
func (g *generator) instance(n int, worker float64, calm time.Duration) instancePlan {
	i := instancePlan{isWorker: g.chance(worker)}
	i.ahead = pick(g, 0, 0, time.Second, -time.Second, 2*time.Second, -2*time.Second, 20*time.Second, -20*time.Second)
	if n > 0 {
		i.start = g.between(0, calm/2)
	}
	at := i.start
	for range pick(g, 0, 0, 1, 1, 2) {
		at += g.between(20*time.Second, calm/2)
		e := end{at: at, how: pick(g, stopped, stopped, killed, killed, handlerKilled), away: g.between(time.Second,
			time.Minute)}
		if i.isWorker && e.how == handlerKilled {
			e.how = killed
		}
		if at+e.away < calm {
			i.ends = append(i.ends, e)
		}
		at += e.away
	}
	return i
}

func (g *generator) fault(calm time.Duration) *fault {
	f := &fault{from: g.between(0, calm-time.Minute), by: pick(g, instance, instance, instance, host, operator)}
	f.verb = pick(g, put, put, put, update, remove, remove, receive, look, write, read)
	if f.by == host {
		f.verb = pick(g, remove, receive, put, update)
	}
	f.what = pick(g, fails, busy, notSent, lost, lost, foreign, late, repeated, slow, killBefore, killAfter, killAfter)
	if f.verb == receive || f.verb == look || f.verb == read {
		f.what = pick(g, fails, busy, lost, slow, killBefore, killAfter)
	}
	return f
}

func (g *generator) outage(calm time.Duration) outage {
	o := outage{tables: g.chance(0.35), what: pick(g, fails, busy, notSent, slow)}
	if !o.tables && g.chance(0.5) {
		o.verb, o.what = put, fails
	}
	if o.tables && g.chance(0.3) {
		o.verb, o.what = write, pick(g, lost, late)
	}
	o.from = g.between(0, calm-160*time.Second)
	o.to = o.from + pick(g, 5*time.Second, 20*time.Second, 70*time.Second, 150*time.Second)
	if o.verb == put { // longer than a handler tries to settle a message
		o.to = o.from + pick(g, 90*time.Second, 150*time.Second)
	}
	return o
}

func (g *generator) trouble(calm time.Duration) trouble {
	t := trouble{
		host: pick(g, "a.example", "a.example", probed, secured, narrow, metered, pausing),
		mode: pick(g, isDown, isDown, hangs, resets, refuses, isLimited, redirects, moves, breaks, isGarbled),
	}
	t.from = g.between(0, calm-2*time.Minute)
	t.to = min(calm, t.from+g.between(10*time.Second, 5*time.Minute))
	return t
}

// drift is how far the clocks of two instances can differ.
func (s Schedule) drift() (most time.Duration) {
	for _, i := range s.instances {
		most = max(most, 2*i.ahead.Abs())
	}
	return most
}

func (s Schedule) String() string {
	return fmt.Sprintf("seed %d: %d messages, %d instances, %d faults, %d outages, %d troubles of targets, storage is "+
		"ahead by %v, calm after %v, %+v", s.Seed, len(s.messages), len(s.instances), len(s.faults), len(s.outages),
		len(s.troubles), s.Ahead, s.Calm, s.settings)
}
