// Package delivery is the way of one message through the handler: parse, decide, call, decide, settle.
// Each step is a package of its own; here is only their order, and the log line that tells what happened.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/decision"
	"asynccaller/handler/envelope"
	"asynccaller/handler/logs"
	"asynccaller/handler/outbound"
	"asynccaller/handler/retry"
	"asynccaller/handler/settle"
)

// Message is what the host handed over.
type Message struct {
	Queue string
	// ID names the call when the envelope has no request id: 1 to 128 visible ASCII characters.
	ID string
	// Content is the message's decoded body.
	Content []byte
	// Lease is the host's hold on the message; the zero value where its word cannot be taken for it.
	Lease settle.Lease
}

// Result is what became of a message.
type Result struct {
	decision.Decision
	// Envelope is what the message holds; nil when that is malformed. Tenant is whose it is then, as far as
	// that could be read.
	Envelope *envelope.Envelope
	Tenant   envelope.Tenant
	// Attempt is the number of the call that was made, or 0 when none was.
	Attempt int
	// Took is how long the call lasted.
	Took time.Duration
	// LeftOut names what of the envelope had no room; empty when all of it had.
	LeftOut string
	// PutBack is how the message was put back in mode update; empty in mode new, or when it was not.
	PutBack settle.PutBackMode
	// Err says why the message could not be settled: nothing was written and the host must keep it.
	Err error
}

// Caller makes the call of an envelope. A call whose context ends with the cause [outbound.ErrStopping]
// is interrupted.
type Caller interface {
	Do(ctx context.Context, e *envelope.Envelope) decision.Outcome
}

// Deliverer delivers messages. It keeps nothing between them and is safe for concurrent use.
type Deliverer struct {
	Rules   decision.Rules
	Caller  Caller
	Settler *settle.Settler
	// Stopping ends when the handler is told to stop; calls under way are then interrupted.
	Stopping context.Context //nolint:containedctx // the life of the handler, not of a call
	// Now and Jitter are the clock and the random numbers, from 0 up to, not including, 1.
	Now    func() time.Time
	Jitter func() float64
}

// Deliver takes a message from its arrival to the point where the host may delete it, and logs one line
// about it with the logger in ctx. It does not stop when ctx is cancelled: a host that hangs up must not
// cause a call to be forgotten that was made.
func (d *Deliverer) Deliver(ctx context.Context, m Message) Result {
	ctx = context.WithoutCancel(ctx)
	e, policy, err := d.open(m)
	if e == nil {
		result := Result{Decision: decision.OnMalformed(err)}
		if whose, ok := errors.AsType[*envelope.TenantError](err); ok {
			result.Tenant = whose.Tenant
		}
		return d.settle(ctx, m, nil, result)
	}
	result := Result{Envelope: e}
	if err != nil {
		result.Decision = decision.OnMalformed(err)
		result.State = e.State
		return d.settle(ctx, m, e, result)
	}
	result.Decision = d.Rules.BeforeCall(e, d.Now())
	if result.Action == decision.Call {
		started := d.Now()
		outcome := d.call(ctx, e)
		result.Decision = d.Rules.AfterCall(e, policy, outcome, started, d.Now(), d.Jitter())
		result.Attempt, result.Took = e.Attempts+1, outcome.Took
	}
	return d.settle(ctx, m, e, result)
}

// open makes an envelope of the message's content. Its error says why that cannot be delivered, ever;
// beside it stands the envelope if only its retry policy is at fault.
func (d *Deliverer) open(m Message) (*envelope.Envelope, retry.Policy, error) {
	e, err := envelope.Parse(m.Content)
	if err != nil {
		return nil, retry.Policy{}, err
	}
	if err := e.Accept(d.Now(), m.ID, d.Settler.MaxContentBytes()); err != nil {
		return nil, retry.Policy{}, &envelope.TenantError{Tenant: e.Tenant, Err: err}
	}
	policy, err := d.Rules.PolicyFor(e)
	return e, policy, err
}

// call makes the call, and interrupts it when the handler is told to stop.
func (d *Deliverer) call(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	interrupt := func() { cancel(outbound.ErrStopping) }
	defer context.AfterFunc(d.Stopping, interrupt)() //nolint:contextcheck // the end of the handler's life, not of the call's
	return d.Caller.Do(ctx, e)
}

func (d *Deliverer) settle(ctx context.Context, m Message, e *envelope.Envelope, result Result) Result {
	settling := settle.Message{Queue: m.Queue, Content: m.Content, Envelope: e, Lease: m.Lease}
	written, err := d.Settler.Settle(ctx, settling, result.Decision, d.Now())
	result.LeftOut, result.PutBack, result.Err = written.LeftOut, written.PutBack, err
	result.log(zerolog.Ctx(ctx))
	return result
}

// log writes the one line that every message gets, and a line before it when we gave up.
func (r Result) log(log *zerolog.Logger) {
	if r.Err != nil {
		log.Error().Err(r.Err).EmbedObject(r).Msg("not settled: the host keeps the message and delivers it again")
		return
	}
	if r.GivenUp {
		log.Error().EmbedObject(subject{r.Envelope}).
			Str(logs.Action, string(r.Action)).Str(logs.Reason, string(r.Reason)).
			Msgf("Giving up on envelope %s: %s", r.Envelope.RequestID, r.Detail)
	}
	if len(r.Ignored) > 0 {
		log.Warn().EmbedObject(subject{r.Envelope}).Strs(logs.Ignored, r.Ignored).
			Msg("the target says when or whether to try again in a way that makes no sense: ignored")
	}
	level := zerolog.InfoLevel
	if r.Reason == decision.Malformed {
		level = zerolog.ErrorLevel // a person has to look at it, and no line before this one says so
	}
	log.WithLevel(level).EmbedObject(r).Msg("settled")
}

// MarshalZerologObject adds the fields of the log line.
func (r Result) MarshalZerologObject(event *zerolog.Event) {
	event.EmbedObject(subject{r.Envelope})
	logTenant(event, r.Tenant)
	event.Str(logs.Action, string(r.Action)).Str(logs.Reason, string(r.Reason))
	if r.Attempt > 0 {
		event.Int(logs.Attempt, r.Attempt).Dur(logs.Took, r.Took.Round(time.Millisecond))
	}
	if r.Status > 0 {
		event.Int(logs.Status, r.Status)
	}
	if r.Action == decision.PutBack {
		event.Dur(logs.Delay, r.Delay.Round(time.Millisecond)).Time(logs.NextAttempt, r.State.NextAttemptAt)
	}
	if r.PutBack != "" {
		event.Str(logs.PutBack, string(r.PutBack))
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

// subject is what every log line says about the envelope, which is nil when there is none.
type subject struct{ *envelope.Envelope }

// maxText is how much is logged, in bytes, of what may be whatever the sender wrote.
const maxText = 128

// MarshalZerologObject adds the fields.
func (s subject) MarshalZerologObject(event *zerolog.Event) {
	if s.Envelope == nil {
		return
	}
	event.Str(logs.RequestID, s.RequestID).Str(logs.TargetHost, host(s.Call.URL))
	logText(event, logs.OriginalID, s.OriginalRequestID)
	logTenant(event, s.Tenant)
	logText(event, logs.CorrelationID, s.CorrelationID())
}

func logTenant(event *zerolog.Event, t envelope.Tenant) {
	logText(event, logs.Organization, t.Organization)
	logText(event, logs.Environment, t.Environment)
}

func logText(event *zerolog.Event, name, value string) {
	if value != "" {
		event.Str(name, value[:min(len(value), maxText)])
	}
}

// Summary is the log line in short, for a person who looks at one invocation.
func (r Result) Summary() string {
	text := fmt.Sprintf("settled: %s (%s)", r.Action, r.Reason)
	if r.Err != nil {
		text = fmt.Sprintf("not settled: %s (%s)", r.Action, r.Reason)
	}
	if e := r.Envelope; e != nil {
		text += fmt.Sprintf(", request %s to %s", e.RequestID, host(e.Call.URL))
	}
	if r.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d took %v", r.Attempt, r.Took.Round(time.Millisecond))
	}
	if r.Status > 0 {
		text += fmt.Sprintf(", status %d", r.Status)
	}
	if r.Action == decision.PutBack {
		text += fmt.Sprintf(", next in %v", r.Delay.Round(time.Second))
	}
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

// host names the target without anything that may be a secret.
func host(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Host
}
