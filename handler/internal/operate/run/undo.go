package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"asynccaller/handler/internal/operate/run/journal"
)

// Errors of runs.
var (
	// ErrNothingLeft means that there is nothing to resume or to undo.
	ErrNothingLeft = errors.New("nothing is left to be done")
	// ErrOtherAccount means that the run belongs to another account.
	ErrOtherAccount = errors.New("the run was on another account")
)

// Resume carries out the rest of an interrupted run. It releases the messages of a run that was never confirmed.
func (e *Engine) Resume(ctx context.Context, id string) (result Result, err error) {
	j, err := e.Runs.Reopen(id)
	if err != nil {
		return Result{}, err
	}
	var undoes *journal.Journal
	defer func() { err = errors.Join(err, closeBoth(j, undoes)) }()
	err = e.Check(j)
	switch {
	case j.Ended:
		return Result{}, fmt.Errorf("%s: %w: it is finished", id, ErrNothingLeft)
	case err != nil:
		return Result{}, err
	case !j.Agreed:
		e.newRun(j).release(ctx)
		return Result{}, fmt.Errorf("%s: %w: it was never confirmed", id, errors.Join(ErrNothingLeft, j.End()))
	}
	if j.Run.Of != "" { // nobody may resume the run that is undone
		undoes, err = e.Runs.Reopen(j.Run.Of)
		if err == nil {
			err = e.mark(undoes, id)
		}
		if err != nil {
			return Result{}, err
		}
	}
	return e.execute(ctx, j)
}

// Check returns why a run can be neither resumed nor undone.
func (e *Engine) Check(j *journal.Journal) error {
	id := j.Run.ID
	if j.Run.Account != e.Account {
		return fmt.Errorf("%s: %w: %s, and this is %s", id, ErrOtherAccount, j.Run.Account, e.Account)
	}
	return e.checkUndoneBy(id, j.UndoneBy)
}

// checkUndoneBy returns an error if an undo of a run is not complete, or has restored something.
func (e *Engine) checkUndoneBy(id, undo string) error {
	if undo == "" {
		return nil
	}
	j, err := e.Runs.Read(undo)
	switch {
	case errors.Is(err, journal.ErrNoRun):
		return fmt.Errorf("%s: its undo %.80q has no journal here, so it is not known what is left: "+
			"copy that journal to %s: %w", id, undo, e.Runs, err)
	case err != nil:
		return err
	}
	defer func() { _ = j.Close() }() // nothing was written
	r := resultOf(j)
	switch {
	case !j.Agreed, j.Ended && r.Done+r.Unknown == 0:
		return nil
	case j.Ended:
		return fmt.Errorf("%s: %w: it was undone by %s", id, ErrNothingLeft, undo)
	}
	return fmt.Errorf("%s: %w: its undo %s is not complete; resume that", id, ErrNothingLeft, undo)
}

// mark records in the journal of a run that an undo of it goes on, unless it is recorded already.
func (e *Engine) mark(j *journal.Journal, undo string) error {
	if j.UndoneBy == undo {
		return nil
	}
	if err := e.checkUndoneBy(j.Run.ID, j.UndoneBy); err != nil {
		return err
	}
	return j.Undone(undo)
}

// HasUndoneNothing reports whether the undo of that name has a journal here that says that it was not confirmed or has
// restored nothing.
func (e *Engine) HasUndoneNothing(undo string) bool {
	return undo != "" && e.checkUndoneBy("", undo) == nil
}

// Refused is a step that an undo leaves alone.
type Refused struct {
	Step journal.Step
	Why  string
}

// Undo plans the opposite of a finished run: of each step that is done, unless its message is perhaps in two
// places. What became of the messages since shows when the plan is executed. IsRead reports whether a function
// reads a queue, and see is called with each step of the undo. Callbacks is the number of messages for which the run
// has sent a callback.
func (e *Engine) Undo(ctx context.Context, id string, isRead func(queue string) bool, see func(journal.Step)) (
	p *Plan, refused []Refused, callbacks int, err error,
) {
	undone, err := e.Runs.Reopen(id)
	if err != nil {
		return nil, nil, 0, err
	}
	if err := e.checkUndo(undone); err != nil {
		return nil, nil, 0, errors.Join(err, undone.Close())
	}
	p, err = e.Begin(journal.Run{Command: "undo", Of: id})
	if err != nil {
		return nil, nil, 0, errors.Join(err, undone.Close())
	}
	p.undoes = undone
	for n, progress := range undone.Steps() {
		if progress.State != journal.Done && !progress.Unknown {
			continue
		}
		s, err := undone.Step(n)
		if err != nil {
			p.Discard(ctx)
			return nil, nil, 0, err
		}
		back, why := opposite(s, progress, isRead)
		if why != "" {
			refused = append(refused, Refused{s, why})
			continue
		}
		if s.Then != nil {
			callbacks++
		}
		if err := p.Add(back); err != nil {
			p.Discard(ctx)
			return nil, nil, 0, err
		}
		see(back)
	}
	if p.Total == 0 {
		why := "it has changed nothing"
		if len(refused) > 0 {
			why = refused[0].Why
		}
		p.Discard(ctx)
		return nil, nil, 0, fmt.Errorf("%s: %w: %s", id, ErrNothingLeft, why)
	}
	return p, refused, callbacks, nil
}

// checkUndo returns why a run cannot be undone.
func (e *Engine) checkUndo(j *journal.Journal) error {
	id := j.Run.ID
	if !j.Agreed {
		return fmt.Errorf("%s: %w: it was never confirmed", id, ErrNothingLeft)
	}
	if err := e.Check(j); err != nil {
		return err
	}
	if slices.ContainsFunc(j.Steps(), journal.Progress.InBetween) {
		return fmt.Errorf("%s: it was interrupted within a step: resume it first, then undo it", id)
	}
	return nil
}

// opposite returns the step that restores what a step has changed, or why there is none.
func opposite(s journal.Step, p journal.Progress, isRead func(string) bool) (back journal.Step, why string) {
	switch {
	case s.Set != nil && !s.IsEdit():
		return back, "its messages are due or delivered, and cannot be scheduled again"
	case p.Unknown:
		return back, p.Why
	case p.PossibleDuplicate:
		return back, "it may be in two places: remove one by its id"
	case s.Take != nil && s.Take.NoText:
		return back, "no copy was kept"
	}
	back.RequestID, back.Row = s.RequestID, s.Row
	if s.IsEdit() {
		back.Take = &journal.Take{
			Queue: s.Take.Queue, ID: p.NewID, Receipt: p.NewReceipt, ByReceipt: true, Text: s.Set.Text, Due: s.Set.Due,
		}
		back.Set = &journal.Set{Text: s.Take.Text, Due: s.Take.Due}
		return back, ""
	}
	if s.Put != nil {
		back.Take = &journal.Take{
			Queue: s.Put.Queue, ID: p.NewID, Receipt: p.NewReceipt, ByReceipt: isRead(s.Put.Queue), Text: s.Text(),
			Due: s.Put.Due,
		}
	}
	if s.Take != nil {
		back.Put = &journal.Put{Queue: s.Take.Queue, Text: s.Take.Text, Due: s.Take.Due}
	}
	return back, ""
}
