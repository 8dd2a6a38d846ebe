package run

import (
	"context"
	"errors"
	"time"

	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/reading"
)

// Plan is a run that waits for a confirmation. Nothing is changed yet. A plan remembers the ids and receipts of its
// messages, and reserves those that it has received for [ClaimTime]. The caller must either Execute or Discard it.
type Plan struct {
	// Run describes the run.
	Run journal.Run
	// Total is the number of steps, From and To are the numbers of messages by queue.
	Total    int
	From, To map[string]int

	run *run
	// undoes is the journal of the run that is undone, or nil. It is locked, so that no other process resumes that run.
	undoes *journal.Journal
}

// Begin returns an empty plan.
func (e *Engine) Begin(about journal.Run) (*Plan, error) {
	about.Account, about.Operator = e.Account, e.Operator
	j, err := e.Runs.Begin(about)
	if err != nil {
		return nil, err
	}
	return &Plan{Run: j.Run, From: map[string]int{}, To: map[string]int{}, run: e.newRun(j)}, nil
}

// Add adds a step, and numbers it.
func (p *Plan) Add(s journal.Step) error {
	s.N = p.Total
	if err := p.run.journal.Plan(s); err != nil {
		return err
	}
	p.Total++
	if s.Take != nil {
		p.From[s.Take.Queue]++
	}
	for _, put := range []*journal.Put{s.Put, s.Then} {
		if put != nil {
			p.To[put.Queue]++
		}
	}
	return nil
}

// Selection says what a plan does with the messages of a queue.
type Selection struct {
	Queue string
	// Total is about how many messages the queue has. Whole says that all of them will be selected.
	Total int
	Whole bool
	// Select returns the step of a message, or nil to leave the message alone. It is called once for each message. The
	// claim of the message is filled in.
	Select func(m storage.Message) (*journal.Step, error)
	// Enough, unless nil, ends the reading when it returns true.
	Enough func() bool
}

func (s Selection) isOver() bool { return s.Enough != nil && s.Enough() }

// Read reads a queue that no function reads, and adds the steps of the selected messages.
func (p *Plan) Read(ctx context.Context, s Selection) error {
	numbers := map[string]int{}
	pass := reading.Reading{Store: p.run.Store, Queue: s.Queue, Total: s.Total}
	if s.Whole {
		pass.Hold = ClaimTime
	}
	first := p.Total
	visible, err := pass.Each(ctx, func(b reading.Batch) (taken int, stop bool, err error) {
		before := p.Total
		var alone []reading.Message
		for _, m := range b.Messages {
			if err := p.choose(m, b.Until, s, numbers); err != nil {
				return 0, true, err
			}
			if _, chosen := numbers[m.ID]; !chosen && !m.Again && s.Whole {
				alone = append(alone, m)
			}
		}
		each(ctx, alone, func(m reading.Message) { // an error only hides the message for longer
			_, _ = p.run.Store.Update(ctx, s.Queue, m.ID, m.PopReceipt, m.Text, b.Rest)
		})
		return p.Total - before, s.isOver() || ctx.Err() != nil, nil
	})
	p.reserve(ctx, first)
	reading.Wait(ctx, visible)
	return err
}

// choose adds the step of a received message, unless the message is not selected. Of a message that comes again,
// it records the newer receipt.
func (p *Plan) choose(m reading.Message, until time.Time, s Selection, numbers map[string]int) error {
	if n, ok := numbers[m.ID]; ok {
		return p.run.journal.Received(n, m.PopReceipt, until)
	}
	if m.Again || s.isOver() {
		return nil
	}
	step, err := s.Select(m.Message)
	if err != nil || step == nil {
		return err
	}
	numbers[m.ID] = p.Total
	step.Take.Queue, step.Take.ID = s.Queue, m.ID
	step.Take.Receipt, step.Take.Until = m.PopReceipt, until
	if m.Expires() {
		step.Take.Expires = m.ExpiresAt
	}
	return p.Add(*step)
}

// reserve claims the messages of the steps from the given number on, as far as their leases are short, their texts are
// known and there is time. The others are only more likely to be received by somebody else before the run begins.
func (p *Plan) reserve(ctx context.Context, first int) {
	ctx, cancel := context.WithTimeout(ctx, reserveTimeout)
	defer cancel()
	var short []int
	for n := first; n < p.Total; n++ {
		if !claimLasts(p.run.journal.Progress(n), minClaim) {
			short = append(short, n)
		}
	}
	each(ctx, short, func(n int) {
		if s, err := p.run.journal.Step(n); err == nil {
			_, _ = p.run.claim(ctx, s)
		}
	})
}

// Discard removes the plan, and releases its messages.
func (p *Plan) Discard(ctx context.Context) {
	p.run.release(ctx)
	_ = p.run.journal.Discard()
	if p.undoes != nil {
		_ = p.undoes.Close()
	}
}

// Execute carries out the plan, once. When ctx ends it completes the steps that it has begun and leaves the rest to
// [Engine.Resume].
func (p *Plan) Execute(ctx context.Context) (result Result, err error) {
	j := p.run.journal
	defer func() { err = errors.Join(err, closeBoth(j, p.undoes)) }()
	if err := j.Go(); err != nil {
		return Result{}, err
	}
	if p.undoes != nil {
		if err := p.undoes.Undone(j.Run.ID); err != nil {
			return Result{}, err
		}
	}
	return p.run.execute(ctx, j)
}

func closeBoth(j, undoes *journal.Journal) (err error) {
	if undoes != nil {
		err = undoes.Close()
	}
	return errors.Join(j.Close(), err)
}
