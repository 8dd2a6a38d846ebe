// Package logs makes the logger and names the fields that all of the handler's log lines share.
package logs

import (
	"io"
	"time"

	"github.com/rs/zerolog"
)

// Names of fields. An operator's queries rely on them.
const (
	InvocationID = "invocation_id"
	Function     = "function"
	Queue        = "queue"
	MessageID    = "message_id"
	DequeueCount = "dequeue_count"
	RequestID    = "request_id"
	// OriginalID stands on a Nexus callback: the request that it reports about.
	OriginalID   = "original_request_id"
	Organization = "organization"
	Environment  = "environment"
	// CorrelationID is the call's header X-Correlation-ID.
	CorrelationID = "correlation_id"
	Attempt       = "attempt"
	TargetHost    = "target_host"
	Action        = "action"
	Reason        = "reason"
	Detail        = "detail"
	Status        = "status"
	Delay         = "delay"
	NextAttempt   = "next_attempt_at"
	Reschedule    = "reschedule"
	Took          = "took"
	LeftOut       = "left_out"
	RetryLimited  = "retry_limited"
	Ignored       = "ignored"
	Stack         = "stack"
)

// New returns a logger that writes a JSON object a line or, for a person at a terminal, text. Durations
// are milliseconds.
func New(out io.Writer, level zerolog.Level, terminal bool) zerolog.Logger {
	if terminal {
		out = zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}
