package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
	"asynccaller/handler/internal/scheduled"
)

// The commands that change scheduled messages. Their steps have a row, whose receipt is the claim on the message: nothing is
// leased, so that no receipt changes before its step.
const (
	commandExpedite = "expedite"
	commandCancel   = "cancel"
)

// PlanExpedite prepares to make scheduled messages due at once, or later as the pace says. The plan warns of targets
// that are down: their calls are not made then.
func (a *Account) PlanExpedite(ctx context.Context, s ScheduledSource, pace journal.Pace) (*Plan, error) {
	now, used := time.Now(), hosts{}
	run := journal.Run{Command: commandExpedite, Pace: pace}
	p, err := a.planScheduled(ctx, run, s, func(_ *Plan, in decision.Intake, row scheduled.Row, _ bool) (journal.Step, error) {
		_, err := a.expedited(in, row.Deadline, now, 0)
		if err == nil {
			used.add(row, a.Rules.Decision.Profiles.For(in.Envelope.Call.Target))
		}
		return journal.Step{To: row.Queue}, err
	})
	if err != nil {
		return nil, err
	}
	if err := p.warnDown(ctx, used); err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// PlanCancel prepares to delete scheduled messages. With callback, the sender of a call with a callback is told,
// unless a second message of the call may exist, so that the call may still be made.
func (a *Account) PlanCancel(ctx context.Context, s ScheduledSource, callback bool) (*Plan, error) {
	now, run := time.Now(), journal.Run{Command: commandCancel}
	return a.planScheduled(ctx, run, s, func(p *Plan, in decision.Intake, row scheduled.Row, second bool) (journal.Step, error) {
		e := in.Envelope
		if !callback || e == nil || e.Callback == nil {
			return journal.Step{}, nil
		}
		if second {
			p.warn(noCallback, nameOf(row))
			return journal.Step{}, nil
		}
		report := a.Rules.Decision.Report(decision.Decision{
			GivenUp: true, Reason: decision.Cancelled, Status: e.LatestStatus(), State: e.State,
		}, now)
		content, err := e.CallbackWith(report, in.Limit)
		return journal.Step{To: row.Queue, After: a.Rules.Encoding.Encode(content.Bytes)}, err
	})
}

// planScheduled plans the change of each selected message. Second says that a second message of the call may
// exist, which the plan does not change.
func (a *Account) planScheduled(
	ctx context.Context, run journal.Run, s ScheduledSource,
	change func(p *Plan, in decision.Intake, row scheduled.Row, second bool) (journal.Step, error),
) (*Plan, error) {
	if _, err := a.reach(ctx); err != nil {
		return nil, err
	}
	p, err := a.newPlan(run)
	if err != nil {
		return nil, err
	}
	seconds, err := p.findSecond(ctx, s)
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	now := time.Now()
	_, err = a.ListScheduled(ctx, s, true, func(m Scheduled) error {
		p.match(s.IDs, m.Message)
		row := m.Row
		found := Found{Message: m.Message, Text: a.Rules.Encoding.Encode(row.Content), Content: row.Content}
		planned, err := p.step(ctx, found, row.PopReceipt, func(context.Context, Found) (journal.Step, error) {
			if !queue.ValidName(row.Queue) || !queue.ValidID(row.ID) || row.PopReceipt == "" || len(row.Content) == 0 {
				return journal.Step{}, errors.New("its row is incomplete, or has no id of a message")
			}
			if err := queue.CheckText(found.Text); err != nil {
				return journal.Step{}, err
			}
			step, err := change(p, a.Rules.Open(row.Content, row.ID, now), row, row.Repeated || seconds[callOf(row)])
			row.Content = nil
			step.Before, step.Row = found.Text, &row
			return step, err
		})
		if planned && row.Repeated {
			p.warn(repeatedWrite, nameOf(row))
		}
		return err
	})
	if err = errors.Join(err, p.checkIDs(s.IDs)); err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// dueSince is how long an expedited message has been due, so that it is due whatever the handler's clock says.
const dueSince = time.Hour

// expedited returns the text of a message that may be called after the delay, instead of when it is due. The
// deadline is the one in its row, which the handler has calculated: the settings of this environment may differ
// from the app's.
func (a *Account) expedited(in decision.Intake, deadline, now time.Time, delay time.Duration) (text string, err error) {
	if in.Envelope == nil {
		return "", fmt.Errorf("the message is malformed: %w", in.Malformed)
	}
	e, due := *in.Envelope, now.Add(-dueSince)
	if delay > 0 {
		due = now.Add(delay)
	}
	tooLate := e.NotBefore.After(due) && e.NotBefore.After(now)
	mustState := tooLate || e.Format() == envelope.FormatNexus // otherwise the handler calculates it again
	if e.Deadline.IsZero() && mustState {
		if deadline.IsZero() {
			return "", errors.New("neither the message nor its row states the deadline, which the handler has calculated")
		}
		e.Deadline = deadline.Truncate(time.Second) // no longer than other times
	}
	e.NextAttemptAt, e.Expires = due, e.Deadline
	content, err := e.Successor(in.Limit)
	if err == nil && tooLate { // not removed: the handler limits the deadline from here
		content.Bytes, err = envelope.Set(content.Bytes, []string{"notBefore"}, due.UTC().Format(time.RFC3339))
	}
	return a.Rules.Encoding.Encode(content.Bytes), err
}

// stepScheduled carries out a step that expedites or cancels a message.
func (r *run) stepScheduled(ctx context.Context, s journal.Step) error {
	defer r.record(s)
	n := s.N
	if p := r.journal.Progress(n); p.State == journal.Planned || p.State == journal.Deleting {
		why, err := r.claim(ctx, s, p.State == journal.Deleting)
		switch {
		case err != nil:
			return err
		case why != "":
			return r.journal.Skipped(n, fmt.Sprintf("%s (%s) on %s: %s", s.RequestID, s.ID, s.From, why))
		}
	}
	if s.After != "" && r.journal.Progress(n).State != journal.Written { // the callback
		if err := r.write(ctx, n, s); err != nil {
			return err
		}
	}
	return r.journal.Enter(n, journal.Done)
}

// clocksDiffer is how far this machine's clock may differ from storage's.
const clocksDiffer = time.Minute

// notKnown is why a message was skipped that this run may have changed.
const notKnown = "not known whether this run has changed it before it was delivered: a try got no answer"

// claim deletes a message, or makes it due, by its recorded receipt. If storage refuses that, claim returns why. Tried says
// that an earlier process may have done it.
func (r *run) claim(ctx context.Context, s journal.Step, tried bool) (why string, err error) {
	if err := r.journal.Enter(s.N, journal.Deleting); err != nil {
		return "", err
	}
	tries, delay := 0, r.delay(s)
	receipt, err := lease.Retry(ctx, func(ctx context.Context) (string, error) {
		tries++
		if r.Command == commandCancel {
			return "", r.account.Store.Delete(ctx, s.From, s.ID, s.PopReceipt)
		}
		text, err := r.expedite(s, time.Now(), delay)
		if err != nil {
			return "", fmt.Errorf("%w: %w", queue.ErrRefused, err)
		}
		return r.account.Store.Update(ctx, s.From, s.ID, s.PopReceipt, text, delay)
	})
	tried = tried || tries > 1
	switch {
	case err == nil && r.Command == commandExpedite:
		err = r.journal.Written(s.N, s.ID, receipt, time.Now().UTC(), 1)
		r.watch.sent(s, r.journal.Progress(s.N))
		return "", err
	case err == nil:
		return "", nil
	case errors.Is(err, queue.ErrNoQueue):
		return "its queue does not exist", nil
	case errors.Is(err, queue.ErrRefused) && !errors.Is(err, queue.ErrDenied):
		return err.Error(), nil
	case !errors.Is(err, queue.ErrStale):
		return "", err
	case tried && time.Until(s.Row.NextAttemptAt) > clocksDiffer:
		return "", nil // nobody else can have received it yet, so it was a try of this run that got no answer
	case tried:
		return notKnown, nil
	}
	return "already being delivered, or changed by another command", nil
}

// expedite returns the new text of a step that expedites a message.
func (r *run) expedite(s journal.Step, now time.Time, delay time.Duration) (string, error) {
	rules := r.account.Rules
	in := rules.Open(rules.Content(s.Before), s.ID, now)
	return r.account.expedited(in, s.Row.Deadline, now, delay)
}

// restore plans to enqueue a cancelled message again. When its callback was sent, it cannot be called back. A
// message that the cancel left alone needs no undo.
func (p *Plan) restore(s journal.Step, progress journal.Progress) error {
	if progress.State == journal.Skipped && strings.HasSuffix(progress.Why, notKnown) {
		p.refuse(inspect.Message{ID: s.ID, Queue: s.From, RequestID: s.RequestID}, progress.Why)
	}
	if progress.State != journal.Done { // the message is where it was
		return nil
	}
	return p.add(journal.Step{N: p.Total, To: s.From, After: s.Before, RequestID: s.RequestID, Row: s.Row})
}

// checkScheduled returns why a run of scheduled messages cannot be undone.
func checkScheduled(j *journal.Journal) error {
	switch j.Run.Command {
	case commandExpedite:
		return fmt.Errorf("%s: %w: its messages are due or delivered, and cannot be scheduled again", j.Run.ID, ErrNothingLeft)
	case commandCancel:
		for _, p := range j.Steps() {
			if p.Unfinished() && p.State != journal.Planned {
				return fmt.Errorf("%s: it was interrupted while it cancelled: resume it first, then undo it", j.Run.ID)
			}
		}
	}
	return nil
}

const (
	// recordLimit is the memory that the changes of the record may take while they wait, in bytes.
	recordLimit = 32 << 20
	// recordTimeout is how long it may take to write the last of them.
	recordTimeout = 30 * time.Second
)

// newRecorder returns a recorder for changes of rows whose routes are short already.
func newRecorder(table scheduled.Table) *scheduled.Recorder {
	return scheduled.NewRecorder(table, inspect.Route, recordLimit, zerolog.Nop())
}

// record changes the record as a step requires, if the step is finished. A message that stays scheduled gets a new row. The
// row of any other message is removed, unless the handler has replaced it.
func (r *run) record(s journal.Step) {
	p := r.journal.Progress(s.N)
	if s.Row == nil || p.Unfinished() {
		return
	}
	row, text := *s.Row, s.After
	if r.Command == commandExpedite {
		row.NextAttemptAt = p.WrittenAt.Add(r.delay(s))
	}
	stays := r.Command != commandCancel && p.NewPopReceipt != "" && time.Until(row.NextAttemptAt) >= scheduled.MinDelay
	if stays && r.Command == commandExpedite {
		text, _ = r.expedite(s, p.WrittenAt, r.delay(s)) // it was possible before
	}
	switch {
	case stays:
		row.ID, row.PopReceipt, row.Content = p.NewID, p.NewPopReceipt, r.account.Rules.Content(text)
		row.Repeated = row.Repeated || p.Writes > 1
		r.rows.Scheduled(row)
	case s.From != "":
		r.rows.Gone(row.Queue, scheduled.Key{ID: row.ID, Version: row.Version})
	}
}

// endRecord makes the changes of the record that are left, with those of the steps that an earlier process has finished.
// Nothing depends on the record, so an error is only a note.
func (r *run) endRecord() {
	if r.rows == nil {
		return
	}
	for n, p := range r.before {
		if s, err := r.journal.Step(n); err == nil && !p.Unfinished() {
			r.record(s)
		}
	}
	r.rows.Close(recordTimeout)
	if lost, err := r.rows.Lost(); lost > 0 {
		r.account.observer().Note(fmt.Sprintf("the record of %d messages is out of date: %v; the messages are not affected",
			lost, cmp.Or(err, errTooSlow)))
	}
}

var errTooSlow = errors.New("the table is too slow")

// checkRescheduled returns a [stopError] if a first message of a run was rescheduled. Only the record shows that.
func (w *watch) checkRescheduled(ctx context.Context, main string) error {
	if !w.scheduled || w.account.Table == nil {
		return nil
	}
	return w.account.Table.List(ctx, scheduled.Query{Queue: main}, func(row scheduled.Row) error {
		if m, sent := w.out[row.RequestID]; sent && row.Attempts > m.attempts {
			return notDelivered(row.RequestID, row.Attempts)
		}
		return nil
	})
}
