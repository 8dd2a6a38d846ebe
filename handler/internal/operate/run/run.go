// Package run carries out changes of messages: runs. It knows no command: a run is a list of steps, and each step is
// data, see [journal.Step]. A step claims the message that it takes away, writes one, and then deletes the claimed one;
// docs/poison.md says what each failure leaves. A journal records every step, so that a killed run can be resumed and a
// finished one undone.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/reading"
)

// parallel is how many messages a run handles at once. It limits how many messages a kill leaves in between.
const parallel = 8

// Engine plans, carries out, resumes and undoes the runs of an account. It is safe for concurrent use.
type Engine struct {
	// Store gives access to the account's queues. Account is its queue endpoint without scheme and secrets.
	Store   storage.Queues
	Account string
	// Runs is the folder of journals.
	Runs journal.Folder
	// Operator is who begins runs.
	Operator journal.Operator
	Observer Observer
	// Patience limits how long an operation of storage is tried; 0 for as long as [storage.Retry] does.
	Patience time.Duration
	// Hooks returns the hooks of a run. It may be nil if no run has a pace that needs outcomes.
	Hooks func(journal.Run) Hooks
}

// Observer follows a run. Its methods may be called from several goroutines.
type Observer interface {
	// Advanced reports how many messages of a run are finished.
	Advanced(done, total int)
	// Note passes a text for the user.
	Note(text string)
}

// Hooks let others follow the messages of one run. The methods may be called from several goroutines.
type Hooks interface {
	// Sent is called when a message was written or made due. Before says that an earlier process did that.
	Sent(s journal.Step, before bool)
	// Ended is called when a step is done or skipped, by this process or by an earlier one.
	Ended(s journal.Step, p journal.Progress)
	// Watched returns how many messages were sent. It forgets those of earlier processes whose call has failed.
	Watched(ctx context.Context) (int, error)
	// Canaries waits until the messages that were sent are delivered. A [StopError] means that they are not.
	Canaries(ctx context.Context) error
	// Failures returns a [StopError] once more than a share of the calls have failed, and nil when ctx ends.
	Failures(ctx context.Context, share float64) error
	// Close is called at the end.
	Close()
}

// noHooks are the hooks of a run that nobody follows. The other hooks are only for a pace that needs outcomes.
type noHooks struct{ Hooks }

func (noHooks) Sent(journal.Step, bool)              {}
func (noHooks) Ended(journal.Step, journal.Progress) {}
func (noHooks) Close()                               {}

// StopError is why a run stops by itself.
type StopError string

func (e StopError) Error() string { return string(e) }

// run carries out the steps of a journal.
type run struct {
	*Engine

	journal *journal.Journal
	hooks   Hooks
	turns   *rate.Limiter
	total   int

	mu sync.Mutex
	// finished is the number of finished steps, lost are the messages that must be found.
	finished int
	lost     []lostMessage
}

// lostMessage is the message of a step whose newest receipt the run does not have.
type lostMessage struct {
	step      int
	queue, id string
}

// newRun returns a run that nobody follows.
func (e *Engine) newRun(j *journal.Journal) *run {
	return &run{Engine: e, journal: j, hooks: noHooks{}, turns: rate.NewLimiter(rate.Inf, 1)}
}

// execute carries out the rest of a run.
func (e *Engine) execute(ctx context.Context, j *journal.Journal) (Result, error) {
	r := e.newRun(j)
	if e.Hooks != nil {
		r.hooks = e.Hooks(j.Run)
	}
	if perSecond := j.Run.Rate; perSecond > 0 {
		burst := max(int(perSecond/10), 1) // makes up for pauses of this machine
		r.turns = rate.NewLimiter(rate.Limit(perSecond), burst)
		r.turns.AllowN(time.Now(), burst-1)
	}
	err := r.executeAll(ctx)
	stop, isStop := errors.AsType[StopError](err)
	if isStop {
		r.release(ctx)
		err = nil
	}
	r.hooks.Close()
	result := resultOf(j)
	result.Stopped = stop.Error()
	return result, err
}

// Do carries out a few steps without a journal, and returns how far they have come. What is not finished stays as
// it is: a message can be in two places. A message that another client has received since is left alone.
func (e *Engine) Do(ctx context.Context, steps []journal.Step) ([]journal.Progress, error) {
	j := journal.InMemory(steps)
	numbers := make([]int, len(steps))
	for n := range steps {
		numbers[n] = n
	}
	r := e.newRun(j)
	r.total = len(steps)
	err := r.executeParallel(ctx, numbers)
	return j.Steps(), err
}

// executeAll returns no error if ctx ends.
func (r *run) executeAll(ctx context.Context) error {
	before := r.journal.Steps()
	r.total = len(before)
	var steps []int
	for n, p := range before {
		if p.Unfinished() {
			steps = append(steps, n)
			continue
		}
		r.finished++
		s, err := r.journal.Step(n)
		if err != nil {
			return err
		}
		r.hooks.Ended(s, p)
	}
	err := r.executePaced(ctx, steps)
	if err != nil || !resultOf(r.journal).Finished() {
		return err
	}
	return r.journal.End()
}

// executePaced carries out the steps: first the canaries, if there are any, and the others once these are delivered.
func (r *run) executePaced(ctx context.Context, steps []int) error {
	pace := r.journal.Run.Pace
	if pace.Canary > 0 && !r.journal.CanaryPassed {
		left, err := r.sendCanaries(ctx, pace, steps)
		if err != nil {
			return err
		}
		steps = left
	}
	if pace.StopAt <= 0 {
		return r.executeSteps(ctx, steps)
	}
	var failed error
	both, ctx := errgroup.WithContext(ctx)
	watching, end := context.WithCancel(ctx)
	both.Go(func() error { return r.hooks.Failures(watching, pace.StopAt) })
	both.Go(func() error {
		defer end()
		failed = r.executeSteps(ctx, steps)
		return failed
	})
	stopped := both.Wait()
	return cmp.Or(failed, stopped) // a step that fails says more than the stop
}

// sendCanaries sends the first messages, waits for their delivery, and returns the steps that are left. A message that
// an earlier process has sent is one of them, unless its call has failed since: then another one takes its place.
func (r *run) sendCanaries(ctx context.Context, pace journal.Pace, steps []int) (left []int, err error) {
	begun, left, err := r.reportSent(steps)
	if err == nil {
		err = r.executeSteps(ctx, begun)
	}
	watched := 0
	for err == nil && ctx.Err() == nil {
		watched, err = r.hooks.Watched(ctx)
		n := min(pace.Canary-watched, len(left))
		if err != nil || n <= 0 {
			break
		}
		err = r.executeSteps(ctx, left[:n])
		left = left[n:] // steps can be skipped
	}
	if err == nil && ctx.Err() == nil && watched > 0 {
		err = r.hooks.Canaries(ctx)
	}
	interrupted := ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()))
	switch {
	case interrupted:
		return nil, StopError("interrupted before the first messages were delivered")
	case err != nil:
		return nil, err
	}
	return left, r.journal.Canary()
}

// reportSent reports the messages that earlier processes have sent to the hooks. It returns the steps of which the rest
// is to be done, and the other ones.
func (r *run) reportSent(steps []int) (begun, left []int, err error) {
	for n, p := range r.journal.Steps() {
		if p.NewID == "" {
			continue
		}
		s, err := r.journal.Step(n)
		if err != nil {
			return nil, nil, err
		}
		r.hooks.Sent(s, true)
	}
	for _, n := range steps {
		if r.journal.Progress(n).NewID != "" {
			begun = append(begun, n)
		} else {
			left = append(left, n)
		}
	}
	return begun, left, nil
}

// reserveTimeout limits how long a plan takes to reserve its messages, and a run to release those that it leaves alone.
const reserveTimeout = 10 * time.Second

// release makes the messages visible again that were received and not changed, as far as there is time: the others
// become visible when their claims end.
func (r *run) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reserveTimeout)
	defer cancel()
	var held []int
	for n, p := range r.journal.Steps() {
		if p.State == journal.Planned && claimLasts(p, time.Second) {
			held = append(held, n)
		}
	}
	each(ctx, held, func(n int) {
		s, err := r.journal.Step(n)
		if err != nil || s.Take.ByReceipt || s.Take.NoText {
			return
		}
		p := r.journal.Progress(n)
		if r.journal.Received(n, p.Receipt, time.Time{}) != nil { // from now on the receipt claims nothing
			return
		}
		receipt, err := r.Store.Update(ctx, s.Take.Queue, s.Take.ID, p.Receipt, s.Take.Text, 0)
		if err == nil {
			_ = r.journal.Received(n, receipt, time.Time{})
		}
	})
}

// waitTurn waits until the rate allows the next message.
func (r *run) waitTurn(ctx context.Context) error {
	if r.turns.Wait(ctx) != nil {
		return errInterrupted
	}
	return nil
}

// executeSteps carries out steps, and finds the messages that it does not hold any more.
func (r *run) executeSteps(ctx context.Context, steps []int) error {
	err := r.executeParallel(ctx, steps)
	if err != nil || ctx.Err() != nil {
		return err
	}
	byQueue := map[string]map[string]int{}
	for _, l := range r.takeLost() {
		if byQueue[l.queue] == nil {
			byQueue[l.queue] = map[string]int{}
		}
		byQueue[l.queue][l.id] = l.step
	}
	for name, lost := range byQueue {
		if err := r.find(ctx, name, lost); err != nil {
			return err
		}
	}
	return nil
}

// executeParallel carries out steps, several at once. It completes the steps that it has begun even when ctx ends
// or a step fails.
func (r *run) executeParallel(ctx context.Context, steps []int) error {
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(parallel)
	for _, n := range steps {
		if ctx.Err() != nil {
			break
		}
		workers.Go(func() error { return r.executeStep(ctx, n) })
	}
	return workers.Wait()
}

// executeStep carries out a step, or adds it to the lost ones.
func (r *run) executeStep(ctx context.Context, n int) error {
	if ctx.Err() != nil { // it may have ended while all workers were busy
		return nil
	}
	s, err := r.journal.Step(n)
	if err != nil {
		return err
	}
	err = r.completeStep(ctx, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, errLost):
		r.lost = append(r.lost, lostMessage{n, s.Take.Queue, s.Take.ID})
		return nil
	case errors.Is(err, errInterrupted):
		return nil
	case err == nil:
		r.finished++
		r.Observer.Advanced(r.finished, r.total)
	}
	return err
}

// each calls do for each item, several at once, until ctx ends.
func each[T any](ctx context.Context, items []T, do func(T)) {
	var workers errgroup.Group
	workers.SetLimit(parallel)
	for _, item := range items {
		workers.Go(func() error {
			if ctx.Err() == nil {
				do(item)
			}
			return nil
		})
	}
	_ = workers.Wait() // no worker returns an error
}

func (r *run) takeLost() []lostMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.lost
	r.lost = nil
	return lost
}

// The pauses between two searches.
const (
	firstPause   = time.Second
	longestPause = 15 * time.Second
)

// find reads a queue until all lost messages were found, by their ids, or nothing more can turn up: the queue has
// no other messages, or none has turned up for as long as the longest lease of this run: it may be this run that
// hides them.
func (r *run) find(ctx context.Context, name string, lost map[string]int) error {
	var until time.Time
	noted := false
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		found, complete, err := r.search(ctx, name, lost)
		if ctx.Err() != nil {
			return ignore(err, ctx.Err())
		}
		if err != nil {
			return err
		}
		if found > 0 || until.IsZero() {
			until = storage.WallTime().Add(max(r.journal.Lease(), ClaimTime))
		}
		if len(lost) == 0 || complete || storage.WallTime().After(until) {
			break
		}
		if !noted {
			at := until.UTC().Format(time.RFC3339)
			r.Observer.Note(fmt.Sprintf("%d messages are invisible: waiting until their leases end, at most until %s",
				len(lost), at))
			noted = true
		}
		storage.Sleep(ctx, pause) // if ctx ends, so does the next search
	}
	for _, n := range lost {
		if err := r.abandon(n); err != nil {
			return err
		}
	}
	return nil
}

// abandon ends a step whose message was not found.
func (r *run) abandon(n int) error {
	s, err := r.journal.Step(n)
	if err == nil {
		err = r.endMissing(s)
	}
	if err != nil {
		return err
	}
	r.hooks.Ended(s, r.journal.Progress(n))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished++
	r.Observer.Advanced(r.finished, r.total)
	return nil
}

// search reads a queue once, and carries out the steps of the messages that it finds. It returns how many it has
// found, and whether the others are not on the queue at all.
func (r *run) search(ctx context.Context, name string, lost map[string]int) (found int, complete bool, err error) {
	total, err := r.count(ctx, name)
	if err != nil {
		return 0, errors.Is(err, storage.ErrNoQueue), ignore(err, storage.ErrNoQueue)
	}
	held := 0
	pass := reading.Reading{Store: r.Store, Queue: name, Total: total, Leased: r.journal.Leased}
	if len(lost) >= total {
		pass.Hold = ClaimTime
	}
	visible, err := pass.Each(ctx, func(b reading.Batch) (taken int, stop bool, err error) {
		var steps []int
		for _, m := range b.Messages {
			n, ok := lost[m.ID]
			if !ok && !m.Again {
				held++
			}
			if !ok {
				continue
			}
			if err := r.received(ctx, n, m.Message, b.Until); err != nil {
				return 0, true, err
			}
			steps = append(steps, n)
			delete(lost, m.ID)
		}
		found += len(steps)
		if err := r.executeParallel(ctx, steps); err != nil {
			return 0, true, err
		}
		for _, l := range r.takeLost() { // somebody has received it at once
			lost[l.id] = l.step
		}
		return len(steps), len(lost) == 0 || ctx.Err() != nil, nil
	})
	reading.Wait(ctx, visible)
	if err != nil || len(lost) == 0 || ctx.Err() != nil {
		return found, false, ignore(err, storage.ErrNoQueue)
	}
	left, err := r.count(ctx, name) // never less than there are
	return found, err == nil && left <= held, ignore(err, storage.ErrNoQueue)
}

// received records a message that was received, and claims it for longer if the lease is short.
func (r *run) received(ctx context.Context, n int, m storage.Message, until time.Time) error {
	if err := r.journal.Received(n, m.PopReceipt, until); err != nil {
		return err
	}
	s, err := r.journal.Step(n)
	if err == nil {
		s.Take.Text, s.Take.NoText = m.Text, false
		_, err = r.claim(ctx, s)
	}
	return ignore(err, errLost)
}

func (e *Engine) count(ctx context.Context, name string) (int, error) {
	return storage.Retry(ctx, func(ctx context.Context) (int, error) { return e.Store.Count(ctx, name) })
}

// ignore returns nil for one kind of error.
func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}
