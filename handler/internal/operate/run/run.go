// Package run carries out changes of messages: runs. It knows no command: a run is a list of steps, and each step is
// data, see [journal.Step]. A step claims the message that it takes away, writes one, and then deletes the claimed one;
// docs/calls.md says what each failure leaves. A journal records every step, so that a killed run can be resumed and
// a finished one undone.
package run

import (
	"cmp"
	"context"
	"errors"
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
	// Sent is called when this process has written a message or made it due.
	Sent(s journal.Step)
	// Ended is called when a step is done or skipped, by this process or by an earlier one.
	Ended(s journal.Step, p journal.Progress)
	// Canaries waits until the messages that were sent are delivered. A [StopError] means that they are not.
	Canaries(ctx context.Context) error
	// Failures returns a [StopError] once more than a share of the calls have failed, and nil when ctx ends.
	Failures(ctx context.Context, share float64) error
	// Close is called at the end.
	Close()
}

// noHooks are the hooks of a run that nobody follows. The other hooks are only for a pace that needs outcomes.
type noHooks struct{ Hooks }

func (noHooks) Sent(journal.Step)                    {}
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

	// leavesLost says that a step is not ended if the receipt of its message is out of date.
	leavesLost bool

	mu sync.Mutex
	// finished is the number of finished steps, sent that of the messages that this process has sent.
	finished, sent int
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
	err := r.claimAgain(ctx)
	if err == nil {
		err = r.executeAll(ctx)
	}
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

// claimAgain reads the queues again on which the claims of messages have ended while a plan or an interrupted run
// waited: others may have received them since, so that their receipts are out of date. A message whose text has changed
// is not the one that was confirmed, and its step is skipped.
func (r *run) claimAgain(ctx context.Context) error {
	ended := map[string]map[string]int{} // the numbers of steps by queue and ID
	for n, progress := range r.journal.Steps() {
		if progress.State != journal.Planned || claimLasts(progress, 0) {
			continue
		}
		s, err := r.journal.Step(n)
		if err != nil {
			return err
		}
		if s.Take == nil || s.Take.ByReceipt || s.Take.NoText {
			continue
		}
		if ended[s.Take.Queue] == nil {
			ended[s.Take.Queue] = map[string]int{}
		}
		ended[s.Take.Queue][s.Take.ID] = n
	}
	for queue, steps := range ended {
		if err := r.receiveAgain(ctx, queue, steps); err != nil {
			return err
		}
	}
	return nil
}

// receiveAgain records the newest receipts of messages. An error of storage is left to the run, which tries the old
// receipts.
func (r *run) receiveAgain(ctx context.Context, queue string, steps map[string]int) (failed error) {
	count := func(ctx context.Context) (int, error) { return r.Store.Count(ctx, queue) }
	total, err := storage.Retry(ctx, count)
	if err != nil {
		return nil
	}
	left := len(steps)
	pass := reading.Reading{Store: r.Store, Queue: queue, Total: total}
	visible, _ := pass.Each(ctx, func(b reading.Batch) (taken int, stop bool, err error) {
		for _, m := range b.Messages {
			n, isPlanned := steps[m.ID]
			if !isPlanned {
				continue
			}
			s, err := r.journal.Step(n)
			if err != nil || s.Take.Text != m.Text {
				failed = errors.Join(failed, err)
				continue
			}
			taken++
			if !m.Again {
				left--
			}
			failed = errors.Join(failed, r.journal.Received(n, m.PopReceipt, b.Until))
		}
		return taken, left == 0 || failed != nil, nil
	})
	reading.Wait(ctx, visible)
	return failed
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
	r.total, r.leavesLost = len(steps), true
	err := r.executeSteps(ctx, numbers)
	return j.Steps(), err
}

// executeAll returns no error if ctx ends. A run that stops when it has sent everything has ended.
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
	_, isStop := errors.AsType[StopError](err)
	if err != nil && !isStop || !resultOf(r.journal).Finished() {
		return err
	}
	return cmp.Or(r.journal.End(), err)
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

// sendCanaries sends the first messages of this process, waits for their delivery, and returns the steps that are left.
func (r *run) sendCanaries(ctx context.Context, pace journal.Pace, steps []int) (left []int, err error) {
	left = steps
	for err == nil && ctx.Err() == nil && r.sent < pace.Canary && len(left) > 0 {
		n := min(pace.Canary-r.sent, len(left))
		err = r.executeSteps(ctx, left[:n])
		left = left[n:] // steps can be skipped
	}
	if err == nil && ctx.Err() == nil && r.sent > 0 {
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

// reportSent reports that the message of a step was sent.
func (r *run) reportSent(s journal.Step) {
	r.mu.Lock()
	r.sent++
	r.mu.Unlock()
	r.hooks.Sent(s)
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

// executeSteps carries out steps, several at once. It completes the steps that it has begun even when ctx ends
// or a step fails.
func (r *run) executeSteps(ctx context.Context, steps []int) error {
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

// executeStep carries out a step.
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
	case errors.Is(err, errLeft), errors.Is(err, errInterrupted):
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
