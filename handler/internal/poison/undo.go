package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue/lease"
)

// Resume continues an interrupted run. It takes its messages by the recorded receipts or, if these are stale, by
// searching their queues. It releases the messages of a run that was never confirmed.
func (a *Account) Resume(ctx context.Context, id string) (result Result, err error) {
	j, err := a.Runs.Reopen(id)
	if err != nil {
		return Result{}, err
	}
	p := a.planOf(j)
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	if j.Ended {
		return Result{}, fmt.Errorf("%s: %w: it is finished", id, ErrNothingLeft)
	}
	if err := a.checkRun(ctx, j); err != nil {
		return Result{}, err
	}
	if j.Run.Of != "" {
		if p.undoes, err = a.Runs.Reopen(j.Run.Of); err != nil {
			return Result{}, err
		}
	}
	for n, progress := range j.Steps() {
		if !progress.Unfinished() {
			continue
		}
		s, err := j.Step(n)
		if err == nil {
			err = p.adopt(s, progress.PopReceipt)
		}
		if err != nil {
			return Result{}, err
		}
	}
	if !j.Agreed {
		p.leases.Release(ctx, p.leases.All()...)
		return Result{}, fmt.Errorf("%s: %w: it was never confirmed; messages that it leased are visible again", id, errors.Join(ErrNothingLeft, j.End()))
	}
	return p.perform(ctx)
}

// adopt takes the message of a step over by a recorded receipt.
func (p *Plan) adopt(s journal.Step, popReceipt string) error {
	if s.From == "" || s.Row != nil {
		return nil
	}
	_, err := p.leases.Adopt(s.N, s.From, s.ID, popReceipt, s.Before)
	return err
}

// checkRun returns why a run can be neither resumed nor undone.
func (a *Account) checkRun(ctx context.Context, j *journal.Journal) error {
	if j.Run.Account != a.Name {
		return fmt.Errorf("%s: %w: %s, and this is %s", j.Run.ID, ErrOtherAccount, j.Run.Account, a.Name)
	}
	switch undo, isUndone := a.undoOf(j); {
	case isUndone && !undo.Finished():
		return fmt.Errorf("%s: %w: its undo %s is not complete; resume that", j.Run.ID, ErrNothingLeft, j.UndoneBy)
	case isUndone:
		return fmt.Errorf("%s: %w: it was undone by %s", j.Run.ID, ErrNothingLeft, j.UndoneBy)
	}
	_, err := a.reach(ctx)
	return err
}

// undoOf returns the result of the undo of a run, as far as it is known. A run is undone as soon as its undo is
// confirmed, unless that has ended and restored nothing.
func (a *Account) undoOf(j *journal.Journal) (undo Result, isUndone bool) {
	if j.UndoneBy == "" {
		return Result{}, false
	}
	by, err := a.Runs.Read(j.UndoneBy)
	if err != nil {
		return Result{}, true // it may have been confirmed
	}
	defer func() { _ = by.Close() }() // nothing was written
	undo = resultOf(by)
	return undo, by.Agreed && (!by.Ended || undo.Done > 0)
}

// PlanUndo prepares to restore the messages of a run, as far as they still are where the run has put them. The run
// may have been interrupted.
func (a *Account) PlanUndo(ctx context.Context, id string) (*Plan, error) {
	undone, err := a.Runs.Reopen(id)
	if err != nil {
		return nil, err
	}
	p, err := a.newPlan(journal.Run{Command: "undo", Of: id})
	if err != nil {
		return nil, errors.Join(err, undone.Close())
	}
	p.undoes = undone
	if err := p.reverse(ctx, undone); err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// reverse plans the opposite of a run.
func (p *Plan) reverse(ctx context.Context, j *journal.Journal) error {
	if err := cmp.Or(p.account.checkRun(ctx, j), checkScheduled(j)); err != nil {
		return err
	}
	for n, progress := range j.Steps() {
		s, err := j.Step(n)
		if err == nil {
			err = p.reverseStep(ctx, s, progress)
		}
		if err != nil {
			return err
		}
	}
	if p.Total == 0 {
		return fmt.Errorf("%s: %w: it has changed nothing that could be restored", j.Run.ID, ErrNothingLeft)
	}
	return nil
}

// reverseStep plans the opposite of a step, as far as the step was carried out.
func (p *Plan) reverseStep(ctx context.Context, s journal.Step, progress journal.Progress) error {
	if s.Row != nil && s.From != "" {
		return p.restore(s, progress)
	}
	original := inspect.Message{ID: s.ID, Queue: s.From, RequestID: s.RequestID}
	switch {
	case progress.State == journal.Planned, progress.State == journal.Skipped:
		return nil
	case progress.State == journal.Begun:
		p.refuse(original, "it is not known whether it was written to "+s.To)
		return nil
	case s.To == "" && s.Before == "":
		p.refuse(original, "no copy was kept")
		return nil
	}
	back := journal.Step{
		N: p.Total, From: s.To, ID: progress.NewID, PopReceipt: progress.NewPopReceipt, Before: s.Text(),
		To: s.From, After: s.Before, RequestID: s.RequestID,
	}
	if s.To == "" {
		back.Before = ""
	}
	if progress.State != journal.Done && s.From != "" {
		// The original is not written again if it is certainly still there.
		there, err := p.stillThere(ctx, s, progress.PopReceipt)
		switch {
		case err != nil:
			return err
		case there && s.To == "":
			return nil
		case there:
			back.To, back.After = "", ""
		}
	}
	if err := p.add(back); err != nil {
		return err
	}
	return p.adopt(back, back.PopReceipt)
}

// stillThere reports whether the message of a step is still on its old queue.
func (p *Plan) stillThere(ctx context.Context, s journal.Step, popReceipt string) (bool, error) {
	leases := lease.New(p.account.Store, nil)
	defer leases.Close(ctx)
	m, err := leases.Adopt(0, s.From, s.ID, popReceipt, s.Before)
	if err == nil {
		err = leases.Ensure(ctx, m)
	}
	if errors.Is(err, lease.ErrLost) {
		return false, nil
	}
	return err == nil, err
}

// RunSummary describes a run by its journal.
type RunSummary struct {
	Run     string    `json:"run"`
	Command string    `json:"command"`
	At      time.Time `json:"at"`
	Account string    `json:"account"`
	Total   int       `json:"total"`
	Done    int       `json:"done"`
	Skipped int       `json:"skipped,omitempty"`
	// State is "finished", "interrupted", "not confirmed", "running", "undone", "partly undone" or "unreadable".
	State string `json:"state"`
	// Of is the run that this one undid, UndoneBy the run that undid this one.
	Of       string `json:"of,omitempty"`
	UndoneBy string `json:"undoneBy,omitempty"`
	// Problem is why the journal cannot be read. Then only Run and State are known.
	Problem string `json:"problem,omitempty"`
}

// Summaries describes the runs of this machine, the newest first.
func (a *Account) Summaries() ([]RunSummary, error) {
	ids, err := a.Runs.List()
	if err != nil {
		return nil, err
	}
	summaries := make([]RunSummary, len(ids))
	for i, id := range ids {
		if summaries[i], err = a.summary(id); err != nil {
			summaries[i] = RunSummary{Run: id, State: "unreadable", Problem: err.Error()}
		}
	}
	return summaries, nil
}

func (a *Account) summary(id string) (RunSummary, error) {
	j, err := a.Runs.Read(id)
	if err != nil {
		return RunSummary{}, err
	}
	defer func() { _ = j.Close() }() // nothing was written
	result := resultOf(j)
	s := RunSummary{
		Run: id, Command: j.Run.Command, At: j.Run.At, Account: j.Run.Account, Total: result.Total,
		Done: result.Done, Skipped: result.Skipped, Of: j.Run.Of,
	}
	undo, isUndone := a.undoOf(j)
	if isUndone && (undo.Done > 0 || undo.Total == 0) {
		s.UndoneBy = j.UndoneBy
	}
	switch {
	case s.UndoneBy != "" && undo.Done < undo.Total:
		s.State = "partly undone"
	case s.UndoneBy != "":
		s.State = "undone"
	case j.Ended && j.Agreed:
		s.State = "finished"
	case !j.Ended && a.isBusy(id):
		s.State = "running"
	case j.Agreed:
		s.State = "interrupted"
	default:
		s.State = "not confirmed"
	}
	return s, nil
}

func (a *Account) isBusy(id string) bool {
	j, err := a.Runs.Reopen(id)
	if err == nil {
		_ = j.Close()
	}
	return errors.Is(err, journal.ErrBusy)
}
