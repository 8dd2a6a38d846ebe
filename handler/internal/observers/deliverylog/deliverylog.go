// Package deliverylog writes the log lines about messages.
package deliverylog

import (
	"context"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/rules/decision"
)

// Log writes one line about every message, and further lines if the envelope is given up or the response has invalid
// retry signals.
type Log struct {
	log  zerolog.Logger
	then func(context.Context, *delivery.Result)
}

// New returns an observer that writes to a log.
func New(log zerolog.Logger) *Log {
	l := &Log{log: log}
	l.then = l.write
	return l
}

// Observe implements [delivery.Observer].
func (l *Log) Observe(*delivery.Report) func(context.Context, *delivery.Result) { return l.then }

func (l *Log) write(_ context.Context, result *delivery.Result) {
	r := (*line)(result)
	fields := &logs.Message{Message: r.Message, Identity: r.Identity, Tenant: r.Tenant, RequestID: r.RequestID}
	if r.Err != nil {
		l.log.Error().EmbedObject(fields).Err(r.Err).EmbedObject(r).
			Msg("not settled: the host keeps the message and delivers it again")
		return
	}
	if r.GivenUp {
		l.log.Error().EmbedObject(fields).EmbedObject(r).
			Msgf("Giving up on envelope %s: %s", r.Identity.RequestID, r.Detail)
	}
	if len(r.Ignored) > 0 {
		l.log.Warn().EmbedObject(fields).Strs(logs.Ignored, r.Ignored).
			Msg("ignored invalid retry signals in the response")
	}
	level := zerolog.InfoLevel
	if r.Reason == decision.Malformed {
		level = zerolog.ErrorLevel // a person must look at it, and no other line says so
	}
	l.log.WithLevel(level).EmbedObject(fields).EmbedObject(r).Msg("settled")
}

// line has the fields of the line `settled` that the other lines do not have.
type line delivery.Result

// MarshalZerologObject adds the fields.
func (r *line) MarshalZerologObject(event *zerolog.Event) {
	event.Str(logs.Action, string(r.Action)).Str(logs.Reason, string(r.Reason))
	if r.Attempt > 0 {
		event.Int(logs.Attempt, r.Attempt).Int64(logs.Took, logs.Millis(r.Took))
	}
	if r.Status > 0 {
		event.Int(logs.Status, r.Status)
	}
	if r.Age > 0 {
		event.Int64(logs.Age, logs.Millis(r.Age))
	}
	if r.Delay > 0 {
		event.Int64(logs.Delay, logs.Millis(r.Delay))
	}
	isDue := r.Reason == decision.Interrupted || r.Reason == decision.Busy && r.Delay < decision.MinRecordedDelay
	if r.Action == decision.Reschedule && !isDue {
		event.Time(logs.NextAttempt, r.NextAttemptAt)
	}
	logs.Text(event, logs.Reschedule, string(r.Reschedule))
	logs.Text(event, logs.Detail, r.Detail)
	logs.Text(event, logs.RetryLimited, r.Limited)
	if !r.DeadlineLimited.IsZero() {
		event.Time(logs.DeadlineLimited, r.DeadlineLimited)
	}
	logs.Text(event, logs.LeftOut, r.LeftOut)
}
