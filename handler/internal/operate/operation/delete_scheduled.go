package operation

import (
	"context"
	"reflect"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
)

// cancelCommand is the command of a run that deletes scheduled messages.
const cancelCommand = "cancel"

// PlanDeleteScheduled prepares to delete scheduled messages. With callback, the sender of a call with a callback is
// told, unless a second message of the call may exist, so that the call may still be made.
func (op *Operations) PlanDeleteScheduled(ctx context.Context, s account.Source, callback bool) (*Plan, error) {
	now := time.Now()
	var seconds map[message.RequestKey]bool
	if callback {
		_, err := op.Account.Reach(ctx)
		if err == nil {
			seconds, err = op.findSeconds(ctx, s)
		}
		if err != nil {
			return nil, err
		}
	}
	cancel := func(p *Plan, in decision.Intake, row record.Row) (journal.Step, error) {
		step := journal.Step{Take: &journal.Take{Due: row.NextAttemptAt}}
		e := in.Envelope
		switch {
		case e == nil || e.Callback == nil:
			return step, nil
		case !callback:
			p.Untold++
			return step, nil
		case row.Repeated, seconds[callOf(row)]:
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

// callOf returns the key of the call of a row.
func callOf(row record.Row) message.RequestKey {
	return message.RequestKey{Organization: row.Organization, Environment: row.Environment, RequestID: row.RequestID}
}

// findSeconds returns the calls of which the record has a message that is not selected, besides one that is.
func (op *Operations) findSeconds(ctx context.Context, s account.Source) (map[message.RequestKey]bool, error) {
	found := map[message.RequestKey]bool{}
	if reflect.ValueOf(s).IsZero() { // all are selected
		return found, nil
	}
	selected, calls := map[storage.Key]bool{}, map[message.RequestKey]bool{}
	keyOf := func(row record.Row) storage.Key { return storage.Key{Partition: row.Partition, ID: row.ID} }
	_, err := op.Account.ListScheduled(ctx, s, false, func(m message.Recorded) error {
		selected[keyOf(m.Row)] = true
		calls[callOf(m.Row)] = true
		return nil
	})
	if err != nil || len(selected) == 0 {
		return found, err
	}
	presence := op.Account.PresenceCheck(ctx, time.Now())
	_, err = op.Account.ListScheduled(ctx, account.Source{}, false, func(m message.Recorded) error {
		call := callOf(m.Row)
		isSecond := call.RequestID != "" && calls[call] && !selected[keyOf(m.Row)]
		if isSecond && presence(m.Row) != record.Gone {
			found[call] = true
		}
		return nil
	})
	return found, err
}
