package poison

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

// parallel is how many messages a run handles at once. It limits how many messages can be written twice when a
// run is killed and resumed.
const parallel = 8

// Result is the result of a run so far, including its earlier parts.
type Result struct {
	Run     string `json:"run"`
	Command string `json:"command"`
	Total   int    `json:"total"`
	// Done messages are where they should be. Skipped ones were left alone; Why has the first reasons.
	Done    int      `json:"done"`
	Skipped int      `json:"skipped,omitempty"`
	Why     []string `json:"why,omitempty"`
	// Both is how many messages are on both queues, Left how many are still to be done. Resume handles them.
	Both int `json:"both,omitempty"`
	Left int `json:"left,omitempty"`
	// Twice is how many messages may have been written twice, because of a kill or a lost answer.
	Twice int `json:"twice,omitempty"`
	// Stopped is why the run stopped by itself before its end.
	Stopped string `json:"stopped,omitempty"`
}

// Finished reports whether nothing is left to resume.
func (r Result) Finished() bool { return r.Both == 0 && r.Left == 0 }

// resultOf sums up the progress of a run.
func resultOf(j *journal.Journal) Result {
	steps := j.Steps()
	result := Result{Run: j.Run.ID, Command: j.Run.Command, Total: len(steps)}
	for _, p := range steps {
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
		case journal.Planned, journal.Begun, journal.Deleting:
			result.Left++
		}
		if p.Writes > 1 || p.State == journal.Skipped && p.Writes > 0 {
			result.Twice++
		}
	}
	return result
}

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
	over    int
	stopped string
	fatal   error
	// twice corrects Result.Twice for what the journal does not say.
	twice int
}

// perform carries out the rest of the run.
func (p *Plan) perform(ctx context.Context) (Result, error) {
	r := &run{Plan: p, watch: newWatch(p.account), before: p.journal.Steps()}
	err := r.performAll(ctx)
	result := resultOf(r.journal)
	result.Stopped = r.stopped
	result.Twice += r.twice
	return result, err
}

// performAll returns no error if ctx ends or if the run stops itself.
func (r *run) performAll(ctx context.Context) error {
	defer r.leases.Renew(ctx)()
	if err := r.send(ctx); err != nil || r.mustStop(ctx) {
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
	if pace.Canary > 0 && pace.Canary < len(r.before) && !r.journal.CanaryPassed {
		first, _ := slices.BinarySearch(steps, pace.Canary)
		if err := r.sendCanaries(ctx, steps[:first]); err != nil || r.mustStop(ctx) {
			return err
		}
		steps = steps[first:]
	}
	if pace.StopAt > 0 {
		watching, end := context.WithCancel(ctx)
		var watcher sync.WaitGroup
		watcher.Go(func() { r.stop(r.watch.failures(watching, pace.StopAt)) })
		defer watcher.Wait()
		defer end()
	}
	return r.all(ctx, steps)
}

// sendCanaries carries out the steps of the canaries that are not finished, and waits for the delivery of all.
func (r *run) sendCanaries(ctx context.Context, steps []int) error {
	pace := r.journal.Run.Pace
	for n := range pace.Canary {
		s, err := r.journal.Step(n)
		if err == nil {
			err = r.watch.begin(ctx, s.To)
		}
		if err != nil {
			return err
		}
		if p := r.before[n]; p.State == journal.Written || p.State == journal.Done { // by an earlier process
			r.watch.sent(s, p)
		}
	}
	if err := r.all(ctx, steps); err != nil || ctx.Err() != nil {
		return err
	}
	problem, err := r.watch.canaries(ctx, pace)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if problem != "" {
		r.stop(problem)
		return nil
	}
	return r.journal.Canary()
}

// all carries out steps, several at once. It completes the steps that it has begun even when ctx ends.
func (r *run) all(ctx context.Context, steps []int) error {
	var turns <-chan time.Time
	if rate := r.journal.Run.Rate; rate > 0 {
		ticker := time.NewTicker(max(time.Duration(float64(time.Second)/rate), 1))
		defer ticker.Stop()
		turns = ticker.C
	}
	var workers sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, n := range steps {
		if i > 0 && turns != nil {
			select {
			case <-ctx.Done():
			case <-turns:
			}
		}
		slots <- struct{}{}
		if r.mustStop(ctx) {
			break
		}
		workers.Go(func() {
			r.one(context.WithoutCancel(ctx), n)
			<-slots
		})
	}
	workers.Wait()
	return r.fatal
}

func (r *run) mustStop(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ctx.Err() != nil || r.stopped != "" || r.fatal != nil
}

func (r *run) stop(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped == "" {
		r.stopped = why
	}
}

// one carries out a step and notes how it ended.
func (r *run) one(ctx context.Context, n int) {
	err := r.step(ctx, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.over++
		r.account.observer().Advanced(r.over, len(r.before))
	case errors.Is(err, lease.ErrLost):
		r.lost = append(r.lost, n)
	case r.fatal == nil:
		r.fatal = err
	}
}

// step carries out a step: it writes the message, then deletes the original. It returns [lease.ErrLost] if the
// original is not leased any more.
func (r *run) step(ctx context.Context, n int) error {
	s, err := r.journal.Step(n)
	if err != nil {
		return err
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
	if m == nil {
		return r.journal.Enter(n, journal.Done)
	}
	if s.To == "" {
		if err := r.journal.Enter(n, journal.Deleting); err != nil {
			return err
		}
	}
	if err := r.leases.Delete(ctx, m); err != nil {
		return err
	}
	r.watch.deletedFrom(s.From)
	return r.journal.Enter(n, journal.Done)
}

// undoes reports whether the run undoes another one. It takes messages from queues that a function app reads, where
// it cannot search for them. It therefore never changes their receipts, writes first, and deletes what it has written
// if the app turns out to have received the original.
func (r *run) undoes() bool { return r.journal.Run.Of != "" }

func (r *run) write(ctx context.Context, n int, s journal.Step) error {
	if err := r.journal.Enter(n, journal.Begun); err != nil {
		return err
	}
	item := queue.Item{Text: s.Text(), Delay: r.delay(n)}
	tries := 0
	put, err := lease.Retry(ctx, func(ctx context.Context) (queue.Message, error) {
		tries++
		put, err := r.account.Store.Put(ctx, s.To, item)
		if errors.Is(err, queue.ErrNoQueue) {
			if err = r.account.Store.Create(ctx, s.To); err == nil {
				put, err = r.account.Store.Put(ctx, s.To, item)
			}
		}
		return put, err
	})
	if err != nil {
		return err
	}
	err = r.journal.Written(n, put.ID, put.PopReceipt, put.InsertedAt, tries)
	r.watch.sent(s, r.journal.Progress(n))
	return err
}

// delay returns how long a step's message stays invisible. A canary is not delayed, because the run waits for it.
func (r *run) delay(n int) time.Duration {
	pace := r.journal.Run.Pace
	if n < pace.Canary {
		return 0
	}
	return pace.Delay + time.Duration(float64(pace.Spread)*float64(n)/float64(len(r.before)))
}
