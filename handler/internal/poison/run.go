package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
	"asynccaller/handler/internal/scheduled"
)

// parallel is how many messages a run handles at once. It limits how many messages can be written twice when a
// run is killed and resumed.
const parallel = 8

// run carries out a plan.
type run struct {
	*Plan
	watch *watch

	// before is the progress of the steps when this process began.
	before []journal.Progress

	mu sync.Mutex
	// lost are the steps whose message is not leased any more.
	lost []int
	// over is the number of finished steps.
	over int
	// twice says of some steps whether their message exists twice, which the journal does not say.
	twice map[int]bool
	// rows changes the record of scheduled messages; nil without a record.
	rows *scheduled.Recorder
}

// stopError is why a run stops by itself.
type stopError string

func (e stopError) Error() string { return string(e) }

// perform carries out the rest of the run.
func (p *Plan) perform(ctx context.Context) (Result, error) {
	r := &run{Plan: p, before: p.journal.Steps(), twice: map[int]bool{}, watch: &watch{
		account: p.account, out: map[string]sentMessage{}, before: map[string]int{}, counts: map[string]int{}, deleted: map[string]int{},
	}}
	if p.account.Table != nil {
		r.rows = newRecorder(p.account.Table) //nolint:contextcheck // endRecord ends it
	}
	err := r.performAll(ctx)
	result := resultOf(r.journal)
	result.Twice, result.TwiceMessages = r.writtenTwice()
	result.Refused, result.Refusals, result.Unmatched, result.Warnings = p.Refused, p.Refusals, p.Unmatched, p.Warnings
	if stopped, ok := errors.AsType[stopError](err); ok {
		result.Stopped, err = stopped.Error(), nil
	}
	return result, err
}

// writtenTwice returns the number of messages that may have been written twice, and the names of the first of them.
func (r *run) writtenTwice() (count int, first []Name) {
	for n, p := range r.journal.Steps() {
		twice, known := r.twice[n]
		if !known {
			twice = mayBeTwice(p)
		}
		if !twice {
			continue
		}
		count++
		if len(first) == maxRefusals {
			continue
		}
		if s, err := r.journal.Step(n); err == nil {
			first = append(first, Name{Queue: s.To, ID: cmp.Or(p.NewID, s.ID), RequestID: s.RequestID})
		}
	}
	return count, first
}

// performAll returns no error if ctx ends.
func (r *run) performAll(ctx context.Context) error {
	defer r.leases.Renew(ctx)()
	defer r.endRecord()
	if err := r.send(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := r.findLost(ctx); err != nil || !resultOf(r.journal).Finished() || ctx.Err() != nil {
		return err
	}
	return r.journal.End()
}

// send carries out the steps: first the canaries, if there are any, and the others once these are delivered.
func (r *run) send(ctx context.Context) error {
	var steps []int
	for n, p := range r.before {
		if p.Unfinished() {
			steps = append(steps, n)
		}
	}
	r.over = len(r.before) - len(steps)
	pace := r.journal.Run.Pace
	pace.Canary = min(pace.Canary, len(r.before))
	if pace.Canary > 0 && !r.journal.CanaryPassed {
		first, _ := slices.BinarySearch(steps, pace.Canary)
		if err := r.sendCanaries(ctx, pace, steps[:first]); err != nil {
			return err
		}
		steps = steps[first:]
	}
	if pace.StopAt <= 0 {
		return r.all(ctx, steps)
	}
	var failed error
	both, ctx := errgroup.WithContext(ctx)
	watching, end := context.WithCancel(ctx)
	both.Go(func() error { return r.watch.failures(watching, pace.StopAt) })
	both.Go(func() error {
		defer end()
		failed = r.all(ctx, steps)
		return failed
	})
	stopped := both.Wait()
	return cmp.Or(failed, stopped) // a step that fails says more than the stop
}

// sendCanaries carries out the steps of the canaries that are not finished, and waits for the delivery of all.
func (r *run) sendCanaries(ctx context.Context, pace journal.Pace, steps []int) error {
	for n := range pace.Canary {
		s, err := r.journal.Step(n)
		if err == nil {
			err = r.watch.begin(ctx, s.To)
		}
		if err != nil {
			return err
		}
		p := r.before[n]
		if s.Row != nil && p.Unfinished() {
			r.watch.before[s.To]-- // it is on the queue already
		}
		if p.State == journal.Written || p.State == journal.Done { // by an earlier process
			r.watch.sent(s, p)
		}
	}
	err := r.all(ctx, steps)
	if err == nil && ctx.Err() == nil {
		err = r.watch.canaries(ctx, pace)
	}
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
		return stopError("interrupted before the first messages were delivered")
	case err != nil:
		return err
	}
	return r.journal.Canary()
}

// all carries out steps, several at once. It completes the steps that it has begun even when ctx ends or a step fails.
func (r *run) all(ctx context.Context, steps []int) error {
	turns := rate.NewLimiter(rate.Inf, 1)
	if perSecond := r.journal.Run.Rate; perSecond > 0 {
		burst := max(int(perSecond/10), 1) // makes up for pauses of this machine
		turns = rate.NewLimiter(rate.Limit(perSecond), burst)
		turns.AllowN(time.Now(), burst-1)
	}
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(parallel)
	for _, n := range steps {
		if turns.Wait(ctx) != nil { // ctx has ended
			break
		}
		workers.Go(func() (err error) {
			if ctx.Err() == nil { // it may have ended while all workers were busy
				err = r.one(context.WithoutCancel(ctx), n)
			}
			return err
		})
	}
	return workers.Wait()
}

// one carries out a step, or adds it to the lost ones.
func (r *run) one(ctx context.Context, n int) error {
	err := r.step(ctx, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, lease.ErrLost):
		r.lost = append(r.lost, n)
		return nil
	case err == nil:
		r.over++
		r.account.observer().Advanced(r.over, len(r.before))
	}
	return err
}

// step carries out a step: it writes the message, then deletes the original. It returns [lease.ErrLost] if the
// original is not leased any more.
func (r *run) step(ctx context.Context, n int) error {
	s, err := r.journal.Step(n)
	if err != nil {
		return err
	}
	if s.Row != nil && s.From != "" {
		return r.stepScheduled(ctx, s)
	}
	m := r.leases.Find(s.From, s.ID)
	if s.From != "" && m == nil {
		return lease.ErrLost
	}
	if s.To != "" && r.journal.Progress(n).State != journal.Written {
		if m != nil && !r.undoes() {
			if err := r.leases.Ensure(ctx, m); err != nil {
				return err
			}
		}
		if err := r.write(ctx, n, s); err != nil {
			return err
		}
	}
	if m != nil && s.To == "" {
		if err := r.journal.Enter(n, journal.Deleting); err != nil {
			return err
		}
	}
	if m != nil {
		if err := r.leases.Delete(ctx, m); err != nil {
			return err
		}
		r.watch.deletedFrom(s.From)
	}
	defer r.record(s)
	return r.journal.Enter(n, journal.Done)
}

// undoes reports whether the run undoes another one. It takes messages from queues that a function app reads, where
// it cannot search for them. It therefore never changes their receipts, writes first, and deletes what it has written
// if the app has received the original.
func (r *run) undoes() bool { return r.journal.Run.Of != "" }

func (r *run) write(ctx context.Context, n int, s journal.Step) error {
	if err := r.journal.Enter(n, journal.Begun); err != nil {
		return err
	}
	item := queue.Item{Text: s.Text(), Delay: r.delay(s)}
	tries := 0
	put, err := lease.Retry(ctx, func(ctx context.Context) (queue.Message, error) {
		tries++
		return queue.PutCreating(ctx, r.account.Store, s.To, item)
	})
	if err != nil {
		return err
	}
	err = r.journal.Written(n, put.ID, put.PopReceipt, put.InsertedAt, tries)
	r.watch.sent(s, r.journal.Progress(n))
	return err
}

// delay returns how long a step's message stays invisible. A canary is not delayed, because the run waits for it. A message
// that was cancelled waits until it was due.
func (r *run) delay(s journal.Step) time.Duration {
	pace := r.journal.Run.Pace
	switch {
	case s.Row != nil && s.From == "":
		return max(time.Until(s.Row.NextAttemptAt), 0)
	case s.N < pace.Canary:
		return 0
	}
	return pace.Delay + time.Duration(float64(pace.Spread)*float64(s.N)/float64(len(r.before)))
}

// searchInterval is how often the run searches for invisible messages.
const searchInterval = 10 * time.Second

// findLost handles the steps whose message is not leased any more. It searches the queues for the messages, because a
// stale receipt does not mean that another client has received one: a kill or a lost answer may have kept us from
// recording the newest receipt. Then the message is invisible until the lease ends that a process of this run has taken.
func (r *run) findLost(ctx context.Context) error {
	lease := max(r.journal.Lease(), r.leases.Lease())
	for began, noted := time.Now(), false; len(r.lost) > 0; noted = true {
		if err := r.findOnce(ctx); err != nil {
			return err
		}
		if len(r.lost) == 0 || time.Since(began) > lease {
			return nil
		}
		if !noted {
			r.account.observer().Note(fmt.Sprintf("%d messages are invisible: waiting until their leases end, at most %v",
				len(r.lost), lease))
		}
		if !queue.Sleep(ctx, searchInterval) {
			return nil
		}
	}
	return nil
}

// findOnce searches the queues once. Messages that are still invisible stay lost.
func (r *run) findOnce(ctx context.Context) error {
	byQueue := map[string]map[string]journal.Step{}
	for _, n := range r.lost {
		s, err := r.journal.Step(n)
		if err != nil {
			return err
		}
		s.Before, s.After = "", "" // the texts are not needed here, and there may be many
		if byQueue[s.From] == nil {
			byQueue[s.From] = map[string]journal.Step{}
		}
		byQueue[s.From][s.ID] = s
	}
	r.lost = nil
	for name, lost := range byQueue {
		where, err := r.find(ctx, name, lost)
		if err != nil {
			return err
		}
		for _, s := range lost {
			if r.leases.Find(name, s.ID) != nil {
				err = r.one(context.WithoutCancel(ctx), s.N)
			} else {
				err = r.abandon(ctx, s, where)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// whereabouts says why messages were not found on a queue.
type whereabouts int

const (
	gone whereabouts = iota
	// hidden: messages of the queue are invisible, perhaps these.
	hidden
	// taken: a function app reads the queue and has received them.
	taken
)

// find leases messages of a queue, and says where the others are. It takes none from a function app's queue.
func (r *run) find(ctx context.Context, name string, lost map[string]journal.Step) (whereabouts, error) {
	all, err := r.account.names(ctx)
	if err != nil {
		return hidden, err
	}
	if r.account.isRead(all, name) {
		return taken, nil
	}
	before, err := r.account.count(ctx, name)
	if err != nil {
		return hidden, err
	}
	seen, found := 0, 0
	err = r.leases.Take(ctx, name, before, lease.Selection{
		Select: func(m queue.Message) (int, bool) {
			seen++
			s, ok := lost[m.ID]
			if ok {
				found++
			}
			return s.N, ok
		},
		Enough: func() bool { return found == len(lost) },
	})
	if err != nil || found == len(lost) {
		return gone, err
	}
	after, err := r.account.count(ctx, name)
	if err != nil || seen < max(before, after) {
		return hidden, err
	}
	return gone, nil
}

// abandon ends a step whose message was not found. A message that may only be invisible stays lost.
func (r *run) abandon(ctx context.Context, s journal.Step, where whereabouts) error {
	p := r.journal.Progress(s.N)
	switch {
	case where == hidden:
		r.lost = append(r.lost, s.N)
		return nil
	case p.State == journal.Written && r.undoes() && r.before[s.N].State != journal.Written: // this process wrote it, and has not deleted the original
		return r.retract(ctx, s, p)
	case p.State == journal.Deleting && r.before[s.N].State == journal.Deleting, p.State == journal.Written && where == gone:
		return r.journal.Enter(s.N, journal.Done) // by an earlier process or by another client
	case p.State == journal.Written: // an earlier process was killed after the write, perhaps also after the deletion
		r.twice[s.N] = true
		r.account.observer().Note(fmt.Sprintf("%s is not on %s any more: this run has deleted it, or somebody has taken it and it exists twice", s.ID, s.From))
		return r.journal.Enter(s.N, journal.Done)
	}
	return r.journal.Skipped(s.N, fmt.Sprintf("%s is gone from %s: delivered, received or moved by somebody else", s.ID, s.From))
}

// retract deletes the message that a step has written, because another client had received the original before.
func (r *run) retract(ctx context.Context, s journal.Step, p journal.Progress) error {
	why := fmt.Sprintf("%s is gone from %s: delivered, received or moved before", s.ID, s.From)
	written, err := r.leases.Adopt(s.N, s.To, p.NewID, p.NewPopReceipt, "")
	if err == nil {
		err = r.leases.Delete(context.WithoutCancel(ctx), written)
	}
	switch {
	case errors.Is(err, lease.ErrLost):
		why += "; it is on " + s.To + " too"
	case err != nil:
		return err
	case p.Writes == 1:
		r.twice[s.N] = false
	}
	return r.journal.Skipped(s.N, why)
}
