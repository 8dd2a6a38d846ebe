// Package limit keeps the limits of targets.json, `rate` and `concurrency`, for all instances of an app together. Each
// limited target has a row in the table of the app, which instances change by conditional updates: see [rateRow] and
// [permitRow] for what is counted, and [row] for how. A message that may not be called yet is refused with a delay and
// carries what it was promised ([envelope.State]).
//
// While the table is away, what is promised stays valid, and otherwise each instance has a part of the limit.
package limit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/targets"
)

// Partition is the PartitionKey of the rows.
const Partition = "limit"

const (
	// A message waits in the handler, which occupies a slot of the host, if its reserved time is at most shortWait
	// away, or its turn comes in at most lineWait; at most maxWaiting messages of an instance do.
	shortWait  = 2 * time.Second
	lineWait   = 4 * time.Second
	maxWaiting = 32
	// maxRows bounds the rows that an instance remembers.
	maxRows = 4096
)

// Limits are the limits of an app. It is safe for concurrent use.
type Limits struct {
	table    storage.Table
	app      string
	instance string
	// part is the number of instances among which limits are divided while the table is away.
	part   float64
	now    func() time.Time
	random func() float64
	log    zerolog.Logger
	seal   seal
	// waiting is the number of messages that wait in the handler.
	waiting atomic.Int32

	// mu protects rows and users. Whoever holds it may lock a row, and not the other way round.
	mu   sync.Mutex
	rows map[string]*row

	awayMu sync.Mutex
	// awaySince is when the table did not answer first; zero if it answers. Until awayUntil it is not asked again.
	awaySince, awayUntil time.Time
}

// Config is what [New] needs.
type Config struct {
	Table storage.Table
	// App is the name of the app, Instance that of this process.
	App, Instance string
	// MaxInstances is the number of instances among which a limit is divided while the table is away.
	MaxInstances int
	// Now is the time of storage, so that the clocks of the instances need not agree. Random returns numbers from 0 up
	// to, not including, 1.
	Now    func() time.Time
	Random func() float64
	Log    zerolog.Logger
}

// New returns the limits of an app.
func New(c Config) *Limits {
	return &Limits{
		table: c.Table, app: c.App, instance: c.Instance, part: float64(c.MaxInstances), now: c.Now, random: c.Random,
		log: c.Log, seal: seal{table: c.Table, app: c.App, reading: make(chan struct{}, 1)}, rows: map[string]*row{},
	}
}

// Request asks to begin a call.
type Request struct {
	Profile   targets.Profile
	RequestID string
	Deadline  time.Time
	// Reserved is what the message carries from earlier refusals ([envelope.State]).
	Reserved string
}

// Enter asks for the permission to begin a call, and may wait some seconds for it. Unless it returns a refusal, the
// caller calls leave when the call has ended. If ctx ends, it returns its error.
func (l *Limits) Enter(ctx context.Context, q Request) (leave func(), refusal *decision.Refusal, err error) {
	p := l.seal.open(ctx, q)
	if q.Profile.Rate > 0 {
		refusal, err = l.enterRate(ctx, q, &p)
	}
	leave = func() {}
	if q.Profile.Concurrency > 0 && refusal == nil && err == nil {
		leave, refusal, err = l.enterConcurrency(ctx, q, &p)
	}
	if refusal != nil {
		refusal.Delay = max(refusal.Delay, time.Second)
		p.back = l.now().Add(refusal.Delay)
		refusal.Reserved = l.seal.text(ctx, q, p)
	}
	return leave, refusal, err
}

func busy(limit string, delay time.Duration) *decision.Refusal {
	return &decision.Refusal{Reason: decision.Busy, Detail: limit, Delay: delay}
}

// waiter is a message that waits for an answer.
type waiter struct {
	deadline, since time.Time
	// missed says that it has missed the time that it had reserved, back is when it can be here again if it is
	// rescheduled now. Ticket is its place in the line; 0 is none.
	missed bool
	back   time.Time
	ticket int64
	answer chan answer
}

// answer is the answer to a message: it may be called, at once or at a time, or it comes back after a delay.
type answer struct {
	granted bool
	at      time.Time
	delay   time.Duration
	ticket  int64
}

func (l *Limits) waiter(q Request) *waiter {
	return &waiter{deadline: q.Deadline, since: l.now(), answer: make(chan answer, 1)}
}

// rowOf returns the row of a target's limit, which the caller gives back with [Limits.release]. A changed limit has
// another row: while a deployment rolls out, both apply.
func (l *Limits) rowOf(kind, limit string, q Request, create func(*row) ledger) *row {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", l.app, kind, limit, q.Profile.Scope))
	id := hex.EncodeToString(sum[:16])
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.rows[id]; r != nil {
		r.users++
		return r
	}
	if len(l.rows) >= maxRows {
		l.forget()
	}
	r := &row{users: 1, limits: l, alone: enough, wake: make(chan struct{}, 1)}
	r.stored = stored{
		Key: storage.Key{Partition: Partition, ID: id}, App: l.app,
		TargetHost: q.Profile.Scope[:min(len(q.Profile.Scope), 128)], Limit: kind + " " + limit,
	}
	r.ledger = create(r)
	l.rows[id] = r
	return r
}

// release says that a message does not use a row any more.
func (l *Limits) release(r *row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.users--
}

// forget forgets rows that are not in use, some at a time. What they count is in the table.
func (l *Limits) forget() {
	for id, r := range l.rows {
		r.mu.Lock()
		isIdle := r.users == 0 && !r.running && !r.ledger.isNeeded()
		r.mu.Unlock()
		if isIdle {
			delete(l.rows, id)
		}
		if len(l.rows) < maxRows*3/4 {
			return
		}
	}
}

// isAway reports whether the table has not answered and is not asked again yet.
func (l *Limits) isAway() bool {
	l.awayMu.Lock()
	defer l.awayMu.Unlock()
	return l.now().Before(l.awayUntil)
}

// awayFor returns how long the table has not answered.
func (l *Limits) awayFor(now time.Time) time.Duration {
	l.awayMu.Lock()
	defer l.awayMu.Unlock()
	if l.awaySince.IsZero() {
		return 0
	}
	return now.Sub(l.awaySince)
}

func (l *Limits) lost(err error) {
	l.awayMu.Lock()
	defer l.awayMu.Unlock()
	now := l.now()
	l.awayUntil = now.Add(awayTime)
	if l.awaySince.IsZero() {
		l.awaySince = now
		l.log.Warn().Err(err).Msg("limits of the app are divided, because the table does not answer: each instance " +
			"uses its part; if permission is missing, assign the role " + storage.TableRole + " to the identity")
	}
}

func (l *Limits) reached() {
	l.awayMu.Lock()
	defer l.awayMu.Unlock()
	if !l.awaySince.IsZero() {
		l.awaySince, l.awayUntil = time.Time{}, time.Time{}
		l.log.Info().Msg("limits of the app hold for all instances together again")
	}
}

// hold waits in the handler, if not too many messages do. It reports whether it has waited.
func (l *Limits) hold(ctx context.Context, d time.Duration) bool {
	defer l.waiting.Add(-1)
	if l.waiting.Add(1) > maxWaiting {
		return false
	}
	storage.Sleep(ctx, d)
	return ctx.Err() == nil
}

// wholeSeconds rounds down: the queue rounds up, and a message that is early can wait in the handler.
func wholeSeconds(d time.Duration) time.Duration {
	return time.Duration(math.Floor(d.Seconds())) * time.Second
}
