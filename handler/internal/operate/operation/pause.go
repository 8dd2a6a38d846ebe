package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/pause"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/targets"
)

// PauseResult says what a pause of a target means.
type PauseResult struct {
	pause.Pause

	Account string `json:"account"`
	// Scheduled is how many messages for the target the record has, and Expiring how many of them expire before Until,
	// FirstExpiry the earliest. Both are nil if the record cannot be read, for which CountProblem is the reason. A
	// message on its queue that is not scheduled is not among them.
	Scheduled    *int      `json:"scheduled,omitempty"`
	Expiring     *int      `json:"expiring,omitempty"`
	FirstExpiry  time.Time `json:"firstExpiry"`
	CountProblem string    `json:"countProblem,omitempty"`
	// CountedUntil is Until or, without an end, a day from now.
	CountedUntil time.Time `json:"countedUntil"`
}

const (
	// changeTries is how often a pause is written again that another operator has changed at the same time.
	changeTries = 5
	// countTimeout limits the reading of the record, which can have any number of messages.
	countTimeout = 30 * time.Second
	// openEndedPeriod is the time for which expiring messages are counted if a pause has no end.
	openEndedPeriod = 24 * time.Hour
)

// PauseTarget pauses a target: Host, Since, Until, By and Reason are those of the result, except that an earlier pause
// that is still in force goes on. An error means that it is not known to be paused.
func (op *Operations) PauseTarget(ctx context.Context, p pause.Pause) (PauseResult, error) {
	now := p.Since
	if op.Account.AppTable == nil {
		return PauseResult{}, account.ErrNoPauses
	}
	var written pause.Pause
	err := pause.ErrChanged
	for range changeTries {
		if !errors.Is(err, pause.ErrChanged) {
			break
		}
		err = changePause(ctx, func(ctx context.Context) (err error) {
			written, err = pause.Write(ctx, op.Account.AppTable, p)
			return err
		})
	}
	if err != nil {
		return PauseResult{}, fmt.Errorf("pause %s: %w", p.Host, err)
	}
	if err := op.checkRead(ctx, written, now); err != nil {
		return PauseResult{}, err
	}
	result := PauseResult{Pause: written, Account: op.Account.Name, CountedUntil: p.Until}
	if p.Until.IsZero() {
		result.CountedUntil = now.Add(openEndedPeriod)
	}
	if err := op.countPaused(ctx, &result, now); err != nil {
		result.CountProblem = account.RecordProblem(err)
	}
	return result, nil
}

// changePause makes a change until storage acknowledges it, or another operator has made one at the same time.
func changePause(ctx context.Context, change func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	return storage.Persist(ctx, account.ReachTimeout/3, change, storage.ErrRefused, pause.ErrChanged)
}

// checkRead returns an error if the table has more pauses than an app reads, and a pause is not among them. It removes
// the rows of pauses that have ended. They have no effect, so a failure does not matter.
func (op *Operations) checkRead(ctx context.Context, p pause.Pause, now time.Time) error {
	pauses, err := op.Account.Pauses(ctx)
	if err != nil {
		op.observer().Note(fmt.Sprintf("the pause was not read back: %v", err))
		return nil
	}
	if err := pause.RemoveEnded(ctx, op.Account.AppTable, pauses, now); err != nil {
		op.observer().Note(fmt.Sprintf("rows of pauses that have ended were not removed: %v", err))
	}
	if _, isRead := pause.InForce(pauses, now)[p.Host]; !isRead {
		return fmt.Errorf("pause %s: the table has more pauses than an app reads, and this one is not among them: "+
			"end others (`async-caller targets list`), and pause the target again", p.Host)
	}
	return nil
}

// scheduledFor selects the scheduled messages for a host in the form of [targets.ParseHost].
func scheduledFor(host string) (s account.Source) {
	s.Filter.Hosts = []string{host}
	return s
}

// countPaused counts the scheduled messages for a target that is paused.
func (op *Operations) countPaused(ctx context.Context, r *PauseResult, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	isStale := op.Account.StaleCheck(ctx, now)
	scheduled, expiring := 0, 0
	_, err := op.Account.ListScheduled(ctx, scheduledFor(r.Host), false, func(m message.Scheduled) error {
		row := m.Row
		if isStale(row) {
			return nil
		}
		scheduled++
		if row.Deadline.IsZero() || !row.Deadline.Before(r.CountedUntil) {
			return nil
		}
		expiring++
		if r.FirstExpiry.IsZero() || row.Deadline.Before(r.FirstExpiry) {
			r.FirstExpiry = row.Deadline.UTC()
		}
		return nil
	})
	if err == nil {
		r.Scheduled, r.Expiring = &scheduled, &expiring
	}
	return err
}

// PlanResume prepares to make the scheduled messages due that were paused with a host in the form of
// [targets.ParseHost]. It leaves out those that another pause still stops, with a warning.
func (op *Operations) PlanResume(ctx context.Context, host string, pace journal.Pace) (*Plan, error) {
	pauses, err := op.Account.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	paused := pause.InForce(pauses, now)
	s := scheduledFor(host)
	s.Filter.Reasons = []string{string(decision.Paused)}
	onlyResumed := func(_ *Plan, in *decision.Intake, _ *record.Scheduled) error {
		if in.Envelope == nil { // it is refused
			return nil
		}
		target := in.Envelope.Call.Target // a row does not say whether its URL is http or https
		_, isPaused := paused.Of(target, now)
		if isPaused || !slices.Contains(targets.Keys(target), host) {
			return errLeftOut
		}
		return nil
	}
	return op.planExpedite(ctx, s, paced("expedite", pace), paused, onlyResumed)
}

// ErrNotPaused means that a target is not paused.
var ErrNotPaused = errors.New("is not paused")

// ResumeTarget ends the pause of a target, which is in the form of [targets.ParseHost], and returns it. The error is an
// [ErrNotPaused] if there is none. Until [pause.Notice] later, an instance of the app may still reschedule the
// target's messages.
func (op *Operations) ResumeTarget(ctx context.Context, host string) (p pause.Pause, err error) {
	if op.Account.AppTable == nil {
		return p, account.ErrNoPauses
	}
	wasThere := false // a try that got no answer may have removed it
	err = changePause(ctx, func(ctx context.Context) error {
		removed, found, err := pause.Remove(ctx, op.Account.AppTable, host)
		if found {
			p, wasThere = removed, true
		}
		return err
	})
	switch {
	case err != nil:
		return p, fmt.Errorf("resume %s: %w", host, err)
	case !wasThere:
		return p, fmt.Errorf("%s %w", host, ErrNotPaused)
	}
	return p, nil
}
