package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

const (
	// targetInterval is the shortest time between two writes of a target's row, and about the longest between two
	// readings of the table while calls are made: another instance can have seen that a target is up again.
	targetInterval = time.Minute
	// targetCheckInterval is how often it is checked whether a row is due.
	targetCheckInterval = 15 * time.Second
	// longInFlight is how long a call lasts until its target has a row, unless it has answered meanwhile.
	longInFlight = 10 * time.Second
	// writeTimeout limits a pass.
	writeTimeout = 10 * time.Second
	// maxSuccesses limits the targets whose latest success is remembered. A failure from before it, of which another
	// instance writes late, does not count.
	maxSuccesses = 1000
)

// Targets keeps the rows of the targets that fail, together with the other instances of the app, in the background and
// best effort. Its methods never wait. It is safe for concurrent use. A nil Targets keeps nothing.
type Targets struct {
	table storage.Table
	app   string
	// writer knows whether the table can be used.
	writer *background.Writer
	wake   chan struct{}

	mu sync.Mutex
	// flights are the calls in flight, in no order.
	flights []*flight
	// seen are the failures since the rows were last written, known the rows as they were last read.
	seen, known map[string]*Target
	// changes are the latest changes of rows that this instance knows.
	changes map[string]rowChange
	// success is when the latest call that succeeded ended.
	success map[string]time.Time
	// active says that a call has ended since the rows were last read, at readAt. After an error, nothing is done
	// before retryAt.
	active          bool
	readAt, retryAt time.Time
}

// rowChange is when a row got its version, as far as this instance knows. The version of its own write is empty.
type rowChange struct {
	version string
	at      time.Time
}

// NewTargetWriter returns a writer of the targets that fail.
func NewTargetWriter(table storage.Table, bytes int, log zerolog.Logger) *background.Writer {
	return background.New(background.Config{Table: table, Rows: "failing targets", Bytes: bytes, Log: log})
}

// NewTargets returns the rows of an app in a table, of which writer knows whether it can be used. The rows are
// read and written while [Targets.Run] runs.
func NewTargets(table storage.Table, app string, writer *background.Writer) *Targets {
	return &Targets{
		table: table, app: app, writer: writer, wake: make(chan struct{}, 1),
		seen: map[string]*Target{}, known: map[string]*Target{}, changes: map[string]rowChange{},
		success: map[string]time.Time{},
	}
}

// flight is a call in flight, which keeps its target until it has ended. It counts from the arrival of its message, as
// failures do. Index is its place in the flights.
type flight struct {
	targets *Targets
	target  *url.URL
	began   time.Time
	index   int
}

// Enter notes that a call begins. It implements [delivery.Gate].
func (t *Targets) Enter(_ context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	f := &flight{targets: t, target: due.Intake.Envelope.Call.Target, began: due.Arrived}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.index = len(t.flights)
	t.flights = append(t.flights, f)
	return f, nil
}

// Ended implements [decision.Pass].
func (f *flight) Ended(*decision.Outcome, time.Time) {
	t := f.targets
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.flights) - 1
	t.flights[f.index] = t.flights[last]
	t.flights[f.index].index = f.index
	t.flights[last] = nil
	t.flights = t.flights[:last]
	f.target = nil
}

// Released implements [decision.Pass].
func (*flight) Released(time.Time) {}

// seeUnanswered takes the targets with calls that have been in flight for long, and without an answer since the oldest
// of them began. One that is known to fail says more about itself.
func (t *Targets) seeUnanswered(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls, oldest := map[string]int{}, map[string]time.Time{}
	for _, f := range t.flights {
		host := targets.Host(f.target)
		calls[host]++
		oldest[host] = bounds.Earliest(oldest[host], f.began.Truncate(time.Millisecond))
	}
	for host, began := range oldest {
		known := cmp.Or(t.seen[host], t.known[host])
		cause := fmt.Sprintf("no answer yet: %d calls", calls[host])
		if calls[host] == 1 {
			cause = "no answer yet: 1 call"
		}
		isNews := known == nil || known.IsUnanswered() && (known.Cause != cause || !known.Since.Equal(began))
		isFull := t.seen[host] == nil && len(t.seen) >= maxTargets
		if now.Sub(began) < longInFlight || !began.After(t.success[host]) || !isNews || isFull {
			continue
		}
		t.seen[host] = &Target{
			App: t.app, Host: host, Reason: NoAnswerYet, Cause: cause, Since: began.UTC(), Latest: began.UTC(),
		}
	}
}

// Failed takes a call that failed. The target's Since and Latest are when the call began, and OpenAt is not zero if the
// circuit breaker is open now.
func (t *Targets) Failed(f Target) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active = true
	if !f.Latest.After(t.success[f.Host]) {
		return
	}
	f.App = t.app
	for _, text := range []*string{&f.Reason, &f.Cause, &f.Answer} {
		*text = rows.Text(*text) // small parts of a large message
	}
	before := t.seen[f.Host]
	if before == nil && len(t.seen) >= maxTargets {
		return
	}
	t.seen[f.Host] = merge(before, &f, time.Time{})
	if before == nil && t.known[f.Host] == nil {
		t.notify()
	}
}

// Succeeded takes a call that succeeded and has ended now.
func (t *Targets) Succeeded(host string, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active = true
	delete(t.seen, host)
	if _, has := t.success[host]; !has && len(t.success) >= maxSuccesses {
		for other := range t.success {
			delete(t.success, other)
			break
		}
	}
	t.success[host] = now
	if t.known[host] != nil || t.readAt.IsZero() {
		t.notify()
	}
}

// Latest returns what is known of a target that fails; its zero value if nothing is.
func (t *Targets) Latest(host string) Target {
	if t == nil {
		return Target{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if merged := merge(t.known[host], t.seen[host], t.success[host]); merged != nil {
		return *merged
	}
	return Target{}
}

func (t *Targets) notify() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run reads and writes the rows until ctx ends, and then a last time.
func (t *Targets) Run(ctx context.Context) {
	if t == nil {
		return
	}
	tick := time.NewTicker(targetCheckInterval)
	defer tick.Stop()
	for t.writer.Table() != nil {
		select {
		case <-ctx.Done():
			t.pass(context.WithoutCancel(ctx), background.HandlerClose)
			return
		case <-tick.C:
		case <-t.wake:
			storage.Sleep(ctx, time.Second)
		}
		t.pass(ctx, writeTimeout)
	}
}

// isDue reports whether the rows must be read, and perhaps written.
func (t *Targets) isDue(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.retryAt) {
		return false
	}
	for host := range t.seen {
		if t.known[host] == nil || t.mayWrite(host, now) {
			return true
		}
	}
	for host, known := range t.known {
		if !known.Latest.After(t.success[host]) {
			return true
		}
	}
	return t.active && now.Sub(t.readAt) >= targetInterval
}

// mayWrite reports whether the row of a target has not been written for a while.
func (t *Targets) mayWrite(host string, now time.Time) bool {
	return now.Sub(t.changes[host].at) >= targetInterval
}

// pass reads the rows, and writes or removes those that have changed, if that is due.
func (t *Targets) pass(ctx context.Context, limit time.Duration) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t.seeUnanswered(time.Now())
	if !t.isDue(time.Now()) {
		return
	}
	rows, err := readTargets(limited, t.table, targetPrefix(t.app))
	now := time.Now()
	if err == nil {
		err = t.write(limited, t.plan(rows, now), now)
	}
	if err == nil || ctx.Err() != nil { // the last pass does the rest
		return
	}
	_ = t.writer.Use(func(storage.Table) error { return err })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retryAt = now.Add(targetInterval)
}

// targetChange is the change of a row. Known is nil if there is none, next if it is removed, and seen if this instance
// has seen no failure that the row does not have.
type targetChange struct{ known, next, seen *Target }

// plan takes the rows of the app, and returns the changes that are due.
func (t *Targets) plan(rows []Target, now time.Time) (changes []targetChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active, t.readAt = false, now
	clear(t.known)
	for _, row := range rows {
		t.known[row.Host] = &row
	}
	for host := range t.changes {
		if t.known[host] == nil {
			delete(t.changes, host)
		}
	}
	for host, known := range t.known {
		change := t.changes[host]
		if change.version != "" && change.version != known.Version || change.at.IsZero() {
			change.at = now
		}
		t.changes[host] = rowChange{known.Version, change.at}
		next := merge(known, t.seen[host], t.success[host])
		isNew := t.seen[host] != nil || next != nil && !next.Since.Equal(known.Since)
		if next == nil || isNew && t.mayWrite(host, now) {
			changes = append(changes, targetChange{known, next, t.seen[host]})
		}
	}
	oldest := t.oldestFirst()
	room := maxTargets - len(oldest)
	for host, seen := range t.seen {
		switch {
		case t.known[host] != nil:
			continue
		case room > 0:
			room--
		case len(oldest) == 0:
			return changes
		default: // a sender who invents hosts must not cause more operations
			t.retryAt = now.Add(targetInterval)
			changes = append(changes, targetChange{known: oldest[0]})
			oldest = oldest[1:]
		}
		changes = append(changes, targetChange{nil, seen, seen})
	}
	return changes
}

// oldestFirst returns the targets for which there are rows, those first that have not failed for the longest time.
func (t *Targets) oldestFirst() []*Target {
	return slices.SortedFunc(maps.Values(t.known), func(a, b *Target) int { return a.Latest.Compare(b.Latest) })
}

// write makes changes. One that another instance has prevented is tried again with the next reading.
func (t *Targets) write(ctx context.Context, changes []targetChange, now time.Time) error {
	for _, c := range changes {
		if c.next == nil {
			if err := t.table.Delete(ctx, []storage.Key{c.known.key()}); err != nil {
				return err
			}
			t.forget(c.known)
			continue
		}
		next := *c.next
		next.Key = next.key()
		version, err := rows.Replace(ctx, t.table, next)
		if errors.Is(err, storage.ErrRefused) && !errors.Is(err, storage.ErrDenied) { // it must not hurt the others
			t.drop(c.next.Host)
			continue
		}
		if err != nil {
			return err
		}
		if version == "" {
			if c.known != nil { // a new row that is there nevertheless may be no row of a handler
				t.notify()
			}
			continue
		}
		t.written(c, now)
	}
	return nil
}

// drop removes what was seen of a target whose row storage refuses.
func (t *Targets) drop(host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, host)
}

// forget takes that a row was removed.
func (t *Targets) forget(row *Target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[row.Host] == row {
		delete(t.known, row.Host)
		delete(t.changes, row.Host)
	}
}

// written takes that a row was written. What was seen meanwhile remains for the next time.
func (t *Targets) written(c targetChange, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	host := c.next.Host
	t.known[host], t.changes[host] = c.next, rowChange{at: now}
	if t.seen[host] == c.seen {
		delete(t.seen, host)
	}
}
