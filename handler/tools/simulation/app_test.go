package simulation

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/gates/admission"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
)

// The durations that the Functions host and the storage account need, and the host's polling intervals. An instance
// processes about 300 messages a second.
const (
	receiveTime     = 10 * time.Millisecond
	writeTime       = 10 * time.Millisecond
	hostTime        = 3200 * time.Microsecond
	shortestPolling = 100 * time.Millisecond
	longestPolling  = 2 * time.Second
)

// hostJSON has the slots of a function.
type hostJSON struct{ batchSize, newBatchThreshold int }

var shipped = hostJSON{32, 224}

// app is a queue, the instances of a Function App that serve it, and the targets that they call, in virtual time. The
// decisions are those of the product. All times count from begin.
type app struct {
	rules     decision.Rules
	random    *rand.Rand
	now       time.Duration
	events    agenda[func()]
	queue     agenda[*call]
	instances []*hosted
	// undelivered is the number of calls that were not delivered yet.
	undelivered int
	// transactions are the storage operations; those that find no message are not counted.
	transactions int
}

func newApp(slots hostJSON, instances int) *app {
	a := &app{
		rules:  decision.Rules{Expiration: week, GiveUp: envelope.GiveUpDeadLetter, Retry: retry.Default()},
		random: rand.New(rand.NewPCG(11, 12)),
	}
	for range instances {
		i := &hosted{app: a, hostJSON: slots}
		now := func() time.Time { return begin.Add(a.now) }
		room := admission.NewRoom(slots.newBatchThreshold, 400<<10, now)
		breakers := admission.NewBreakers(now, zerolog.Nop())
		i.gates = []delivery.Gate{room, breakers, admission.NewShares(room, breakers, now)}
		a.instances = append(a.instances, i)
		a.events.add(time.Duration(a.random.Int64N(int64(shortestPolling))), i.poll)
	}
	return a
}

func (a *app) after(d time.Duration, do func()) { a.events.add(a.now+d, do) }

// run runs the app until a time, or until every call is delivered.
func (a *app) run(until time.Duration) {
	for a.undelivered > 0 {
		next, ok := a.events.next(until)
		if !ok {
			a.now = until
			return
		}
		a.now = next.at
		next.value()
	}
}

// agenda is a heap by time. Entries of the same time stay in order.
type agenda[T any] struct {
	entries []entry[T]
	added   int
}

type entry[T any] struct {
	at    time.Duration
	order int
	value T
}

func (e *entry[T]) before(other *entry[T]) bool {
	return e.at < other.at || e.at == other.at && e.order < other.order
}

func (g *agenda[T]) add(at time.Duration, value T) {
	g.added++
	g.entries = append(g.entries, entry[T]{at, g.added, value})
	e := g.entries
	for i := len(e) - 1; i > 0 && e[i].before(&e[(i-1)/2]); i = (i - 1) / 2 {
		e[i], e[(i-1)/2] = e[(i-1)/2], e[i]
	}
}

// next removes the first entry, if its time is not after until.
func (g *agenda[T]) next(until time.Duration) (first entry[T], ok bool) {
	e := g.entries
	if len(e) == 0 || e[0].at > until {
		return first, false
	}
	last := len(e) - 1
	first, e[0] = e[0], e[last]
	e[last] = entry[T]{}
	e = e[:last]
	g.entries = e
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if e[child].before(&e[least]) {
				least = child
			}
		}
		if least == i {
			return first, true
		}
		e[i], e[least] = e[least], e[i]
		i = least
	}
}

// call is a message on the queue.
type call struct {
	intake decision.Intake
	target *target
	// due is the time since which the call may begin. busy and down count the reschedules since then.
	due        time.Duration
	busy, down int
}

// target is a target, with what was measured of it.
type target struct {
	*app
	url     *url.URL
	profile targets.Profile
	// answer returns the outcome of a call that begins now.
	answer func() decision.Outcome
	// from is the time since which the calls are measured that become due.
	from time.Duration
	// lifetime is the time from due to the deadline of a call, if it has one of its own. Expired is how many were
	// given up.
	lifetime time.Duration
	expired  int

	sent, delivered, failed, inFlight int
	// busy and down are the reschedules without a call; most is the largest number of calls in flight.
	busy, down, most int
	// waits has the time from due to the beginning of each call, and reschedules how often it was rescheduled
	// meanwhile.
	waits       []time.Duration
	reschedules []int
	// perSecond is the number of calls in each second.
	perSecond map[time.Duration]int
	// deliveredAt has the time of each delivery.
	deliveredAt []time.Duration
}

func (a *app) target(name string, answer func() decision.Outcome) *target {
	u := &url.URL{Scheme: "https", Host: name + ".example", Path: "/"}
	return &target{app: a, url: u, profile: a.rules.Profiles.For(u), answer: answer, perSecond: map[time.Duration]int{}}
}

// answers returns the answer of a target that takes so long for it.
func answers(status int, took time.Duration) func() decision.Outcome {
	return func() decision.Outcome { return decision.Outcome{Status: status, Took: took} }
}

// hangs is the outcome of a call to a target that never answers.
func hangs() decision.Outcome {
	return decision.Outcome{Failure: decision.FailureTimeout, Took: 2 * time.Minute}
}

// during returns the answer of a target that has trouble for some time.
func (a *app) during(from, to time.Duration, trouble, otherwise func() decision.Outcome) func() decision.Outcome {
	return func() decision.Outcome {
		if a.now >= from && a.now < to {
			return trouble()
		}
		return otherwise()
	}
}

// send puts calls on the queue that become due at random times.
func (t *target) send(calls int, from, to time.Duration, attempts int) {
	for range calls {
		at := from + time.Duration(t.random.Float64()*float64(to-from))
		e := &envelope.Envelope{RequestID: "r1", State: envelope.State{CreatedAt: begin.Add(at), Attempts: attempts}}
		e.Call.Target, e.Call.Method = t.url, http.MethodPost
		if t.lifetime > 0 {
			e.Deadline = begin.Add(at + t.lifetime)
		}
		if attempts > 0 {
			e.NextAttemptAt = e.CreatedAt
		}
		in := decision.Intake{Envelope: e, Policy: t.rules.Retry, Profile: t.profile}
		t.queue.add(at, &call{intake: in, target: t, due: at})
	}
	t.sent += calls
	t.undelivered += calls
	t.transactions += calls
}

// hosted is an instance of the Functions host with its handler.
type hosted struct {
	*app
	hostJSON
	gates    []delivery.Gate
	inFlight int
	// waiting says that the listener waits until few enough messages are in flight.
	waiting bool
	// empty is how often the listener has found no message since the last one.
	empty int
	// idleFrom is when the host has processor time for the next message.
	idleFrom time.Duration
}

// poll receives messages and starts all of them.
func (i *hosted) poll() {
	i.after(receiveTime, func() {
		received := 0
		for ; received < i.batchSize; received++ {
			message, ok := i.queue.next(i.now)
			if !ok {
				break
			}
			i.inFlight++
			i.idleFrom = max(i.idleFrom, i.now) + hostTime
			i.events.add(i.idleFrom, func() { i.deliver(message.value) })
		}
		if received == 0 {
			i.after(i.backOff(), i.poll)
			return
		}
		i.transactions++
		i.empty, i.waiting = 0, true
		i.pollAgain()
	})
}

// backOff returns the delay after a poll without a message.
func (i *hosted) backOff() time.Duration {
	i.empty++
	if i.empty == 1 {
		return shortestPolling
	}
	growth := (0.8 + 0.4*i.random.Float64()) * float64(int64(1)<<min(i.empty-2, 10))
	return min(shortestPolling+time.Duration(growth*float64(shortestPolling)), longestPolling)
}

// pollAgain polls as soon as few enough messages are in flight.
func (i *hosted) pollAgain() {
	if i.waiting && i.inFlight <= i.newBatchThreshold {
		i.waiting = false
		i.poll()
	}
}

// deliver takes a message through the handler.
func (i *hosted) deliver(c *call) {
	t, w := c.target, i.world(begin.Add(i.now))
	if !i.rules.IsDue(&c.intake, w) {
		i.settle(c, i.rules.Decide(&c.intake, nil, w), nil)
		return
	}
	passed, refused := i.enter(c, w)
	if refused != nil {
		if refused.Refusal.Reason == decision.Busy {
			c.busy++
			t.busy++
		} else {
			c.down++
			t.down++
		}
		w.Jitter = i.random.Float64()
		i.settle(c, i.rules.Decide(&c.intake, refused, w), nil)
		return
	}
	outcome := t.begin(c)
	i.after(outcome.Took, func() {
		t.inFlight--
		ended := i.world(w.Arrived)
		d := i.rules.Decide(&c.intake, &decision.Verdict{Outcome: &outcome}, ended)
		d.State.Trail, d.State.Latest = nil, nil
		for _, pass := range slices.Backward(passed) {
			pass.Ended(&outcome, ended.Now)
		}
		if d.Action == decision.Reschedule {
			t.failed++
			c.due, c.busy, c.down = d.State.NextAttemptAt.Sub(begin), 0, 0
		}
		i.settle(c, d, passed)
	})
}

// world is the present world for a message.
func (i *hosted) world(arrived time.Time) decision.World {
	return decision.World{Arrived: arrived, Now: begin.Add(i.now), Jitter: i.random.Float64()}
}

// enter asks the gates.
func (i *hosted) enter(c *call, w decision.World) (passed []decision.Pass, refused *decision.Verdict) {
	due := i.rules.DueCall(&c.intake, w)
	due.Message.Function = "AC-standard"
	for _, gate := range i.gates {
		pass, verdict := gate.Enter(context.Background(), &due)
		if verdict != nil {
			for _, pass := range slices.Backward(passed) {
				pass.Ended(nil, w.Now)
			}
			return nil, verdict
		}
		if pass != nil {
			passed = append(passed, pass)
		}
	}
	return passed, nil
}

func (t *target) begin(c *call) decision.Outcome {
	t.inFlight++
	t.most = max(t.most, t.inFlight)
	t.perSecond[t.now.Truncate(time.Second)]++
	if c.due >= t.from {
		t.waits = append(t.waits, t.now-c.due)
		t.reschedules = append(t.reschedules, c.busy+c.down)
	}
	return t.answer()
}

// settle writes the successor, frees the slot, and answers the host, which deletes the message. Like the queue it
// rounds delays up to whole seconds.
func (i *hosted) settle(c *call, d decision.Decision, passed []decision.Pass) {
	settled := func() {
		for _, pass := range passed {
			pass.Released(begin.Add(i.now))
		}
		i.after(writeTime, func() {
			i.transactions++
			i.inFlight--
			i.pollAgain()
		})
	}
	if d.Action != decision.Reschedule {
		i.undelivered--
		c.target.delivered++
		if d.Reason == decision.Expired {
			c.target.expired++
		}
		c.target.deliveredAt = append(c.target.deliveredAt, i.now)
		settled()
		return
	}
	i.after(writeTime, func() {
		i.transactions++
		c.intake.Envelope.State = d.State
		i.queue.add(i.now+(d.Delay+time.Second-1).Truncate(time.Second), c)
		settled()
	})
}

// percentile returns the value below which so much of all values are.
func percentile[T int | time.Duration](values []T, p float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// mean returns the mean number of reschedules without a call.
func (t *target) mean() float64 {
	sum := 0
	for _, n := range t.reschedules {
		sum += n
	}
	return float64(sum) / float64(max(len(t.reschedules), 1))
}

// last returns when the last call was delivered.
func (t *target) last() time.Duration { return t.deliveredAt[len(t.deliveredAt)-1] }

// rate returns how many calls a second were delivered until nine in ten were: the last ones do not fill the slots.
func (t *target) rate() float64 {
	n := t.sent * 9 / 10
	return float64(n) / t.deliveredAt[n-1].Seconds()
}

// peak returns the largest number of calls in a second since a time.
func (t *target) peak(since time.Duration) (peak int) {
	for second, n := range t.perSecond {
		if second >= since {
			peak = max(peak, n)
		}
	}
	return peak
}

// mustDeliver fails the test if calls to a target were not delivered.
func mustDeliver(t *testing.T, x *target) {
	t.Helper()
	if x.delivered != x.sent {
		t.Errorf("%s: %d of %d calls delivered until %v", x.url.Host, x.delivered, x.sent, x.now)
	}
}
