package operation

import (
	"context"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
)

// cancelCommand is the command of a run that deletes scheduled messages.
const cancelCommand = "cancel"

// PlanCancel prepares to delete scheduled messages. With callback, the sender of a call with a callback is told,
// unless a second message of the call may exist, so that the call may still be made.
func (op *Operations) PlanCancel(ctx context.Context, s account.Source, callback bool) (*Plan, error) {
	now := time.Now()
	cancel := func(p *Plan, in decision.Intake, row record.Scheduled, second bool) (journal.Step, error) {
		step := journal.Step{Take: &journal.Take{Due: row.NextAttemptAt}}
		e := in.Envelope
		switch {
		case e == nil || e.Callback == nil:
			return step, nil
		case !callback:
			p.Untold++
			return step, nil
		case second:
			p.warn(noCallback, nameOf(row))
			return step, nil
		}
		report := op.Account.Rules.Decision.Report(decision.Decision{
			GivenUp: true, Reason: decision.Cancelled, Status: e.LatestStatus(), State: e.State,
		}, now)
		content, err := e.CallbackWith(report, in.Limit)
		step.Then = &journal.Put{Queue: row.Partition, Text: op.Account.Rules.Encoding.Encode(content.Bytes)}
		return step, err
	}
	return op.planScheduled(ctx, journal.Run{Command: cancelCommand}, s, cancel)
}
