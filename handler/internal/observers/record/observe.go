package record

import (
	"cmp"
	"context"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// maxMethod and maxTenant are the lengths to which texts that the sender can choose freely are cut in rows, and
// maxRowText is longer than all others that a handler writes.
const (
	maxMethod  = 32
	maxTenant  = 128
	maxRowText = 300
	// MaxAnswer is the length of the longest answer in a row, in bytes.
	MaxAnswer = 256
)

// ScheduledObserver keeps the record of scheduled messages.
type ScheduledObserver struct {
	*background.Writer
	// Why returns why calls to a host fail, and the beginning of the latest answer, as far as that is known.
	Why func(host string) (cause, answer string)
}

// Observe implements [delivery.Observer].
func (s ScheduledObserver) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	if wasRecorded(r.Intake.Received, r.Lease) {
		s.Remove(storage.Key{Partition: r.Message.Queue, ID: r.Lease.ID})
	}
	if r.Action != decision.Reschedule || r.Delay < decision.MinRecordedDelay || r.Write.InPlace {
		return nil
	}
	row := s.row(r)
	return func(_ context.Context, result *delivery.Result) {
		if result.Err == nil {
			row.ID, row.PopReceipt, row.Repeated = result.ID, result.PopReceipt, result.Repeated
			s.Put(row)
		}
	}
}

// wasRecorded reports whether the record of scheduled messages may have the message, whose successor was written when
// it was rescheduled. The clocks of storage and of the handler differ.
func wasRecorded(e *envelope.Envelope, lease settle.Lease) bool {
	if e == nil || lease.ID == "" {
		return false
	}
	return e.NextAttemptAt.Sub(lease.InsertedAt) >= decision.MinRecordedDelay-storage.ClockDifference
}

// row describes a message that is rescheduled.
func (s ScheduledObserver) row(r *delivery.Report) Row {
	target := r.Intake.Envelope.Call.Target
	row := Row{
		Key: storage.Key{Partition: r.Write.Queue}, RequestID: r.Intake.Envelope.RequestID,
		Method:     text.Clip(r.Intake.Envelope.Call.Method, maxMethod),
		TargetHost: targets.Host(target), PathPattern: fold.Path(rows.Text(target.EscapedPath())),
		Reason: string(r.Reason), Status: r.Status, Attempts: r.State.Attempts,
		CreatedAt: r.State.CreatedAt, NextAttemptAt: r.State.NextAttemptAt, Deadline: r.State.Expires,
		Organization: text.Clip(r.Tenant.Organization, maxTenant),
		Environment:  text.Clip(r.Tenant.Environment, maxTenant),
		Answer:       text.Line(mask.AnswerLine(r.State.Latest.Excerpt()), MaxAnswer), Content: r.Write.Content,
	}
	switch {
	case r.Verdict != nil && r.Verdict.Outcome != nil:
		row.Cause = r.Verdict.Outcome.Cause()
	case r.Reason == decision.Auth, r.Reason == decision.Busy:
		row.Cause = r.Detail
	case r.Reason == decision.TargetDown: // the message has the cause of its target
		cause, answer := s.Why(targets.Host(target))
		row.Cause, row.Answer = cause, cmp.Or(row.Answer, answer)
	}
	return row
}

// OutcomeObserver keeps what becomes of the messages of runs.
type OutcomeObserver struct{ *background.Writer }

// Observe implements [delivery.Observer].
func (o OutcomeObserver) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	e := cmp.Or(r.Intake.Envelope, r.Intake.Received)
	if e == nil || e.Run == "" || r.Action == decision.Release {
		return nil
	}
	outcome := Outcome{
		Run: e.Run, RequestID: cmp.Or(e.RequestID, r.Message.ID), Attempt: cmp.Or(r.Attempt, e.Attempts+1),
		Called: r.Attempt > 0 && r.Reason != decision.Interrupted,
		Action: string(r.Action), Reason: string(cmp.Or(r.Judged, r.Reason)), Status: r.Status,
		TargetHost: targets.Host(e.Call.Target), At: r.World.Now,
	}
	if !outcome.Called {
		outcome.Cause = text.Clip(r.Detail, maxRowText)
	}
	return func(_ context.Context, result *delivery.Result) {
		if result.Err == nil {
			o.Put(outcome.Keyed())
		}
	}
}
