package limit

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Constants of updates.
const (
	// updateTime limits a read or a write of a row. Without an answer, the table counts as away for awayTime.
	updateTime = 2 * time.Second
	awayTime   = 3 * time.Second
	// After a conflict, an instance waits longer until its next update of the row, at most longestGap.
	longestGap = 300 * time.Millisecond
	// conflictPause is doubled with each conflict of an update in a row, at most maxDoublings times.
	conflictPause = 10 * time.Millisecond
	maxDoublings  = 5
	// quietReadings in a row that find it unchanged mean that no other instance changes the row.
	quietReadings = 8
	// The lag is that of about lagCalls messages, at most longestLag: a sender can say that a message is older.
	// An idle host needs up to notice to receive a message.
	lagCalls   = 3
	longestLag = 30 * time.Second
	notice     = 2 * time.Second
	// maxNews bounds what is remembered while the table is away.
	maxNews = 1000
	// While the table is away, messages come back after half to all of the time that it has been away, from
	// shortestAway to longestAway, and messages without room for a ticket later with each
	// of their deliveries.
	shortestAway   = 10 * time.Second
	longestAway    = time.Minute // another instance may get answers
	ticketlessAway = 10 * time.Minute
)

// detailAway is why calls wait while the table is away.
const detailAway = "the table of limits does not answer"

// row is the row of a target as the table has it. Content is a [state].
type row struct {
	storage.Key

	App        string `row:"app"`
	TargetHost string `row:"targetHost"`
	Content    []byte `row:"content"`
}

// target is a limited target as this instance sees it, and its messages that wait. Its row is changed by conditional
// updates, at most one at a time. What comes while one is on its way shares the next.
type target struct {
	limits *Limits

	mu      sync.Mutex
	profile targets.Profile
	waiting []*waiter
	// used is the number of calls in flight, held that of the permits until the end of their lease.
	used, held int
	until      time.Time
	// ended, begun and unused are the news for the row: see [question].
	ended  []time.Duration
	begun  int
	unused []time.Time
	// lag is how late messages arrive.
	lag time.Duration
	// state is what the row counted after the latest update.
	state state

	// row is the row as it was last read or written, if it is known. InMemory says that it is not in the table.
	row             row
	known, inMemory bool
	// isUnsure says that a write got no answer: it may still be made, until another one is.
	isUnsure bool
	// unchanged is how many readings, one after the other, have found the row as this instance left it. As long as
	// they are fewer than quietReadings, other instances change it, and each update begins with a reading, which is
	// faster than a conflict.
	unchanged int
	// due is when the next update is due; zero if none is. It is made gap after the latest one at the earliest.
	due, latest time.Time
	gap         time.Duration
	// running says that a goroutine makes the updates; wake has a value when due has changed. Closed says that the
	// next update is the last one.
	running, closed bool
	wake            chan struct{}
}

// add adds a message. It is answered at once if this instance has a permit for it, or if the table is away and no
// place is free. The target is locked.
func (t *target) add(m *waiter) {
	if !m.hasTicket() {
		t.lag += (min(max(m.lag-notice, 0), longestLag) - t.lag) / lagCalls
	}
	t.waiting = append(t.waiting, m)
	t.serve()
	if t.limits.isAlone() {
		t.kick(0)
		return
	}
	_, again, isAway := t.limits.away()
	if isAway {
		t.limits.takePlace(m)
		t.answerAway()
	}
	t.kick(again)
}

// forget removes a message whose handler stops, and returns its answer if that came first.
func (t *target) forget(m *waiter) (a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case a = <-m.answer:
	default:
		t.remove(m)
	}
	if !a.granted {
		t.limits.leavePlace(m)
	}
	return a
}

func (t *target) remove(m *waiter) {
	if i := slices.Index(t.waiting, m); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
}

// give answers a message. One that may be called keeps its place until its turn.
func (t *target) give(m *waiter, a answer) {
	t.remove(m)
	if !a.granted {
		t.limits.leavePlace(m)
	}
	a.ahead = a.at.Sub(t.now())
	m.answer <- a
}

// serve gives the permits that this instance has to its messages: to the first in the line and, unless there is one,
// to others. If there are turns as well, each needs an update.
func (t *target) serve() {
	now := t.now()
	if t.profile.Rate > 0 || !now.Before(t.until.Add(-leaseReserve)) {
		return
	}
	slices.SortStableFunc(t.waiting, inLine)
	for _, m := range slices.Clone(t.waiting) {
		isNext := !t.state.isLine() || m.isBack() || t.state.knows(t.profile, m.ticket)
		if !isNext || t.used >= t.held {
			continue
		}
		if m.hasTicket() {
			t.begun++
		}
		t.used++
		t.give(m, answer{granted: true, hasPermit: true, at: now})
	}
}

// leave gives a permit back, and a turn if the call was not made: then it took a negative time. The limits may have
// changed since the message got them.
func (t *target) leave(took time.Duration, got answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if took < 0 && t.profile.Rate > 0 && len(t.unused) < maxNews {
		t.unused = append(t.unused, got.at)
	}
	if got.hasPermit {
		t.used--
		if took >= 0 && len(t.ended) < maxNews {
			t.ended = append(t.ended, took)
		}
		t.serve()
	}
	if t.isNeeded() {
		t.kick(0)
	}
}

// isNeeded reports whether there is something to update.
func (t *target) isNeeded() bool {
	return len(t.waiting)+len(t.ended)+len(t.unused)+t.begun+t.used+t.held > 0
}

// canForget reports whether the target is not in use. If its row is only in memory, that must be as if it were new.
func (t *target) canForget() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running || t.isNeeded() {
		return false
	}
	return !t.inMemory || !t.state.Next.After(t.now())
}

// now returns the time that the times in the row are compared with. In a lease it has no monotonic clock reading: see
// [storage.WallTime].
func (t *target) now() time.Time {
	if t.inMemory || t.limits.table == nil {
		return t.limits.now()
	}
	return t.limits.table.Now().UTC().Round(0)
}

// close makes the last update, if one is needed.
func (t *target) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kick(0)
	t.closed = true
	t.notify()
}

// kick asks for an update after a delay, or sooner. The target is locked.
func (t *target) kick(delay time.Duration) {
	due := t.limits.now().Add(delay)
	if t.closed || !t.due.IsZero() && !due.Before(t.due) {
		return
	}
	t.due = due
	if !t.running {
		t.running = true
		t.limits.updates.Go(t.run)
	}
	t.notify()
}

func (t *target) notify() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run makes updates as long as one is due.
func (t *target) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.due.IsZero() {
		wait := bounds.Later(t.due, t.latest.Add(t.gap)).Sub(t.limits.now())
		if wait > 0 && !t.closed {
			t.sleep(wait)
			continue
		}
		t.due = time.Time{}
		if t.isNeeded() {
			t.update()
		}
	}
	t.running = false
}

// sleep waits while the target is unlocked, until the next update is due or due has changed.
func (t *target) sleep(wait time.Duration) {
	t.mu.Unlock()
	defer t.mu.Lock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.wake:
	}
}

// update makes one update. The target is unlocked while the table works.
func (t *target) update() {
	t.choose()
	read := !t.known || t.unchanged < quietReadings
	for conflicts := 0; ; conflicts++ {
		var err error
		if read {
			err = t.read()
		}
		if err != nil {
			t.lost(err)
			return
		}
		held := t.held
		next, done := t.plan()
		version := t.row.Version
		if !read || t.isUnsure || !bytes.Equal(next, t.row.Content) { // otherwise there is nothing to write
			version, err = t.write(next)
		}
		switch {
		case err != nil:
			t.isUnsure = true
			t.lost(err)
			return
		case version != "":
			if !t.inMemory {
				t.limits.reached()
			}
			t.isUnsure = false
			t.row.Version, t.row.Content, t.latest = version, next, t.limits.now()
			t.gap = t.gap * 9 / 10
			done()
			return
		}
		t.held = held // nothing was given back
		t.serve()
		t.gap = min(t.gap*3/2+conflictPause, longestGap)
		read, t.unchanged = true, 0
		t.pause(bounds.Seconds(t.limits.random() * (conflictPause << min(conflicts+1, maxDoublings)).Seconds()))
	}
}

// choose chooses between the table and the memory of this instance, which continues with what the table had.
func (t *target) choose() {
	inMemory := t.limits.isAlone()
	if inMemory != t.inMemory {
		t.inMemory, t.known = inMemory, inMemory
	}
}

func (t *target) pause(d time.Duration) {
	t.mu.Unlock()
	defer t.mu.Lock()
	storage.Sleep(t.limits.stopping, d)
}

// read reads the row.
func (t *target) read() error {
	if t.inMemory {
		t.known = true
		return nil
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.limits.stopping, updateTime)
	got, _, err := rows.Get[row](ctx, t.limits.table, Partition, t.row.ID)
	cancel()
	t.mu.Lock()
	if err != nil {
		return err
	}
	t.unchanged++
	if t.known && got.Version != t.row.Version {
		t.unchanged = 0
	}
	t.known = true
	t.row.Version, t.row.Content = got.Version, got.Content
	return nil
}

// write returns an empty version if another instance was first.
func (t *target) write(content []byte) (version string, err error) {
	if t.inMemory {
		return "memory", nil
	}
	next := t.row
	next.Content = content
	t.mu.Unlock()
	defer t.mu.Lock()
	ctx, cancel := context.WithTimeout(t.limits.stopping, updateTime)
	defer cancel()
	return rows.Replace(ctx, t.limits.table, next)
}

// plan returns the content of the row after an update by this instance. Done is called if the update succeeds.
func (t *target) plan() (next []byte, done func()) {
	slices.SortStableFunc(t.waiting, inLine)
	for _, m := range t.waiting {
		t.limits.takePlace(m)
		m.waited = t.limits.now().Sub(m.since)
		m.deadline = t.now().Add(m.expires.Sub(t.limits.now()))
	}
	state := parse(t.row.Content)
	q := question{
		profile: t.profile, now: t.now(), random: t.limits.random, instance: t.limits.instance,
		used: t.used, lag: t.lag, waiting: t.waiting, ended: t.ended, begun: t.begun, unused: t.unused,
	}
	got := state.update(q)
	next, _ = json.Marshal(state)
	// The permits that this update gives back are not used meanwhile. If it gets no answer, it may have been made.
	t.held = min(t.held, t.used)
	ended, begun, unused := len(t.ended), t.begun, len(t.unused)
	done = func() {
		t.ended, t.unused = slices.Clone(t.ended[ended:]), slices.Clone(t.unused[unused:])
		t.begun -= begun
		t.state = state
		t.take(got)
		if t.isNeeded() && (t.held > t.used || len(t.ended)+len(t.unused)+t.begun > 0) {
			t.kick(0)
		}
		if t.used > 0 {
			t.kick(renewEvery)
		}
		if len(t.waiting) > 0 {
			t.kick(got.look)
		}
	}
	return next, done
}

// take gives the answers of an update to the messages that are still here.
func (t *target) take(got reply) {
	t.held, t.until = got.permits, got.until
	for _, m := range slices.Clone(t.waiting) {
		a, hasAnswer := got.answers[m]
		switch {
		case !hasAnswer: // it came later
		case a.stays:
			m.ticket = a.ticket
		default:
			if a.granted && a.hasPermit {
				t.used++
			}
			t.give(m, a)
		}
		delete(got.answers, m)
	}
	for m, a := range got.answers { // they have gone meanwhile
		switch {
		case a.granted && t.profile.Rate > 0:
			t.unused = append(t.unused, a.at)
		case a.ticket > 0 && m.ticket == 0:
			t.begun++
		}
	}
}

// lost handles an update without an answer. The row is read before the next one.
func (t *target) lost(err error) {
	t.known, t.latest = false, t.limits.now()
	t.limits.lost(err)
	if _, _, isAway := t.limits.away(); !isAway { // it is asked once more, or there is none
		t.kick(0)
		return
	}
	t.serve()
	t.answerAway()
	if t.isNeeded() {
		t.kick(awayTime)
	}
}

// answerAway answers the messages that have no place, or have waited long enough, while the table is away. Those
// without room for a ticket have few deliveries, and come back late.
func (t *target) answerAway() {
	since, _, _ := t.limits.away()
	now := t.limits.now()
	for _, m := range slices.Clone(t.waiting) {
		if m.hasPlace && now.Sub(m.since) < lineWait {
			continue
		}
		delay := min(max(since, shortestAway), longestAway)
		if m.deliveries > 0 {
			delay = ticketlessAway << (2 * min(m.deliveries-1, 3))
		}
		spread := bounds.Seconds((0.5 + 0.5*t.limits.random()) * delay.Seconds())
		t.give(m, answer{delay: spread, detail: detailAway, ticket: m.ticket})
	}
}
