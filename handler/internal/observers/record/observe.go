package record

import (
	"cmp"
	"context"
	"net/url"
	"slices"

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

// ScheduledObserver keeps the record of scheduled messages.
type ScheduledObserver struct {
	*background.Writer
	Targets *Targets
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
func (s ScheduledObserver) row(r *delivery.Report) Scheduled {
	target := r.Intake.Envelope.Call.Target
	row := Scheduled{
		Key: storage.Key{Partition: r.Write.Queue}, RequestID: r.Intake.Envelope.RequestID,
		Method:     text.Clip(r.Intake.Envelope.Call.Method, maxMethod),
		TargetHost: targets.Host(target), PathPattern: fold.Path(rows.Text(target.EscapedPath())),
		Reason: string(r.Reason), Status: r.Status, Attempts: r.State.Attempts,
		CreatedAt: r.State.CreatedAt, NextAttemptAt: r.State.NextAttemptAt, Deadline: r.State.Expires,
		Organization: text.Clip(r.Tenant.Organization, maxTenant),
		Environment:  text.Clip(r.Tenant.Environment, maxTenant),
		Answer:       mask.AnswerText(r.State.Latest), Content: r.Write.Content,
	}
	switch {
	case r.Verdict != nil && r.Verdict.Outcome != nil:
		row.Cause = r.Verdict.Outcome.Cause()
	case r.Reason == decision.Auth, r.Reason == decision.Busy:
		row.Cause = r.Detail
	case r.Reason == decision.TargetDown: // the message has the cause of its target
		latest := s.Targets.Latest(targets.Host(target))
		row.Cause, row.Answer = latest.Cause, cmp.Or(row.Answer, latest.Answer)
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
		Action: string(r.Action), Reason: string(r.Reason), Status: r.Status, TargetHost: targets.Host(e.Call.Target),
		At: r.World.Now,
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

// IsOfTarget reports whether a failure, or an answer, is due to the target and the way to it.
func IsOfTarget(f decision.Failure) bool {
	notOfTarget := []decision.Failure{
		decision.FailureInterrupted, decision.FailureBadURL, decision.FailureTargetRefused,
	}
	return !slices.Contains(notOfTarget, f)
}

// TargetObserver keeps the targets that fail, also if the message cannot be settled. One for which there is no token
// fails too. IsOpen reports whether the circuit breaker of a target is open.
type TargetObserver struct {
	*Targets
	IsOpen func(target *url.URL) bool
}

// Observe implements [delivery.Observer].
func (t TargetObserver) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	if r.Verdict == nil {
		return nil
	}
	o := r.Verdict.Outcome
	if refusal := r.Verdict.Refusal; refusal != nil && refusal.Reason == decision.Auth {
		o = &decision.Outcome{Failure: decision.FailureAuth, Detail: refusal.Detail}
	}
	if o == nil {
		return nil
	}
	if !IsOfTarget(o.Failure) {
		return nil
	}
	target := r.Intake.Envelope.Call.Target
	host := targets.Host(target)
	if r.Outcome == decision.Delivered {
		t.Succeeded(host, r.World.Now)
		return nil
	}
	failed := Target{
		Host: host, Reason: string(cmp.Or(r.Outcome, decision.Reason(o.Failure))), Cause: o.Cause(),
		Status: envelope.StatusCode(o.Status),
		Since:  r.World.Arrived, Latest: r.World.Arrived, Answer: mask.AnswerText(o.Answer()),
	}
	if t.IsOpen(target) {
		failed.OpenAt = r.World.Now
	}
	t.Failed(failed)
	return nil
}
