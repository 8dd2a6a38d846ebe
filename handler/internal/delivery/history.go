package delivery

import (
	"cmp"
	"context"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/history"
	"asynccaller/handler/internal/targets"
)

// keeps returns what is kept of the calls to a target.
func (d *Deliverer) keeps(p targets.Profile) targets.History {
	if d.History == nil {
		return targets.HistoryOff
	}
	return cmp.Or(p.History, d.KeepHistory)
}

// isChecked reports whether the history is asked before a call. It is not if the call cannot have been made before,
// because its id is that of its message, which the host has received for the first time.
func (d *Deliverer) isChecked(m *Message, in decision.Intake, p targets.Profile) bool {
	isFirst := m.Lease.DequeueCount == 1 && cmp.Or(in.Received.RequestID, m.Lease.ID) == m.Lease.ID
	return d.keeps(p) == targets.HistoryCheck && !isFirst
}

// ended returns what the history keeps of a call that is not made again; nil for nothing.
func (d *Deliverer) ended(e *envelope.Envelope, r *Result, now time.Time) *history.Entry {
	isEnd := e != nil && r.ends() && r.Action != decision.Fault && r.Reason != decision.Duplicate
	if d.History == nil || !isEnd || d.keeps(d.Rules.Profiles.For(e.Call.Target)) == targets.HistoryOff {
		return nil
	}
	entry := d.History.NewEntry(e, now)
	entry.Action, entry.Reason, entry.Status = string(r.Action), string(r.Reason), r.Status
	entry.Attempts, entry.Trail = r.State.Attempts, history.TrailOf(r.State.Trail)
	return &entry
}

// keep writes what the history keeps. A call that must not be repeated has its row before the host deletes the message;
// its callback is on the queue by then, or the duplicate would not send it. If the host has ended, the next one
// delivers the message again.
func (d *Deliverer) keep(ctx context.Context, m Message, r *Result) {
	if r.ended == nil {
		return
	}
	r.ended.Queue, r.ended.MessageID = m.Queue, m.ID
	mustNotRepeat := r.ended.Reason == history.Delivered &&
		d.keeps(d.Rules.Profiles.For(r.Envelope.Call.Target)) == targets.HistoryCheck
	if mustNotRepeat {
		d.History.Acknowledge(ctx, *r.ended, d.Now())
		return
	}
	d.History.Record(*r.ended) //nolint:contextcheck // Close ends the recorder
}
