package limit

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"asynccaller/handler/internal/decision"
)

// Bounds of the delay of a message that waits for a permit.
const (
	longestSleep = 10 * time.Minute
	sleepShare   = 3 // of the time until its deadline
	againShare   = 20
	longestAgain = 10 * time.Second
	lookShare    = 10 // of the mean duration of a call, after which an instance looks for permits again
	shortestLook = 30 * time.Millisecond
	maxNews      = 1000 // durations and tickets that are remembered while the table is away
	longestLook  = time.Second
)

// concurrency is a limit of calls in flight as this instance sees it.
type concurrency struct {
	row   *row
	limit int
	// waiting are the messages that wait here for a permit.
	waiting []*waiter
	// used is the number of calls in flight, held that of the permits, until the end of their lease.
	used, held int
	until      time.Time
	// ended and begun are the news for the row.
	ended []time.Duration
	begun []int64
	// isLine says that there was a line when the row was last read.
	isLine bool
	// localAt is when the next call may begin while the table is away, if the instance's part is less than one permit.
	localAt time.Time
}

// enterConcurrency takes a permit, or a place in the line.
func (l *Limits) enterConcurrency(
	ctx context.Context, q Request, promised *promise,
) (leave func(), refusal *decision.Refusal, err error) {
	r := l.rowOf("concurrency", strconv.Itoa(q.Profile.Concurrency), q, func(r *row) ledger {
		return &concurrency{row: r, limit: q.Profile.Concurrency}
	})
	defer l.release(r)
	c, _ := r.ledger.(*concurrency)
	m := l.waiter(q)
	m.ticket = promised.ticket
	a, err := c.ask(ctx, m)
	switch {
	case err != nil:
		return func() {}, nil, err
	case !a.granted:
		promised.ticket = a.ticket
		return func() {}, busy("concurrency", a.delay), nil
	}
	began := l.now()
	leave = func() { c.leave(l.now().Sub(began)) } //nolint:contextcheck // updates outlive the message
	return leave, nil, nil
}

// ask waits for the answer to a message. If ctx ends first, the message waits no more.
func (c *concurrency) ask(ctx context.Context, m *waiter) (answer, error) {
	isAway := c.row.limits.isAway()
	c.row.mu.Lock()
	c.row.limits.waiting.Add(1)
	c.waiting = append(c.waiting, m)
	c.serve(c.row.limits.now())
	switch {
	case len(m.answer) > 0:
	case isAway:
		c.fallBack(c.row.limits.now())
		c.row.kick(awayTime) //nolint:contextcheck // updates outlive the message
	default:
		c.row.kick(0) //nolint:contextcheck // as above
	}
	c.row.mu.Unlock()
	select {
	case a := <-m.answer:
		return a, nil
	case <-ctx.Done():
	}
	c.row.mu.Lock()
	defer c.row.mu.Unlock()
	select {
	case a := <-m.answer: // at the same moment
		return a, nil
	default:
	}
	c.remove(m)
	return answer{}, ctx.Err()
}

// leave takes that a call has ended.
func (c *concurrency) leave(took time.Duration) {
	c.row.mu.Lock()
	defer c.row.mu.Unlock()
	c.used--
	if len(c.ended) < maxNews {
		c.ended = append(c.ended, took)
	}
	c.serve(c.row.limits.now())
	c.row.kick(0)
}

// give answers a message that waits. It waits no more.
func (c *concurrency) give(m *waiter, a answer) {
	c.remove(m)
	m.answer <- a
}

func (c *concurrency) remove(m *waiter) {
	i := slices.Index(c.waiting, m)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.row.limits.waiting.Add(-1)
	}
}

// begin lets a message begin its call.
func (c *concurrency) begin(m *waiter) {
	c.used++
	if m.ticket > 0 && len(c.begun) < maxNews {
		c.begun = append(c.begun, m.ticket)
	}
	c.give(m, answer{granted: true})
}

// serve gives the permits that this instance has to its messages: those with the oldest tickets and, unless there is a
// line, others.
func (c *concurrency) serve(now time.Time) {
	c.sort()
	for c.used < c.held && len(c.waiting) > 0 && now.Before(c.until.Add(-leaseReserve)) {
		m := c.waiting[0]
		if m.ticket == 0 && c.isLine {
			return
		}
		c.begin(m)
	}
}

// sort sorts the messages by their tickets. Those without one are the last.
func (c *concurrency) sort() {
	slices.SortStableFunc(c.waiting, func(a, b *waiter) int {
		if a.ticket == 0 || b.ticket == 0 {
			return cmp.Compare(b.ticket, a.ticket)
		}
		return cmp.Compare(a.ticket, b.ticket)
	})
}

// isNeeded implements [ledger].
func (c *concurrency) isNeeded() bool {
	return len(c.waiting) > 0 || len(c.ended) > 0 || c.used > 0 || c.held > 0
}

// plan implements [ledger].
func (c *concurrency) plan(content []byte, now time.Time) (next []byte, done func()) {
	state := parsePermits(content)
	for _, m := range slices.Clone(c.waiting) {
		if !m.deadline.After(now) {
			c.give(m, answer{ticket: m.ticket})
		}
	}
	c.sort()
	ended, begun := len(c.ended), len(c.begun)
	g := state.update(c.limit, now, wants{
		instance: c.row.limits.instance, used: c.used, waiting: c.waiting, ended: c.ended, begun: c.begun,
	})
	next, _ = json.Marshal(state)
	asked := slices.Clone(c.waiting)
	// The permits that this update gives back are not used meanwhile. If it gets no answer, it may have been made.
	c.held = min(c.held, g.permits-len(g.chosen))
	done = func() {
		c.ended, c.begun = slices.Clone(c.ended[ended:]), slices.Clone(c.begun[begun:])
		c.held, c.until, c.isLine, c.localAt = g.permits, g.until, state.isLine(), time.Time{}
		c.answer(&state, asked, g, now)
		if c.held > c.used || len(c.ended) > 0 {
			c.row.kick(0) // to give permits back
		}
		if c.used > 0 {
			c.row.kick(renewEvery)
		}
	}
	return next, done
}

// answer answers the messages for which an update has asked, or lets them wait here for a while.
func (c *concurrency) answer(state *permitRow, asked []*waiter, g grants, now time.Time) {
	for _, m := range g.chosen {
		if slices.Contains(c.waiting, m) {
			c.used++
			c.give(m, answer{granted: true}) // the update knows its ticket
		}
	}
	for _, m := range asked {
		if !slices.Contains(c.waiting, m) {
			continue
		}
		if ticket, isNew := g.tickets[m]; isNew {
			m.ticket = ticket
		}
		ahead := m.deadline.Sub(now) / 2 // no turn before the deadline, as it looks
		if m.ticket > 0 {
			ahead = state.wait(m.ticket, c.limit)
		}
		waited := c.row.limits.now().Sub(m.since)
		if ahead < lineWait && waited < lineWait && c.row.limits.waiting.Load() <= maxWaiting {
			continue
		}
		again := time.Second + min(seconds(state.Mean/againShare), longestAgain)
		most := min(longestSleep, m.deadline.Sub(now)/sleepShare)
		delay := min(max(ahead, again), seconds((0.8+0.2*c.row.limits.random())*most.Seconds()))
		c.give(m, answer{delay: delay, ticket: m.ticket})
	}
	if len(c.waiting) > 0 {
		look := min(max(seconds(state.Mean/lookShare), shortestLook), longestLook)
		c.row.kick(seconds((0.5 + 0.5*c.row.limits.random()) * look.Seconds()))
	}
}

// fallBack implements [ledger]: permits are used until their leases end, and then the instance's part of the limit.
func (c *concurrency) fallBack(now time.Time) {
	c.serve(now)
	l := c.row.limits
	if l.awayFor(now) >= lease { // those of all instances have ended
		c.serveLocally(now, float64(c.limit)/l.part)
	}
	for _, m := range slices.Clone(c.waiting) {
		if now.Sub(m.since) >= lineWait || l.waiting.Load() > maxWaiting {
			c.give(m, answer{delay: 3*time.Second + seconds(7*l.random()), ticket: m.ticket})
		}
	}
}

// serveLocally begins calls by the instance's part of the limit. If that is less than one permit, one call begins at a
// time, so rarely that all instances together make about as many as the limit allows.
func (c *concurrency) serveLocally(now time.Time, part float64) {
	if part >= 1 {
		for len(c.waiting) > 0 && c.used < int(part) {
			c.begin(c.waiting[0])
		}
		return
	}
	pause := 2 * c.row.limits.random() * parsePermits(c.row.stored.Content).Mean / part
	switch {
	case c.localAt.IsZero():
		c.localAt = now.Add(seconds(pause))
	case len(c.waiting) > 0 && c.used == 0 && !now.Before(c.localAt):
		c.localAt = now.Add(seconds(pause))
		c.begin(c.waiting[0])
	}
}
