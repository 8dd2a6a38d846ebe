package poison

import (
	"context"
	"reflect"
	"slices"
	"time"

	"asynccaller/handler/internal/scheduled"
)

// Name identifies a message.
type Name struct {
	Queue     string `json:"queue"`
	ID        string `json:"id"`
	RequestID string `json:"requestId,omitempty"`
}

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
	repeatedWrite = "storage did not answer when the message was written, so that there may be a second message of the call, " +
		"which the record does not have"
	noCallback = "no callback is sent, because there may be a second message of the call"
)

// warn adds a message to the warning for a reason.
func (p *Plan) warn(why string, m Name) {
	n := slices.IndexFunc(p.Warnings, func(w Warning) bool { return w.Why == why })
	if n < 0 {
		n = len(p.Warnings)
		p.Warnings = append(p.Warnings, Warning{Why: why})
	}
	w := &p.Warnings[n]
	w.Count++
	if len(w.Messages) < maxRefusals {
		w.Messages = append(w.Messages, m)
	}
}

// nameOf returns the name of the message of a row, whose texts are printable.
func nameOf(row scheduled.Row) Name {
	m := fromRow(row)
	return Name{Queue: m.Queue, ID: m.ID, RequestID: m.RequestID}
}

// findSecond warns of the messages that are not selected although they have the request id of one that is, and
// returns these request ids.
func (p *Plan) findSecond(ctx context.Context, s ScheduledSource) (found map[string]bool, err error) {
	if reflect.ValueOf(s).IsZero() { // all are selected
		return nil, nil
	}
	type key struct{ queue, id string }
	selected, ids := map[key]bool{}, map[string]bool{}
	_, err = p.account.ListScheduled(ctx, s, false, func(m Scheduled) error {
		selected[key{m.Row.Queue, m.Row.ID}] = true
		ids[m.Row.RequestID] = true
		return nil
	})
	if err != nil || len(selected) == 0 {
		return nil, err
	}
	found, stale := map[string]bool{}, p.account.StaleCheck(ctx, time.Now())
	_, err = p.account.ListScheduled(ctx, ScheduledSource{}, false, func(m Scheduled) error {
		id := m.Row.RequestID
		if id != "" && ids[id] && !selected[key{m.Row.Queue, m.Row.ID}] && !stale(m.Row) {
			found[id] = true
			p.warn(secondMessage, nameOf(m.Row))
		}
		return nil
	})
	return found, err
}
