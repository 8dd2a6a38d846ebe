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
	// shortestAway to longestAway, and contents in place later with each of their visits.
	shortestAway = 10 * time.Second
	longestAway  = time.Minute // another instance may get answers
	inPlaceAway  = 10 * time.Minute
)

// detailAway is why calls wait while the table is away.
const detailAway = "the table of limits does not answer"

// stored is the row of a target as the table has it. Content is a [line].
type stored struct {
	storage.Key

	App        string `row:"app"`
	TargetHost string `row:"targetHost"`
	Content    []byte `row:"content"`
}

// row is the row of a target, as this instance sees it, and its messages that wait. It is changed by conditional
// updates, at most one at a time. What comes while one is on its way shares the next.
type row struct {
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
	// line is what the row counted after the latest update.
	line line

	// stored is the row as it was last read or written, if it is known. InMemory says that it is not in the table.
	stored          stored
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
// place is free. The row is locked.
func (r *row) add(m *waiter) {
	if !m.hasTicket() {
		r.lag += (min(max(m.lag-notice, 0), longestLag) - r.lag) / lagCalls
	}
	r.waiting = append(r.waiting, m)
	r.serve()
	if r.limits.isAlone() {
		r.kick(0)
		return
	}
	_, again, isAway := r.limits.away()
	if isAway {
		r.limits.takePlace(m)
		r.answerAway()
	}
	r.kick(again)
}

// forget removes a message whose handler stops, and returns its answer if that came first.
func (r *row) forget(m *waiter) (a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case a = <-m.answer:
	default:
		r.remove(m)
	}
	if !a.granted {
		r.limits.leavePlace(m)
	}
	return a
}

func (r *row) remove(m *waiter) {
	if i := slices.Index(r.waiting, m); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
}

// give answers a message. One that may be called keeps its place until its turn.
func (r *row) give(m *waiter, a answer) {
	r.remove(m)
	if !a.granted {
		r.limits.leavePlace(m)
	}
	a.ahead = a.at.Sub(r.now())
	m.answer <- a
}

// serve gives the permits that this instance has to its messages: to the first in the line and, unless there is one,
// to others. If there are turns as well, each needs an update.
func (r *row) serve() {
	now := r.now()
	if r.profile.Rate > 0 || !now.Before(r.until.Add(-leaseReserve)) {
		return
	}
	slices.SortStableFunc(r.waiting, inLine)
	for _, m := range slices.Clone(r.waiting) {
		isNext := !r.line.isLine() || m.isFront() || r.line.knows(r.profile, m.ticket)
		if !isNext || r.used >= r.held {
			continue
		}
		if m.hasTicket() {
			r.begun++
		}
		r.used++
		r.give(m, answer{granted: true, hasPermit: true, at: now})
	}
}

// leave gives a permit back, and a turn if the call was not made: then it took a negative time. The limits may have
// changed since the message got them.
func (r *row) leave(took time.Duration, got answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if took < 0 && r.profile.Rate > 0 && len(r.unused) < maxNews {
		r.unused = append(r.unused, got.at)
	}
	if got.hasPermit {
		r.used--
		if took >= 0 && len(r.ended) < maxNews {
			r.ended = append(r.ended, took)
		}
		r.serve()
	}
	if r.isNeeded() {
		r.kick(0)
	}
}

// isNeeded reports whether there is something to update.
func (r *row) isNeeded() bool {
	return len(r.waiting)+len(r.ended)+len(r.unused)+r.begun+r.used+r.held > 0
}

// canForget reports whether the row is not in use. If it is only in memory, it must be as if it were new.
func (r *row) canForget() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running || r.isNeeded() {
		return false
	}
	return !r.inMemory || !r.line.Next.After(r.now())
}

// now returns the time that the times in the row are compared with. In a lease it has no monotonic clock reading: see
// [storage.WallTime].
func (r *row) now() time.Time {
	if r.inMemory || r.limits.table == nil {
		return r.limits.now()
	}
	return r.limits.table.Now().UTC().Round(0)
}

// close makes the last update, if one is needed.
func (r *row) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kick(0)
	r.closed = true
	r.notify()
}

// kick asks for an update after a delay, or sooner. The row is locked.
func (r *row) kick(delay time.Duration) {
	due := r.limits.now().Add(delay)
	if r.closed || !r.due.IsZero() && !due.Before(r.due) {
		return
	}
	r.due = due
	if !r.running {
		r.running = true
		r.limits.updates.Go(r.run)
	}
	r.notify()
}

func (r *row) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run makes updates as long as one is due.
func (r *row) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.due.IsZero() {
		wait := bounds.Later(r.due, r.latest.Add(r.gap)).Sub(r.limits.now())
		if wait > 0 && !r.closed {
			r.sleep(wait)
			continue
		}
		r.due = time.Time{}
		if r.isNeeded() {
			r.update()
		}
	}
	r.running = false
}

// sleep waits while the row is unlocked, until the next update is due or due has changed.
func (r *row) sleep(wait time.Duration) {
	r.mu.Unlock()
	defer r.mu.Lock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.wake:
	}
}

// update makes one update. The row is unlocked while the table works.
func (r *row) update() {
	r.choose()
	read := !r.known || r.unchanged < quietReadings
	for conflicts := 0; ; conflicts++ {
		var err error
		if read {
			err = r.read()
		}
		if err != nil {
			r.lost(err)
			return
		}
		held := r.held
		next, done := r.plan()
		version := r.stored.Version
		if !read || r.isUnsure || !bytes.Equal(next, r.stored.Content) { // otherwise there is nothing to write
			version, err = r.write(next)
		}
		switch {
		case err != nil:
			r.isUnsure = true
			r.lost(err)
			return
		case version != "":
			if !r.inMemory {
				r.limits.reached()
			}
			r.isUnsure = false
			r.stored.Version, r.stored.Content, r.latest = version, next, r.limits.now()
			r.gap = r.gap * 9 / 10
			done()
			return
		}
		r.held = held // nothing was given back
		r.serve()
		r.gap = min(r.gap*3/2+conflictPause, longestGap)
		read, r.unchanged = true, 0
		r.pause(bounds.Seconds(r.limits.random() * (conflictPause << min(conflicts+1, maxDoublings)).Seconds()))
	}
}

// choose chooses between the table and the memory of this instance, which continues with what the table had.
func (r *row) choose() {
	inMemory := r.limits.isAlone()
	if inMemory != r.inMemory {
		r.inMemory, r.known = inMemory, inMemory
	}
}

func (r *row) pause(d time.Duration) {
	r.mu.Unlock()
	defer r.mu.Lock()
	storage.Sleep(r.limits.stopping, d)
}

// read reads the row.
func (r *row) read() error {
	if r.inMemory {
		r.known = true
		return nil
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.limits.stopping, updateTime)
	got, _, err := rows.Get[stored](ctx, r.limits.table, Partition, r.stored.ID)
	cancel()
	r.mu.Lock()
	if err != nil {
		return err
	}
	r.unchanged++
	if r.known && got.Version != r.stored.Version {
		r.unchanged = 0
	}
	r.known = true
	r.stored.Version, r.stored.Content = got.Version, got.Content
	return nil
}

// write returns an empty version if another instance was first.
func (r *row) write(content []byte) (version string, err error) {
	if r.inMemory {
		return "memory", nil
	}
	next := r.stored
	next.Content = content
	r.mu.Unlock()
	defer r.mu.Lock()
	ctx, cancel := context.WithTimeout(r.limits.stopping, updateTime)
	defer cancel()
	return rows.Replace(ctx, r.limits.table, next)
}

// plan returns the content of the row after an update by this instance. Done is called if the update succeeds.
func (r *row) plan() (next []byte, done func()) {
	slices.SortStableFunc(r.waiting, inLine)
	for _, m := range r.waiting {
		r.limits.takePlace(m)
		m.waited = r.limits.now().Sub(m.since)
	}
	state := parseLine(r.stored.Content)
	q := question{
		profile: r.profile, now: r.now(), random: r.limits.random, instance: r.limits.instance,
		used: r.used, lag: r.lag, waiting: r.waiting, ended: r.ended, begun: r.begun, unused: r.unused,
	}
	got := state.update(q)
	next, _ = json.Marshal(state)
	// The permits that this update gives back are not used meanwhile. If it gets no answer, it may have been made.
	r.held = min(r.held, r.used)
	ended, begun, unused := len(r.ended), r.begun, len(r.unused)
	done = func() {
		r.ended, r.unused = slices.Clone(r.ended[ended:]), slices.Clone(r.unused[unused:])
		r.begun -= begun
		r.line = state
		r.take(got)
		if r.isNeeded() && (r.held > r.used || len(r.ended)+len(r.unused)+r.begun > 0) {
			r.kick(0)
		}
		if r.used > 0 {
			r.kick(renewEvery)
		}
		if len(r.waiting) > 0 {
			r.kick(got.look)
		}
	}
	return next, done
}

// take gives the answers of an update to the messages that are still here.
func (r *row) take(got reply) {
	r.held, r.until = got.permits, got.until
	for _, m := range slices.Clone(r.waiting) {
		a, hasAnswer := got.answers[m]
		switch {
		case !hasAnswer: // it came later
		case a.stays:
			m.ticket = a.ticket
		default:
			if a.granted && a.hasPermit {
				r.used++
			}
			r.give(m, a)
		}
		delete(got.answers, m)
	}
	for m, a := range got.answers { // they have gone meanwhile
		switch {
		case a.granted && r.profile.Rate > 0:
			r.unused = append(r.unused, a.at)
		case a.ticket > 0 && m.ticket == 0:
			r.begun++
		}
	}
}

// lost handles an update without an answer. The row is read before the next one.
func (r *row) lost(err error) {
	r.known, r.latest = false, r.limits.now()
	r.limits.lost(err)
	if _, _, isAway := r.limits.away(); !isAway { // it is asked once more, or there is none
		r.kick(0)
		return
	}
	r.serve()
	r.answerAway()
	if r.isNeeded() {
		r.kick(awayTime)
	}
}

// answerAway answers the messages that have no place, or have waited long enough, while the table is away. Contents in
// place have few deliveries, and come back late.
func (r *row) answerAway() {
	since, _, _ := r.limits.away()
	now := r.limits.now()
	for _, m := range slices.Clone(r.waiting) {
		if m.hasPlace && now.Sub(m.since) < lineWait {
			continue
		}
		delay := min(max(since, shortestAway), longestAway)
		if m.visits > 0 {
			delay = inPlaceAway << (2 * min(m.visits-1, 3))
		}
		spread := bounds.Seconds((0.5 + 0.5*r.limits.random()) * delay.Seconds())
		r.give(m, answer{delay: spread, detail: detailAway, ticket: m.ticket})
	}
}
