// Package logs makes the handler's logger and names the fields of its log lines.
package logs

import (
	"io"

	"github.com/rs/zerolog"
)

// Names of fields. Operators' queries rely on them.
const (
	InvocationID = "invocation_id"
	Function     = "function"
	Queue        = "queue"
	MessageID    = "message_id"
	DequeueCount = "dequeue_count"
	RequestID    = "request_id"
	// OriginalID is the request that a Nexus callback reports about.
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

// New returns a logger that writes each event as one line of JSON. Durations are in milliseconds.
func New(out io.Writer, level zerolog.Level) zerolog.Logger {
	return zerolog.New(zerolog.SyncWriter(out)).Level(level).With().Timestamp().Logger()
}
