package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// PlanRetryScheduled prepares to make scheduled messages due at once. The plan warns of targets that are paused: their
// calls are not made then.
func (op *Operations) PlanRetryScheduled(ctx context.Context, s account.Source, pace journal.Pace) (*Plan, error) {
	return op.planRetryScheduled(ctx, s, paced("expedite", pace), op.settingsInForce(ctx), asItIs)
}

// settingsInForce returns the settings of targets in force, as far as they can be read: a plan only warns of pauses.
func (op *Operations) settingsInForce(ctx context.Context) setting.InForce {
	settings, err := op.Account.Settings(ctx)
	if err != nil && !errors.Is(err, account.ErrNoSettings) {
		op.observer().Note("warning: " + err.Error())
	}
	return setting.Select(settings, time.Now())
}

// preparation changes the envelope and the row of a message before it is made due. Its error is the reason to refuse
// the message, or errLeftOut.
type preparation func(p *Plan, in *decision.Intake, row *record.Row) error

func asItIs(*Plan, *decision.Intake, *record.Row) error { return nil }

// planRetryScheduled plans the run with the settings in force.
func (op *Operations) planRetryScheduled(
	ctx context.Context, s account.Source, run journal.Run, settings setting.InForce, prepare preparation,
) (*Plan, error) {
	if err := op.checkOutcomes(ctx, run.Pace); err != nil {
		return nil, err
	}
	now := time.Now()
	retry := func(p *Plan, in decision.Intake, row record.Row) (journal.Step, error) {
		if err := prepare(p, &in, &row); err != nil {
			return journal.Step{}, err
		}
		if in.Envelope != nil {
			target := in.Call().Target
			if pause, isPaused := settings.Of(target, now)[setting.Pause]; isPaused {
				p.warn("no call is made while "+pause.Host+" is paused, "+pause.Text(), nameOf(row))
			}
		}
		text, err := op.madeDue(in, row.Deadline, now, run.Token)
		return journal.Step{Set: &journal.Set{Text: text}}, err
	}
	return op.planScheduled(ctx, run, s, retry)
}

// dueSince is how long a message that was made due has been due, so that it is due whatever the handler's clock says.
const dueSince = time.Hour

// madeDue returns the text of a message of a run that may be called now, instead of when it is due. The deadline is
// the one in its row, which the handler has calculated: the settings of this environment may differ from the app's.
func (op *Operations) madeDue(in decision.Intake, deadline, now time.Time, token string) (text string, err error) {
	if in.Envelope == nil {
		return "", fmt.Errorf("the message is malformed: %w", in.Malformed)
	}
	e := *in.Envelope
	due := now.Add(-dueSince)
	tooLate := e.NotBefore.After(now)
	mustState := tooLate || e.Format() == envelope.FormatNexus // otherwise the handler calculates it again
	if e.Deadline.IsZero() && mustState {
		if deadline.IsZero() {
			return "", errors.New("neither the message nor its row states the deadline, which the handler calculates")
		}
		e.Deadline = deadline.Truncate(time.Second) // no longer than other times
	}
	e.NextAttemptAt, e.Expires, e.Run = due, e.Deadline, token
	content, err := e.Successor(in.Limit)
	if err == nil && token != "" {
		written, parseErr := envelope.Parse(content.Bytes)
		if parseErr != nil || written.Run != token {
			err = edit.ErrNoRoomForRun
		}
	}
	if err == nil && tooLate { // not removed: the handler limits the deadline from here
		content.Bytes, err = envelope.Set(content.Bytes, []string{"notBefore"}, due.UTC().Format(time.RFC3339))
	}
	return op.Account.Rules.Encoding.Encode(content.Bytes), err
}
