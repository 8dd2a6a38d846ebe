package poison

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"asynccaller/handler/poison/journal"
	"asynccaller/handler/poison/lease"
	"asynccaller/handler/queue"
)

// parallel is how many messages are on their way at once, and so how many at most may be written twice when
// a run is killed and resumed.
const parallel = 8

// Result is what a run has done so far, earlier parts of it included.
type Result struct {
	Run     string `json:"run"`
	Command string `json:"command"`
	Total   int    `json:"total"`
	// Done messages are where they should be. Skipped ones were left alone: Why says the first reasons.
	Done    int      `json:"done"`
	Skipped int      `json:"skipped,omitempty"`
	Why     []string `json:"why,omitempty"`
	// Both are written, and still where they were too. Left are still to be done. Resuming sees to both.
	Both int `json:"both,omitempty"`
	Left int `json:"left,omitempty"`
	// Twice is how many may have been written twice: a kill or a lost answer left that open.
	Twice int `json:"twice,omitempty"`
	// Stopped is why the run stopped before its end, where it was not told to.
	Stopped string `json:"stopped,omitempty"`
}

// Finished reports whether nothing is left to be resumed.
func (r Result) Finished() bool { return r.Both == 0 && r.Left == 0 }

// run carries out the steps of a journal.
type run struct {
	account  *Account
	journal  *journal.Journal
	history  *journal.History
	hold     *lease.Hold
	observer Observer
	limit    limiter
	watch    *watch

	mu sync.Mutex
	// wrote are the steps that this process has written.
	wrote   map[int]bool
	lost    []int
	stopped string
	over    int
	fatal   error
}

func newRun(a *Account, j *journal.Journal, h *journal.History, hold *lease.Hold, o Observer) *run {
	return &run{
		account: a, journal: j, history: h, hold: hold, observer: o, limit: limiter{rate: h.Run.Rate},
		watch: newWatch(a, o), wrote: map[int]bool{},
	}
}

// perform does what is left of the run. Its error is what kept it from that; when ctx ends, or the run stops
// itself, there is none.
func (r *run) perform(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { r.hold.Renew(ctx) })
	defer renewing.Wait()
	defer cancel()

	steps := r.unfinished()
	r.over = len(r.history.Steps) - len(steps)
	if err := r.inOrder(ctx, steps); err != nil {
		return err
	}
	if ctx.Err() != nil || r.stopped != "" {
		return nil
	}
	if err := r.search(ctx); err != nil {
		return err
	}
	if !r.result().Finished() || ctx.Err() != nil {
		return nil
	}
	return r.journal.End()
}

// inOrder sends the canaries first, if there are to be any, and the others when those were delivered.
func (r *run) inOrder(ctx context.Context, steps []int) error {
	pace := r.history.Run.Pace
	if n := pace.Canary; n > 0 && !r.history.CanaryPassed && n < len(r.history.Steps) {
		first := before(steps, n)
		for _, i := range first {
			s, err := r.history.Step(i)
			if err == nil {
				err = r.watch.begin(ctx, s.To)
			}
			if err != nil {
				return err
			}
		}
		if err := r.all(ctx, first); err != nil || ctx.Err() != nil {
			return err
		}
		problem, err := r.canaries(ctx, n, pace.CanaryWait)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if problem != "" {
			r.stop(problem)
			return nil
		}
		if err := r.journal.Canary(); err != nil {
			return err
		}
		steps = steps[len(first):]
	}
	if pace.StopAt > 0 {
		watching, end := context.WithCancel(ctx)
		var watcher sync.WaitGroup
		watcher.Go(func() {
			if problem := r.watch.failures(watching, pace.StopAt); problem != "" {
				r.stop(problem)
			}
		})
		defer watcher.Wait()
		defer end()
	}
	return r.all(ctx, steps)
}

// before returns the numbers below n; they are in order.
func before(steps []int, n int) []int {
	for i, step := range steps {
		if step >= n {
			return steps[:i]
		}
	}
	return steps
}

func (r *run) unfinished() []int {
	var steps []int
	for n, p := range r.history.Steps {
		if p.State != journal.Done && p.State != journal.Skipped {
			steps = append(steps, n)
		}
	}
	return steps
}

// all does steps, several at once. What has begun is finished even when ctx ends.
func (r *run) all(ctx context.Context, steps []int) error {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(parallel, len(steps)) {
		workers.Go(func() {
			for n := range next {
				r.one(context.WithoutCancel(ctx), n)
			}
		})
	}
	for _, n := range steps {
		if !r.limit.wait(ctx) || r.mustStop() {
			break
		}
		next <- n
	}
	close(next)
	workers.Wait()
	return r.fatal
}

func (r *run) mustStop() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped != "" || r.fatal != nil
}

func (r *run) stop(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped == "" {
		r.stopped = why
	}
}

// one does a step: write, then delete.
func (r *run) one(ctx context.Context, n int) {
	err := r.step(ctx, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.over++
		r.observer.Advanced(r.over, len(r.history.Steps))
	case errors.Is(err, lease.ErrLost):
		r.lost = append(r.lost, n)
	case r.fatal == nil:
		r.fatal = err
	}
}

// step returns [lease.ErrLost] where the message that it takes is not ours.
func (r *run) step(ctx context.Context, n int) error {
	p := &r.history.Steps[n]
	s, err := r.history.Step(n)
	if err != nil {
		return err
	}
	m := r.hold.Find(s.From, s.ID)
	if s.From != "" && m == nil {
		return lease.ErrLost
	}
	if s.To != "" && p.State != journal.Written {
		if m != nil && !r.undoes() {
			if err := r.hold.Ensure(ctx, m); err != nil {
				return err
			}
		}
		if err := r.write(ctx, n, s); err != nil {
			return err
		}
	}
	if m != nil {
		if s.To == "" {
			if err := r.leave(n); err != nil {
				return err
			}
		}
		if err := r.hold.Delete(ctx, m); err != nil {
			return err
		}
		r.watch.took(s.From)
	}
	return r.done(n)
}

// undoes reports whether the run takes another one back. It takes messages from queues that a function app
// reads, where they cannot be looked for: so it never changes the receipts that it has of them, writes first,
// and takes back what it wrote when the original turns out to have been read.
func (r *run) undoes() bool { return r.history.Run.Of != "" }

func (r *run) write(ctx context.Context, n int, s journal.Step) error {
	if err := r.journal.Begun(n); err != nil {
		return err
	}
	p := &r.history.Steps[n]
	p.State = journal.Begun
	p.Writes++
	item := queue.Item{Text: s.Text(), Delay: r.delay(n)}
	var put queue.Message
	tries := 0
	err := patiently(ctx, func(ctx context.Context) (err error) {
		tries++
		put, err = r.account.Store.Put(ctx, s.To, item)
		if errors.Is(err, queue.ErrNoQueue) {
			if err = r.account.Store.Create(ctx, s.To); err == nil {
				put, err = r.account.Store.Put(ctx, s.To, item)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	p.State, p.NewID, p.NewPopReceipt, p.WrittenAt = journal.Written, put.ID, put.PopReceipt, put.InsertedAt
	p.Writes += tries - 1
	r.watch.sent(s, *p)
	r.mu.Lock()
	r.wrote[n] = true
	r.mu.Unlock()
	return r.journal.Written(n, put.ID, put.PopReceipt, put.InsertedAt, tries)
}

// delay is how long a step's message stays invisible. A canary does not wait: we wait for it.
func (r *run) delay(n int) time.Duration {
	pace := r.history.Run.Pace
	if n < pace.Canary {
		return 0
	}
	return pace.Delay + time.Duration(float64(pace.Spread)*float64(n)/float64(len(r.history.Steps)))
}

func (r *run) leave(n int) error {
	r.history.Steps[n].State = journal.Leaving
	return r.journal.Leaving(n)
}

func (r *run) done(n int) error {
	r.history.Steps[n].State = journal.Done
	return r.journal.Deleted(n)
}

func (r *run) skip(n int, why string) error {
	p := &r.history.Steps[n]
	p.State, p.Why = journal.Skipped, why
	return r.journal.Skipped(n, why)
}

// search deals with the messages that were not ours any more. They are looked for: a receipt that we did not
// note, because we were killed or an answer was lost, does not make a message somebody else's. Where it was
// our own lease, it ends in a while.
func (r *run) search(ctx context.Context) error {
	for began, told := time.Now(), false; len(r.lost) > 0; {
		lost := r.lost
		r.lost = nil
		if err := r.seek(ctx, lost); err != nil {
			return err
		}
		if len(r.lost) == 0 || time.Since(began) > r.hold.Lease() {
			return r.fatal
		}
		if !told {
			r.observer.Note(fmt.Sprintf("%d messages are out of sight: waiting until their leases end, at most %v",
				len(r.lost), r.hold.Lease().Round(time.Second)))
			told = true
		}
		select {
		case <-ctx.Done():
			return r.fatal
		case <-time.After(seekEvery):
		}
	}
	return r.fatal
}

// seekEvery is how often messages that are out of sight are looked for.
const seekEvery = 10 * time.Second

// seek looks once for messages on their queues. Those that are still out of sight stay lost.
func (r *run) seek(ctx context.Context, lost []int) error {
	byQueue := make(map[string]map[string]int)
	for _, n := range lost {
		s, err := r.history.Step(n)
		if err != nil {
			return err
		}
		if byQueue[s.From] == nil {
			byQueue[s.From] = make(map[string]int)
		}
		byQueue[s.From][s.ID] = n
	}
	for name, ids := range byQueue {
		where, err := r.find(ctx, name, maps.Clone(ids))
		if err != nil {
			return err
		}
		for id, n := range ids {
			if r.hold.Find(name, id) != nil {
				r.one(context.WithoutCancel(ctx), n)
			} else if err := r.giveUp(ctx, n, id, name, where); err != nil {
				return err
			}
		}
	}
	return r.fatal
}

// whereabouts is what is known of messages that were looked for and not found.
type whereabouts int

const (
	gone whereabouts = iota
	// hidden: somebody has messages of the queue, perhaps these.
	hidden
	// taken: a function app reads the queue, and has read them.
	taken
)

// find takes messages from their queue, if they may be taken there, and says where the others are.
func (r *run) find(ctx context.Context, name string, ids map[string]int) (whereabouts, error) {
	all, err := r.account.names(ctx)
	if err != nil {
		return hidden, err
	}
	if r.account.live(all, name) != "" {
		return taken, nil
	}
	before, err := r.account.count(ctx, name)
	if err != nil {
		return gone, ignoreMissing(err)
	}
	seen, err := r.hold.Take(ctx, name, lease.Choice{
		Choose: func(m queue.Message) (int, bool) {
			n, ok := ids[m.ID]
			delete(ids, m.ID)
			return n, ok
		},
		Enough: func() bool { return len(ids) == 0 },
	})
	r.hold.GiveBackOthers(ctx)
	if err != nil || len(ids) == 0 {
		return gone, err
	}
	after, err := r.account.count(ctx, name)
	if err != nil {
		return hidden, ignoreMissing(err)
	}
	if seen < max(before, after) {
		return hidden, nil
	}
	return gone, nil
}

// giveUp ends a step whose message cannot be had, unless it may only be away for a moment: then it is left to
// be resumed.
func (r *run) giveUp(ctx context.Context, n int, id, from string, where whereabouts) error {
	state := r.history.Steps[n].State
	switch {
	case where == hidden:
		r.lost = append(r.lost, n)
		return nil
	case state == journal.Written && r.undoes() && r.wrote[n]: // so it was not us who deleted it
		return r.retract(ctx, n, fmt.Sprintf("%s was taken from %s before", id, from))
	case state == journal.Leaving, state == journal.Written && where == gone:
		return r.done(n) // we have deleted it, or somebody else has
	case state == journal.Written: // by an earlier process, which may have deleted it too before it was killed
		r.history.Steps[n].Writes++
		r.observer.Note(fmt.Sprintf("%s is not on %s any more: we have deleted it, or it was taken and is there twice", id, from))
		return r.done(n)
	}
	return r.skip(n, fmt.Sprintf("%s was taken from %s by somebody else", id, from))
}

// retract deletes what a step has written, because it was too late.
func (r *run) retract(ctx context.Context, n int, why string) error {
	s, err := r.history.Step(n)
	if err != nil {
		return err
	}
	p := &r.history.Steps[n]
	err = patiently(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return r.account.Store.Delete(ctx, s.To, p.NewID, p.NewPopReceipt)
	})
	switch {
	case err == nil:
		p.Writes = 0
	case errors.Is(err, queue.ErrStale):
		why += "; it is on " + s.To + " too"
	default:
		return err
	}
	return r.skip(n, why)
}

// result sums up.
func (r *run) result() Result {
	result := Result{Run: r.journal.Run.ID, Command: r.journal.Run.Command, Total: len(r.history.Steps), Stopped: r.stopped}
	for _, p := range r.history.Steps {
		switch p.State {
		case journal.Done:
			result.Done++
		case journal.Skipped:
			result.Skipped++
			if len(result.Why) < maxRefusals {
				result.Why = append(result.Why, p.Why)
			}
		case journal.Written:
			result.Both++
		case journal.Planned, journal.Begun, journal.Leaving:
			result.Left++
		}
		if p.Writes > 1 || p.State == journal.Skipped && p.Writes > 0 {
			result.Twice++
		}
	}
	return result
}

// limiter spreads work over time.
type limiter struct {
	rate float64 // a second; 0 for no limit
	next time.Time
}

// wait waits for its turn, and reports false when ctx ends first.
func (l *limiter) wait(ctx context.Context) bool {
	if ctx.Err() != nil || l.rate <= 0 {
		return ctx.Err() == nil
	}
	now := time.Now()
	if l.next.Before(now) {
		l.next = now
	}
	timer := time.NewTimer(l.next.Sub(now))
	defer timer.Stop()
	l.next = l.next.Add(time.Duration(float64(time.Second) / l.rate))
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
