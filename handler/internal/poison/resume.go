package poison

import (
	"context"
	"errors"
	"fmt"

	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue/lease"
)

// Errors of Resume and PlanUndo.
var (
	// ErrNothingLeft means that there is nothing to resume or to undo.
	ErrNothingLeft = errors.New("nothing is left to be done")
	// ErrOtherAccount means that the run's messages belong to another account.
	ErrOtherAccount = errors.New("the run was on another account")
)

// Resume goes on with a run that was interrupted. Messages that it had taken are taken again by the receipts
// that it noted or, where those do not count any more, by looking for them. A run that was interrupted before
// it was agreed to gives its messages back.
func (a *Account) Resume(ctx context.Context, id string) (result Result, err error) {
	j, err := a.Runs.Reopen(id)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	history, err := a.Runs.Read(id)
	if err != nil {
		return Result{}, err
	}
	defer history.Close()
	if err := a.resumable(history); err != nil {
		return Result{}, err
	}
	if _, err := a.reach(ctx); err != nil {
		return Result{}, err
	}
	if j.Run.Of != "" {
		of, err := a.Runs.Reopen(j.Run.Of) // nobody goes on with it meanwhile
		if err != nil {
			return Result{}, err
		}
		defer func() { err = errors.Join(err, of.Close()) }()
	}
	hold, err := newHold(a, j)
	if err != nil {
		return Result{}, err
	}
	defer hold.Close(ctx)
	if err := adopt(hold, history); err != nil {
		return Result{}, err
	}
	if !history.Agreed {
		hold.GiveBack(ctx, hold.All()...)
		return Result{}, fmt.Errorf("%s: %w: it was never agreed to; the messages that it had taken can be seen again", id,
			errors.Join(ErrNothingLeft, j.End()))
	}
	r := newRun(a, j, history, hold)
	err = r.perform(ctx)
	return r.result(), err
}

func (a *Account) resumable(h *journal.History) error {
	if h.Ended {
		return fmt.Errorf("%s: %w: it came to its end", h.Run.ID, ErrNothingLeft)
	}
	return a.ours(h)
}

// ours reports why a run cannot be gone on with or undone: it was on another account, or was undone.
func (a *Account) ours(h *journal.History) error {
	if h.Run.Account != a.Name {
		return fmt.Errorf("%s: %w: %s, and this is %s", h.Run.ID, ErrOtherAccount, h.Run.Account, a.Name)
	}
	if a.undone(h) {
		return fmt.Errorf("%s: %w: it was undone by %s", h.Run.ID, ErrNothingLeft, h.UndoneBy)
	}
	return nil
}

// undone reports whether a run was undone. One that was only going to be is as it was.
func (a *Account) undone(h *journal.History) bool {
	if h.UndoneBy == "" {
		return false
	}
	by, err := a.Runs.Read(h.UndoneBy)
	if err != nil {
		return true // for all that we know
	}
	defer by.Close()
	return by.Agreed
}

// adopt takes over the messages that a run has not done with.
func adopt(hold *lease.Hold, h *journal.History) error {
	for n, p := range h.Steps {
		if p.State == journal.Done || p.State == journal.Skipped {
			continue
		}
		s, err := h.Step(n)
		if err != nil {
			return err
		}
		if s.From == "" {
			continue
		}
		if _, err := hold.Adopt(n, s.From, s.ID, p.PopReceipt, s.Before); err != nil {
			return err
		}
	}
	return nil
}

// PlanUndo prepares to put the messages of a run back as they were, as far as they still are where it put
// them. A run that was interrupted is undone as far as it came.
func (a *Account) PlanUndo(ctx context.Context, id string) (*Plan, error) {
	of, err := a.Runs.Reopen(id) // nobody goes on with it meanwhile
	if err != nil {
		return nil, err
	}
	p, err := a.planUndo(ctx, id)
	if err != nil {
		_ = of.Close()
		return nil, err
	}
	p.of = of
	return p, nil
}

func (a *Account) planUndo(ctx context.Context, id string) (*Plan, error) {
	history, err := a.Runs.Read(id)
	if err != nil {
		return nil, err
	}
	defer history.Close()
	if err := a.ours(history); err != nil {
		return nil, err
	}
	if _, err := a.reach(ctx); err != nil {
		return nil, err
	}
	p, err := a.newPlan(journal.Run{Command: "undo", Of: id})
	if err != nil {
		return nil, err
	}
	for n := range history.Steps {
		if err := p.reverse(ctx, history, n); err != nil {
			p.Discard(ctx)
			return nil, err
		}
	}
	if p.Total == 0 {
		p.Discard(ctx)
		return nil, fmt.Errorf("%s: %w: it has changed nothing that could be rescheduled", id, ErrNothingLeft)
	}
	return p, nil
}

// reverse plans the opposite of a step, as far as the step was done.
func (p *Plan) reverse(ctx context.Context, h *journal.History, n int) error {
	s, err := h.Step(n)
	if err != nil {
		return err
	}
	done := h.Steps[n]
	switch done.State {
	case journal.Planned, journal.Skipped:
		return nil
	case journal.Begun:
		p.refuse(s, "whether it was written to "+s.To+" is not known")
		return nil
	case journal.Leaving, journal.Written, journal.Done:
	}
	if s.To == "" && s.Before == "" {
		p.refuse(s, "no copy was kept")
		return nil
	}
	back := journal.Step{
		N: p.Total, From: s.To, ID: done.NewID, PopReceipt: done.NewPopReceipt, Before: s.Text(),
		To: s.From, After: s.Before, RequestID: s.RequestID,
	}
	if s.To == "" {
		back.Before = ""
	}
	if done.State != journal.Done && s.From != "" {
		// Only if the original is there for certain may it do without being written again.
		there, err := p.stillThere(ctx, s, done)
		if err != nil {
			return err
		}
		if there && s.To == "" {
			return nil
		}
		if there {
			back.To, back.After = "", ""
		}
	}
	return p.add(back)
}

func (p *Plan) refuse(s journal.Step, why string) {
	p.Refused++
	if len(p.Refusals) < maxRefusals {
		r := Refusal{Why: why}
		r.Message.ID, r.Message.Queue, r.Message.RequestID = s.ID, s.From, s.RequestID
		p.Refusals = append(p.Refusals, r)
	}
}

// stillThere reports whether the message that a step takes is still where it was.
func (p *Plan) stillThere(ctx context.Context, s journal.Step, done journal.Progress) (bool, error) {
	hold, err := lease.New(p.account.Store, nil)
	if err != nil {
		return false, err
	}
	defer hold.Close(ctx)
	m, err := hold.Adopt(0, s.From, s.ID, done.PopReceipt, s.Before)
	if err != nil {
		return false, err
	}
	err = hold.Ensure(ctx, m)
	if errors.Is(err, lease.ErrLost) {
		return false, nil
	}
	return err == nil, err
}
