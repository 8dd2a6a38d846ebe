// Package delivery is the way of one message through the handler: parse, decide, call, decide, settle.
// Each step is a package of its own; here is only their order, and the log line that tells what happened.
package delivery

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/settle"
)

// Message is what the host handed over.
type Message struct {
	// Function took it, in the invocation of that id.
	Function, InvocationID string
	Queue                  string
	// ID names the call when the envelope has no request id: 1 to 128 visible ASCII characters.
	ID string
	// DequeueCount is how often the host has got it, as far as that is known, or 0.
	DequeueCount int64
	// Content is the message's decoded body.
	Content []byte
	// Lease is the host's hold on the message; the zero value where its word cannot be taken for it.
	Lease settle.Lease
}

// MarshalZerologObject adds the fields that every log line about the message has.
func (m *Message) MarshalZerologObject(event *zerolog.Event) {
	event.Str(logs.Function, m.Function).Str(logs.Queue, m.Queue).Str(logs.InvocationID, m.InvocationID)
	if m.ID != "" {
		event.Str(logs.MessageID, m.ID).Int64(logs.DequeueCount, m.DequeueCount)
	}
}

// Result is what became of a message.
type Result struct {
	decision.Decision
	// Envelope is the message's envelope, or nil if the message is malformed. Tenant is the sender, as far as
	// it could be read.
	Envelope *envelope.Envelope
	Tenant   envelope.Tenant
	// TargetHost is the host and port of the call's URL; empty when the message is malformed.
	TargetHost string
	// Attempt is the number of the call that was made, or 0 when none was.
	Attempt int
	// Took is how long the call lasted.
	Took time.Duration
	// LeftOut names what of the envelope had no room; empty when all of it had.
	LeftOut string
	// Reschedule is how the message was rescheduled in mode update; empty in mode new, or when it was not.
	Reschedule settle.RescheduleMode
	// Err says why the message could not be settled: nothing was written and the host must keep it.
	Err error
}

// Caller makes the call of an envelope. A call whose context ends is interrupted.
type Caller interface {
	Do(ctx context.Context, e *envelope.Envelope) decision.Outcome
}

// Deliverer delivers messages. It keeps nothing between them and is safe for concurrent use.
type Deliverer struct {
	Rules   decision.Rules
	Caller  Caller
	Settler *settle.Settler
	// Log gets the lines about messages.
	Log zerolog.Logger
	// Stopping ends when the handler is told to stop; calls under way are then interrupted. Calls run in it and
	// not in the context of the invocation: a host that hangs up must not end them.
	Stopping context.Context //nolint:containedctx // the life of the handler, not of a call
	// Now and Jitter are the clock and the random numbers, from 0 up to, not including, 1.
	Now    func() time.Time
	Jitter func() float64
}

// Deliver takes a message from its arrival to the point where the host may delete it, and logs one line
// about it. It does not stop when ctx is cancelled: a host that hangs up must not cause a call to be forgotten
// that was made.
func (d *Deliverer) Deliver(ctx context.Context, m Message) Result {
	arrived := d.Now()
	in := d.Rules.Open(m.Content, m.ID, d.Settler.MaxContentBytes(), arrived)
	result := Result{Decision: d.Rules.BeforeCall(in, arrived), Envelope: in.Envelope, Tenant: in.Tenant}
	if in.Envelope != nil {
		result.TargetHost = in.Envelope.Call.Target.Host
	}
	settled := arrived
	if result.Action == decision.Call {
		outcome := d.Caller.Do(d.Stopping, in.Envelope) //nolint:contextcheck // see Stopping
		settled = d.Now()
		result.Decision = d.Rules.AfterCall(in, outcome, arrived, settled, d.Jitter())
		result.Attempt, result.Took = in.Envelope.Attempts+1, outcome.Took
	}
	write := d.Rules.Compose(in, result.Decision, m.Queue, settled)
	result.LeftOut = write.LeftOut
	result.Reschedule, result.Err = d.Settler.Settle(ctx, write, m.Lease)
	d.log(&m, &result)
	return result
}

// log writes the one line that every message gets, and a line before it when we gave up.
func (d *Deliverer) log(m *Message, r *Result) {
	if r.Err != nil {
		d.Log.Error().EmbedObject(m).Err(r.Err).EmbedObject(r).Msg("not settled: the host keeps the message and delivers it again")
		return
	}
	if r.GivenUp {
		d.Log.Error().EmbedObject(m).EmbedObject((*subject)(r)).
			Str(logs.Action, string(r.Action)).Str(logs.Reason, string(r.Reason)).
			Msgf("Giving up on envelope %s: %s", r.Envelope.RequestID, r.Detail)
	}
	if len(r.Ignored) > 0 {
		d.Log.Warn().EmbedObject(m).EmbedObject((*subject)(r)).Strs(logs.Ignored, r.Ignored).
			Msg("the target says when or whether to try again in a way that makes no sense: ignored")
	}
	level := zerolog.InfoLevel
	if r.Reason == decision.Malformed {
		level = zerolog.ErrorLevel // a person has to look at it, and no line before this one says so
	}
	d.Log.WithLevel(level).EmbedObject(m).EmbedObject(r).Msg("settled")
}

// MarshalZerologObject adds the fields of the log line.
func (r *Result) MarshalZerologObject(event *zerolog.Event) {
	event.EmbedObject((*subject)(r))
	event.Str(logs.Action, string(r.Action)).Str(logs.Reason, string(r.Reason))
	if r.Attempt > 0 {
		event.Int(logs.Attempt, r.Attempt).Int64(logs.Took, r.Took.Round(time.Millisecond).Milliseconds())
	}
	if r.Status > 0 {
		event.Int(logs.Status, r.Status)
	}
	if r.Action == decision.Reschedule {
		event.Dur(logs.Delay, r.Delay.Round(time.Millisecond)).Time(logs.NextAttempt, r.State.NextAttemptAt)
	}
	if r.Reschedule != "" {
		event.Str(logs.Reschedule, string(r.Reschedule))
	}
	if r.Detail != "" {
		event.Str(logs.Detail, r.Detail)
	}
	if r.Limited != "" {
		event.Str(logs.RetryLimited, r.Limited)
	}
	if r.LeftOut != "" {
		event.Str(logs.LeftOut, r.LeftOut)
	}
}

// subject is what every log line says about the envelope, if there is one.
type subject Result

// maxText is how much is logged, in bytes, of what may be whatever the sender wrote.
const maxText = 128

// MarshalZerologObject adds the fields.
func (s *subject) MarshalZerologObject(event *zerolog.Event) {
	if e := s.Envelope; e != nil {
		event.Str(logs.RequestID, e.RequestID).Str(logs.TargetHost, s.TargetHost)
		logText(event, logs.OriginalID, e.OriginalRequestID)
		logText(event, logs.CorrelationID, e.CorrelationID())
	}
	logText(event, logs.Organization, s.Tenant.Organization)
	logText(event, logs.Environment, s.Tenant.Environment)
}

func logText(event *zerolog.Event, name, value string) {
	if value != "" {
		event.Str(name, value[:min(len(value), maxText)])
	}
}

// usualSummary is how long a summary is, or nearly so.
const usualSummary = 160

// Summary is the log line in short, for a person who looks at one invocation.
func (r *Result) Summary() string {
	var text strings.Builder
	text.Grow(usualSummary)
	add := func(parts ...string) {
		for _, part := range parts {
			text.WriteString(part)
		}
	}
	if r.Err != nil {
		add("not ")
	}
	add("settled: ", string(r.Action), " (", string(r.Reason), ")")
	if r.Envelope != nil {
		add(", request ", r.Envelope.RequestID, " to ", r.TargetHost)
	}
	if r.Attempt > 0 {
		add(", attempt ", strconv.Itoa(r.Attempt), " took ", r.Took.Round(time.Millisecond).String())
	}
	if r.Status > 0 {
		add(", status ", strconv.Itoa(r.Status))
	}
	if r.Action == decision.Reschedule {
		add(", next in ", r.Delay.Round(time.Second).String())
	}
	if r.Detail != "" {
		add(": ", r.Detail)
	}
	return text.String()
}
