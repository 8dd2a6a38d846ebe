package poison

import (
	"context"
	"errors"
	"fmt"

	"asynccaller/handler/poison/journal"
	"asynccaller/handler/poison/lease"
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
func (a *Account) Resume(ctx context.Context, id string, o Observer) (Result, error) {
	j, err := a.Runs.Reopen(id)
	if err != nil {
		return Result{}, err
	}
	defer j.Close()
	history, err := a.Runs.Read(id)
	if err != nil {
		return Result{}, err
	}
	defer history.Close()
	if err := a.resumable(history); err != nil {
		return Result{}, err
	}
	hold, err := newHold(a, j)
	if err != nil {
		return Result{}, err
	}
	if err := adopt(hold, history); err != nil {
		hold.Close(ctx)
		return Result{}, err
	}
	if !history.Agreed {
		hold.Close(ctx)
		return Result{}, fmt.Errorf("%s: %w: it was never agreed to; the messages that it had taken can be seen again", id,
			errors.Join(ErrNothingLeft, j.End()))
	}
	defer hold.Close(ctx)
	r := newRun(a, j, history, hold, orSilent(o))
	r.adopted = true
	err = r.perform(ctx)
	return r.result(), err
}

func (a *Account) resumable(h *journal.History) error {
	switch {
	case h.Run.Account != a.Name:
		return fmt.Errorf("%s: %w: %s, and this is %s", h.Run.ID, ErrOtherAccount, h.Run.Account, a.Name)
	case h.UndoneBy != "":
		return fmt.Errorf("%s: %w: it was undone by %s", h.Run.ID, ErrNothingLeft, h.UndoneBy)
	case h.Ended:
		return fmt.Errorf("%s: %w: it came to its end", h.Run.ID, ErrNothingLeft)
	}
	return nil
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
	defer of.Close()
	history, err := a.Runs.Read(id)
	if err != nil {
		return nil, err
	}
	defer history.Close()
	switch {
	case history.Run.Account != a.Name:
		return nil, fmt.Errorf("%s: %w: %s, and this is %s", id, ErrOtherAccount, history.Run.Account, a.Name)
	case history.UndoneBy != "":
		return nil, fmt.Errorf("%s: %w: it was undone by %s", id, ErrNothingLeft, history.UndoneBy)
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
		return nil, fmt.Errorf("%s: %w: it has changed nothing that could be put back", id, ErrNothingLeft)
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
	switch {
	case done.State == journal.Begun:
		p.refuse(s, fmt.Sprintf("whether it was written to %s is not known; it is still on %s", s.To, s.From))
		return nil
	case done.State != journal.Done && done.State != journal.Written:
		return nil
	case s.To == "" && s.Before == "":
		p.refuse(s, "no copy was kept")
		return nil
	}
	back := journal.Step{
		From: s.To, ID: done.NewID, PopReceipt: done.NewPopReceipt, Before: s.Text(),
		To: s.From, After: s.Before, RequestID: s.RequestID,
	}
	if s.To == "" {
		back.Before = ""
	}
	if done.State == journal.Written && s.From != "" {
		// It may be in both places. Only if the original is there for certain may the other one go for nothing.
		there, err := p.stillThere(ctx, s, done)
		if err != nil {
			return err
		}
		if there {
			back.To, back.After = "", ""
		}
	}
	back.N = p.Total
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
	m, err := p.hold.Adopt(0, s.From, s.ID, done.PopReceipt, s.Before)
	if err != nil {
		return false, err
	}
	if err := p.hold.Ensure(ctx, m); err != nil {
		if errors.Is(err, lease.ErrLost) {
			return false, nil
		}
		return false, err
	}
	p.hold.GiveBack(ctx, m)
	return true, nil
}
