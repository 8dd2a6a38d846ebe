package operation

import (
	"context"
	"reflect"
	"slices"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/record"
)

// Name identifies a message.
type Name = run.Name

// Warning is what a person should know before a plan is confirmed. It concerns Count messages; Messages are the
// first of them.
type Warning struct {
	Why      string `json:"why"`
	Count    int    `json:"count"`
	Messages []Name `json:"messages"`
}

// The reasons for warnings. The reason for another one depends on targets.
const (
	secondMessage = "not selected, but it has the request id of a selected message: " +
		"perhaps a second message of the call, after a lost answer"
	repeatedWrite = "storage did not answer when the message was written, so that there may be a second message " +
		"of the call, which the record does not have"
	callbackSent = "a callback has told the sender that the call is cancelled; undo does not revoke it"
	noCallback   = "no callback is sent, because there may be a second message of the call"
)

// maxWarnings limits the warnings of a plan: an edit can have another result for each message.
const maxWarnings = 20

// warn adds a message to the warning for a reason.
func (p *Plan) warn(why string, m Name) { p.Warnings = addWarning(p.Warnings, why, m) }

func addWarning(warnings []Warning, why string, m Name) []Warning {
	n := slices.IndexFunc(warnings, func(w Warning) bool { return w.Why == why })
	if n < 0 {
		n = len(warnings)
		if n == maxWarnings {
			return warnings
		}
		warnings = append(warnings, Warning{Why: why})
	}
	w := &warnings[n]
	w.Count++
	if len(w.Messages) < maxRefusals {
		w.Messages = append(w.Messages, m)
	}
	return warnings
}

// nameOf returns the name of the message of a row, whose texts are printable.
func nameOf(row record.Scheduled) Name {
	m := message.FromRow(row)
	return Name{Queue: m.Queue, ID: m.ID, RequestID: m.RequestID}
}

// callOf returns the key of the call of a row.
func callOf(row record.Scheduled) message.RequestKey {
	return message.RequestKey{Organization: row.Organization, Environment: row.Environment, RequestID: row.RequestID}
}

// findSecond warns of the messages that are not selected although they have the request id of one that is, and
// returns the keys of their calls.
func (p *Plan) findSecond(ctx context.Context, s account.ScheduledSource) (
	found map[message.RequestKey]bool, err error,
) {
	if reflect.ValueOf(s).IsZero() { // all are selected
		return nil, nil
	}
	type key struct{ queue, id string }
	selected, calls := map[key]bool{}, map[message.RequestKey]bool{}
	_, err = p.operations.Account.ListScheduled(ctx, s, false, func(m message.Scheduled) error {
		selected[key{m.Row.Partition, m.Row.ID}] = true
		calls[callOf(m.Row)] = true
		return nil
	})
	if err != nil || len(selected) == 0 {
		return nil, err
	}
	found = map[message.RequestKey]bool{}
	stale := p.operations.Account.StaleCheck(ctx, time.Now())
	_, err = p.operations.Account.ListScheduled(ctx, account.ScheduledSource{}, false, func(m message.Scheduled) error {
		call := callOf(m.Row)
		isSecond := call.RequestID != "" && calls[call] && !selected[key{m.Row.Partition, m.Row.ID}]
		if isSecond && !stale(m.Row) {
			found[call] = true
			p.warn(secondMessage, nameOf(m.Row))
		}
		return nil
	})
	return found, err
}
