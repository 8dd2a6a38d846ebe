package limit

import (
	"bytes"
	"context"
	"sync"
	"time"

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
	// enough readings that find a row unchanged mean that no other instance changes it.
	enough = 8
)

// ledger is what a row counts. Its methods are called while the row is locked.
type ledger interface {
	// plan returns the content of the row after an update by this instance, made from the present one. Done is called
	// if the update succeeds.
	plan(content []byte, now time.Time) (next []byte, done func())
	// isNeeded reports whether messages wait or permits are held.
	isNeeded() bool
	// fallBack answers messages while the table is away.
	fallBack(now time.Time)
}

// stored is the row of a limit. Limit names it in a few words, and Content is what the ledger counts.
type stored struct {
	storage.Key

	App        string `row:"app"`
	TargetHost string `row:"targetHost"`
	Limit      string `row:"route"`
	Content    []byte `row:"content"`
}

// row changes a row of the table by conditional updates, at most one at a time. What comes while one is on its way
// shares the next.
type row struct {
	limits *Limits
	ledger ledger
	// users is the number of messages that ask for its limit now.
	users int

	mu sync.Mutex
	// stored is the row as it was last read or written, if it is known.
	stored stored
	known  bool
	// alone is how many readings in a row have found it so. Others change a row of which alone is less than enough:
	// each update begins with a reading, which is faster than a conflict.
	alone int
	// due is when the next update is due; zero if none is. It is not sooner than gap after the latest one.
	due, latest time.Time
	gap         time.Duration
	// running says that a goroutine makes the updates; wake has a value when due has changed.
	running bool
	wake    chan struct{}
}

// kick asks for an update after a delay, or sooner. The row is locked.
func (r *row) kick(delay time.Duration) {
	due := later(r.limits.now().Add(delay), r.latest.Add(r.gap))
	if !r.due.IsZero() && !due.Before(r.due) {
		return
	}
	r.due = due
	if !r.running {
		r.running = true
		go r.run()
		return
	}
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
		if wait := r.due.Sub(r.limits.now()); wait > 0 {
			r.sleep(wait)
			continue
		}
		r.due = time.Time{}
		if r.ledger.isNeeded() {
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
	read := !r.known || r.alone < enough
	for conflicts := 0; ; conflicts++ {
		var err error
		if read {
			err = r.read()
		}
		if err != nil {
			r.lost(err)
			return
		}
		next, done := r.ledger.plan(r.stored.Content, r.limits.now())
		version := r.stored.Version
		if !read || !bytes.Equal(next, r.stored.Content) { // otherwise there is nothing to write
			version, err = r.write(next)
		}
		switch {
		case err != nil:
			r.lost(err)
			return
		case version != "":
			r.limits.reached()
			r.stored.Version, r.stored.Content, r.latest = version, next, r.limits.now()
			r.gap = r.gap * 9 / 10
			done()
			return
		}
		r.gap = min(r.gap*3/2+conflictPause, longestGap)
		read, r.alone = true, 0
		r.pause(seconds(r.limits.random() * (conflictPause << min(conflicts+1, maxDoublings)).Seconds()))
	}
}

func (r *row) pause(d time.Duration) {
	r.mu.Unlock()
	defer r.mu.Lock()
	storage.Sleep(context.Background(), d)
}

// read reads the row.
func (r *row) read() error {
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), updateTime)
	got, _, err := rows.Get[stored](ctx, r.limits.table, Partition, r.stored.ID)
	cancel()
	r.mu.Lock()
	if err != nil {
		return err
	}
	r.alone++
	if r.known && got.Version != r.stored.Version {
		r.alone = 0
	}
	r.known = true
	r.stored.Version, r.stored.Content = got.Version, got.Content
	return nil
}

// write returns an empty version if another instance was first.
func (r *row) write(content []byte) (version string, err error) {
	next := r.stored
	next.Content = content
	r.mu.Unlock()
	defer r.mu.Lock()
	ctx, cancel := context.WithTimeout(context.Background(), updateTime)
	defer cancel()
	return rows.Replace(ctx, r.limits.table, next)
}

// lost takes that the table has not answered. The row is read before the next update: a write without an answer may
// have been made.
func (r *row) lost(err error) {
	r.known, r.latest = false, r.limits.now()
	r.limits.lost(err)
	r.ledger.fallBack(r.latest)
	if r.ledger.isNeeded() {
		r.kick(awayTime)
	}
}
