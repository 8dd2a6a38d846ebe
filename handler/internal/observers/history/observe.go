package history

import (
	"cmp"
	"context"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

// Deliveries keeps how calls end, as an observer, and as a gate lets no call pass that was delivered before. Keep says
// what is kept, unless the profile of a target does.
type Deliveries struct {
	*History
	Keep targets.History
	Now  func() time.Time
}

// keeps returns what is kept of the calls to a target.
func (d Deliveries) keeps(p targets.Profile) targets.History { return cmp.Or(p.History, d.Keep) }

// Enter implements [delivery.Gate].
func (d Deliveries) Enter(ctx context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	if due.First || d.keeps(due.Intake.Profile) != targets.HistoryCheck {
		return nil, nil
	}
	at, wasDelivered := d.WasDelivered(ctx, due.Intake.Envelope, d.Now())
	if !wasDelivered {
		return nil, nil
	}
	return nil, &decision.Verdict{Delivered: at}
}

// Observe implements [delivery.Observer]. A call that must not be repeated has its row before the host deletes the
// message; its callback is on the queue by then, or the duplicate would not send it. If the host has ended, the next
// one delivers the message again.
func (d Deliveries) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	e, action, reason := r.Intake.Envelope, r.Action, r.Reason
	if action == decision.Release && r.Judged == decision.Delivered && e.Callback == nil {
		action, reason = decision.Finish, decision.Delivered
	}
	isEnd := action.Ends() && action != decision.Fault && reason != decision.Duplicate
	if e == nil || !isEnd || d.keeps(r.Intake.Profile) == targets.HistoryOff {
		return nil
	}
	entry := d.NewEntry(e, r.World.Now)
	entry.MovedTo = r.Intake.MovedTo()
	entry.Action, entry.Reason, entry.Status = string(action), string(reason), envelope.StatusCode(r.Status)
	entry.Attempts, entry.Trail = r.State.Attempts, TrailOf(r.State.Trail)
	entry.Queue, entry.MessageID = r.Message.Queue, r.Message.ID
	mustNotRepeat := reason == decision.Delivered && d.keeps(r.Intake.Profile) == targets.HistoryCheck
	return func(ctx context.Context, result *delivery.Result) {
		switch {
		case result.Err != nil && result.Action != decision.Release:
		case mustNotRepeat:
			d.Acknowledge(ctx, entry, d.Now())
		default:
			d.Record(entry) //nolint:contextcheck // Close ends the recorder
		}
	}
}
