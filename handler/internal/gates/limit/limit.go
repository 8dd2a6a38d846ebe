// Package limit keeps the limits of targets.json, `rate` and `concurrency`. Each limited target has a row in the table
// of the app, which its instances change by conditional updates: see [state] for what it has, and [target] for how. A
// message that may not be called yet is refused with a delay and carries its place in the line.
//
// Without a table, each instance counts on its own, with a row in memory. While the table does not answer, calls wait.
package limit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Partition is the PartitionKey of the rows.
const Partition = "limit"

const (
	// maxPlaces is how many messages of an instance wait in the handler at most: each occupies a slot of the host.
	maxPlaces = 32
	// maxTargets bounds the targets that an instance remembers. To make room for one, maxLooks of them are looked at.
	// Those of a profile that find no room share some by so many bytes of a hash, as long as there is room for these,
	// and then one.
	maxTargets  = 4096
	maxLooks    = 64
	sharedBytes = 1
	// maxHost limits the name of a host in a row that somebody else may have written.
	maxHost = 300
	// deniedTime is how long limits count in each instance after the table has refused access.
	deniedTime = 5 * time.Minute
)

// Limits are the limits of an app. It is safe for concurrent use.
type Limits struct {
	table    storage.Table
	app      string
	instance string
	clock    func() time.Time
	random   func() float64
	log      zerolog.Logger

	// mu protects targets. Whoever holds it may lock a target, and not the other way round.
	mu      sync.Mutex
	targets map[string]*target
	// updates are the goroutines of rows, which end when stopping does.
	updates  sync.WaitGroup
	stopping context.Context //nolint:containedctx // the life of the limits
	stop     context.CancelFunc

	// stateMu protects what follows. Whoever holds it locks nothing else.
	stateMu sync.Mutex
	// places is how many messages wait in the handler.
	places int
	// hasFailed says that the table did not answer the latest time, and awaySince since when it has not answered more
	// than once; zero if it has. Until awayUntil it is not asked again.
	hasFailed            bool
	awaySince, awayUntil time.Time
	// deniedUntil is until when there is no table, because it has refused access; zero if it has not.
	deniedUntil time.Time
}

// Config is what [New] needs.
type Config struct {
	// Table is the table of the app, whose clock all instances count by: their own need not agree. It is nil for none.
	Table storage.Table
	// App is the name of the app, Instance that of this process, of which rows have the first [nameBytes].
	App, Instance string
	// Now is the time of this machine. Random returns numbers from 0 up to, not including, 1.
	Now    func() time.Time
	Random func() float64
	Log    zerolog.Logger
}

// New returns the limits of an app.
func New(c Config) *Limits {
	l := &Limits{
		table: c.Table, app: c.App, instance: c.Instance[:min(len(c.Instance), nameBytes)], clock: c.Now,
		random: c.Random, log: c.Log, targets: map[string]*target{},
	}
	l.stopping, l.stop = context.WithCancel(context.Background())
	return l
}

// Close gives back permits and turns that are not used, and returns when no row is updated any more, at most after a
// time. No call is in flight.
func (l *Limits) Close(timeout time.Duration) {
	if l == nil {
		return
	}
	timer := time.AfterFunc(timeout, l.stop)
	defer timer.Stop()
	l.mu.Lock()
	for _, t := range l.targets {
		t.close()
	}
	l.mu.Unlock()
	l.updates.Wait()
	l.stop()
}

// Check asks the table once, so that the log says at the start if there is none.
func (l *Limits) Check(ctx context.Context) {
	if l.table == nil {
		l.log.Warn().Msg(CountsAlone + ": there is no table")
		return
	}
	limited, cancel := context.WithTimeout(ctx, updateTime)
	defer cancel()
	_, _, err := l.table.Get(limited, Partition, "check")
	if err != nil && ctx.Err() == nil {
		l.lost(err)
	}
}

// Enter lets a call pass when the limits of its target allow it, and may wait some seconds for that. It implements
// [delivery.Gate].
func (l *Limits) Enter(ctx context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	if !due.Intake.Profile.IsLimited() {
		return nil, nil
	}
	e := due.Intake.Envelope
	m := &waiter{expires: due.Deadline, since: l.now(), ticket: e.Ticket, answer: make(chan answer, 1)}
	if e.Ticket > 0 {
		m.age = max(0, due.Arrived.Sub(bounds.Later(e.BeginsAt(), e.LatestAttemptAt)))
	}
	m.lag = due.Arrived.Sub(bounds.Later(e.BeginsAt(), e.DueAt()))
	if due.Intake.NoRoom { // it carries nothing; its attempts are its deliveries
		m.deliveries, m.ticket = e.Attempts+1, 0
	}
	t := l.ask(due.Intake.Profile, m)
	var a answer
	select {
	case a = <-m.answer:
	case <-ctx.Done():
		a = t.forget(m) // or its answer came at the same moment
	}
	if a.granted {
		storage.Sleep(ctx, a.ahead)
		l.leavePlace(m)
	}
	if ctx.Err() != nil {
		if a.granted {
			t.leave(-1, a)
		}
		return nil, &decision.Verdict{Outcome: &decision.Outcome{Failure: decision.FailureInterrupted}}
	}
	if !a.granted {
		return nil, &decision.Verdict{Refusal: &decision.Refusal{
			Reason: decision.Busy, Detail: a.detail, Delay: max(a.delay, time.Second), Ticket: a.ticket,
		}}
	}
	return &pass{target: t, began: l.now(), got: a}, nil
}

// pass is a permit and a turn, as far as the target has limits.
type pass struct {
	target *target
	began  time.Time
	got    answer
}

// Ended implements [decision.Pass].
func (p *pass) Ended(o *decision.Outcome, _ time.Time) {
	took := p.target.limits.now().Sub(p.began)
	if o == nil {
		took = -1
	}
	p.target.leave(took, p.got)
}

// Released implements [decision.Pass].
func (*pass) Released(time.Time) {}

// now returns the time of this machine, by which all is measured that is not in a row.
func (l *Limits) now() time.Time { return l.clock().UTC() }

// ask adds a message to those of its target.
func (l *Limits) ask(p targets.Profile, m *waiter) *target {
	l.mu.Lock()
	t := l.targetOf(p)
	t.mu.Lock()
	l.mu.Unlock()
	defer t.mu.Unlock()
	t.profile = p
	t.add(m)
	return t
}

// targetOf returns a target. If the limits count in this instance, and there is no room for another one that must not
// be forgotten, the targets of a profile share some. One of them leaves what it shares only if that is as new.
func (l *Limits) targetOf(p targets.Profile) *target {
	if t := l.targets[p.Scope]; t != nil {
		return t
	}
	key, sum := p.Scope, sha256.Sum256(fmt.Appendf(nil, "%q %q", l.app, p.Scope))
	if l.isAlone() {
		shared := p.Pattern + " " + hex.EncodeToString(sum[:sharedBytes])
		if len(l.targets) >= 2*maxTargets {
			shared = p.Pattern + " "
		}
		t := l.targets[shared]
		switch {
		case t != nil && !t.canForget():
			return t
		case !l.hasRoom():
			key = shared
		}
	} else {
		l.hasRoom()
	}
	t := &target{limits: l, unchanged: quietReadings, wake: make(chan struct{}, 1)}
	t.row = row{
		Key: storage.Key{Partition: Partition, ID: hex.EncodeToString(sum[:16])}, App: l.app,
		TargetHost: targets.HostOf(p.Scope),
	}
	l.targets[key] = t
	return t
}

// hasRoom reports whether there is room for another target. It forgets some that are not in use, if necessary.
func (l *Limits) hasRoom() bool {
	looks := 0
	for key, t := range l.targets {
		if len(l.targets) < maxTargets || looks == maxLooks {
			break
		}
		looks++
		if t.canForget() {
			delete(l.targets, key)
		}
	}
	return len(l.targets) < maxTargets
}

// isAlone reports whether this instance counts the limits on its own.
func (l *Limits) isAlone() bool {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	return l.table == nil || l.now().Before(l.deniedUntil)
}

// takePlace takes a place for a message to wait in the handler, if one is free.
func (l *Limits) takePlace(m *waiter) {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if !m.hasPlace && l.places < maxPlaces {
		m.hasPlace = true
		l.places++
	}
}

func (l *Limits) leavePlace(m *waiter) {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if m.hasPlace {
		m.hasPlace = false
		l.places--
	}
}

// away reports whether the table does not answer, how long it has not, and after which time it is asked again.
func (l *Limits) away() (since, again time.Duration, isAway bool) {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if l.awaySince.IsZero() {
		return 0, 0, false
	}
	now := l.now()
	return now.Sub(l.awaySince), max(0, l.awayUntil.Sub(now)), true
}

// lost notes that the table has not answered, or has refused access.
func (l *Limits) lost(err error) {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	now := l.now()
	if errors.Is(err, storage.ErrDenied) {
		if l.deniedUntil.IsZero() {
			l.log.Warn().Err(err).Msg(CountsAlone + ": assign the role " + storage.TableRole + " to the identity")
		}
		l.awaySince, l.deniedUntil = time.Time{}, now.Add(deniedTime)
		return
	}
	if !l.hasFailed {
		l.hasFailed = true
		return
	}
	l.awayUntil = now.Add(awayTime)
	if l.awaySince.IsZero() {
		l.awaySince = now
		l.log.Warn().Err(err).Msg("calls to targets with limits wait, because the table of limits does not answer")
	}
}

// CountsAlone says that there is no table.
const CountsAlone = "limits of targets.json now hold for each instance, not for all together"

// reached notes that the table has answered.
func (l *Limits) reached() {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if !l.awaySince.IsZero() || !l.deniedUntil.IsZero() {
		l.log.Info().Msg("limits of targets.json hold for all instances together again")
	}
	l.hasFailed, l.awaySince, l.deniedUntil = false, time.Time{}, time.Time{}
}

// ReadMeans returns how many seconds a call takes on average, for each host whose calls were limited. Of several apps
// that limit the same host, it is the longest time.
func ReadMeans(ctx context.Context, table storage.Table) (map[string]float64, error) {
	means := map[string]float64{}
	err := rows.ListWhole(ctx, table, storage.Query{Partition: Partition}, func(r row) error {
		host := text.Line(r.TargetHost, maxHost)
		means[host] = max(means[host], min(parse(r.Content).Mean, targets.MaxTimeout.Seconds()))
		if len(means) >= maxTargets {
			return rows.ErrStop
		}
		return nil
	})
	return means, err
}
