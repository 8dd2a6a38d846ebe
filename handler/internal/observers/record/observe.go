package record

import (
	"cmp"
	"context"
	"strings"
	"time"

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

// Observer keeps the record of calls that wait.
type Observer struct {
	*background.Writer
	// Why returns why calls to a host fail, and the beginning of the latest answer, as far as that is known.
	Why func(host string) (cause, answer string)
}

// Observe implements [delivery.Observer]. The row of a dead letter is inserted: a run may have deleted the message, and
// replaced its row by a mark, before the row is written.
func (o Observer) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	if o.wasRecorded(r.Intake.Received, r.Lease) {
		o.Remove(storage.Key{Partition: r.Message.Queue, ID: r.Lease.ID})
	}
	switch {
	case r.Action == decision.DeadLetter:
		row := deadLetter(r)
		return func(_ context.Context, result *delivery.Result) {
			if result.Err == nil {
				row.ID, row.InsertedAt = result.ID, storage.WallTime().UTC()
				o.Insert(row)
			}
		}
	case r.Action == decision.Reschedule && r.Delay >= decision.MinRecordedDelay && !r.Write.InPlace:
		row, decided, delay := o.scheduled(r), time.Now(), r.Delay
		return func(_ context.Context, result *delivery.Result) {
			// Otherwise the write took so long that wasRecorded will say no.
			isLong := delay-time.Since(decided) >= decision.MinRecordedDelay-storage.ClockDifference
			if result.Err == nil && isLong {
				row.ID, row.PopReceipt, row.Repeated = result.ID, result.PopReceipt, result.Repeated
				o.Put(row)
			}
		}
	}
	return nil
}

// wasRecorded reports whether the record of scheduled messages may have the message, whose successor was written when
// it was rescheduled. The clocks of storage and of the handler differ.
func (o Observer) wasRecorded(e *envelope.Envelope, lease settle.Lease) bool {
	table := o.Table()
	if e == nil || lease.ID == "" || table == nil {
		return false
	}
	inserted := lease.InsertedAt.Add(-time.Until(table.Now()))
	return e.NextAttemptAt.Sub(inserted) >= decision.MinRecordedDelay-storage.ClockDifference
}

// newRow describes the message that replaces another one.
func newRow(r *delivery.Report) Row {
	row := Row{
		Key: storage.Key{Partition: r.Write.Queue}, RequestID: r.Intake.RequestID,
		Reason: string(r.Reason), Status: r.Status, Attempts: r.State.Attempts, CreatedAt: r.State.CreatedAt,
		Organization: text.Clip(r.Tenant.Organization, maxTenant),
		Environment:  text.Clip(r.Tenant.Environment, maxTenant),
		Content:      r.Write.Content,
	}
	e := cmp.Or(r.Intake.Envelope, r.Intake.Received)
	if e != nil {
		target := e.Call.Target
		row.RequestID, row.Method = cmp.Or(e.RequestID, row.RequestID), text.Clip(e.Call.Method, maxMethod)
		row.TargetHost, row.PathPattern = targets.Host(target), fold.Path(rows.Text(target.EscapedPath()))
		row.MovedTo = r.Intake.MovedTo()
	}
	return row
}

// deadLetter describes a message that is dead-lettered.
func deadLetter(r *delivery.Report) Row {
	row := newRow(r)
	row.Main = strings.TrimSuffix(r.Write.Queue, storage.PoisonSuffix) // as the dead letter says
	row.Since, row.Cause = r.World.Now, text.Line(r.Detail, maxRowText)
	row.Answer = AnswerKey(r.State.Latest.Excerpt())
	if e := cmp.Or(r.Intake.Envelope, r.Intake.Received); e != nil {
		row.Format = string(e.Format())
	}
	if n := len(r.State.Trail); n > 0 {
		row.Error = text.Clip(r.State.Trail[n-1].Error, maxRowText)
	}
	return row
}

// AnswerKey folds what an answer says. It cuts JSON as if it had spaces after colons, because earlier versions did.
func AnswerKey(x *envelope.Excerpt) string {
	line := strings.ReplaceAll(mask.AnswerLine(x), `":`, `": `)
	return strings.ReplaceAll(fold.Text(line), `": `, `":`)
}

// scheduled describes a message that is rescheduled.
func (o Observer) scheduled(r *delivery.Report) Row {
	row, host := newRow(r), targets.Host(r.Intake.Call().Target)
	row.NextAttemptAt, row.Deadline = r.State.NextAttemptAt, r.State.Expires
	row.Answer = text.Line(mask.AnswerLine(r.State.Latest.Excerpt()), MaxAnswer)
	switch {
	case r.Verdict != nil && r.Verdict.Outcome != nil:
		row.Cause = r.Verdict.Outcome.Cause()
	case r.Reason == decision.Auth, r.Reason == decision.Busy:
		row.Cause = r.Detail
	case r.Reason == decision.TargetDown: // the message has the cause of its target
		cause, answer := o.Why(host)
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
