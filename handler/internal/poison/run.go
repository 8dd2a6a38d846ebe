package poison

import (
	"context"
	"errors"
	"sync"
	"time"

	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
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

func newRun(a *Account, j *journal.Journal, h *journal.History, hold *lease.Hold) *run {
	return &run{
		account: a, journal: j, history: h, hold: hold, observer: a.observer(), limit: limiter{rate: h.Run.Rate},
		watch: newWatch(a), wrote: map[int]bool{},
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
	err := lease.Patiently(ctx, func(ctx context.Context) (err error) {
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
