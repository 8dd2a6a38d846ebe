// Package delivery takes one message through the handler: open, decide, admit, call, decide, settle. Each step is a
// package of its own. This package contains their order and the log line about the result.
package delivery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/admission"
	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/history"
	"asynccaller/handler/internal/limit"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/route"
	"asynccaller/handler/internal/settle"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/targets"
)

// Message is a message that the host delivers.
type Message struct {
	// Function is the name of the function that got the message, InvocationID the id of its invocation.
	Function, InvocationID string
	Queue                  string
	// IsRouted says that Content is the body of the call of the queue's route, and never an envelope.
	IsRouted bool
	// ID identifies the call if the envelope has no request id: 1 to 128 visible ASCII characters.
	ID string
	// DequeueCount is how often the host has received the message, or 0 if that is not known.
	DequeueCount int64
	// Content is the decoded content.
	Content []byte
	// Lease is the host's lease on the message; zero if it is not known or not trusted.
	Lease settle.Lease
}

// Result is the outcome of a delivery.
type Result struct {
	decision.Decision
	// Envelope identifies the message's envelope ([envelope.Envelope.Identity]), or is nil if the message is
	// malformed. Tenant is the sender, and RequestID the id that it gave, as far as they could be read.
	Envelope  *envelope.Envelope
	Tenant    envelope.Tenant
	RequestID string
	// Attempt is the number of the call that was made, or 0 if none was.
	Attempt int
	// Took is how long the call lasted.
	Took time.Duration
	// Age is how long the delivery took, from the creation of the envelope or its NotBefore to its end; zero as long as
	// it goes on.
	Age time.Duration
	// LeftOut names the parts of the envelope that had no room; empty if it was written in full.
	LeftOut string
	// NextAttemptAt is when a rescheduled message becomes due: at the time in State or, if the write took longer than
	// the delay, when storage acknowledged it.
	NextAttemptAt time.Time
	// Reschedule is how the message was rescheduled in mode update or in place; otherwise empty.
	Reschedule settle.RescheduleMode
	// Err says why the message could not be settled: nothing was written, and the host must keep the message.
	Err error

	// outcome is what the sender of a message of a run is told; without a run, its Run is empty.
	outcome record.Outcome
	// isInPlace says that the message of a route is rescheduled as it is.
	isInPlace bool
	// ended is what the history keeps; nil if it keeps nothing.
	ended *history.Entry
	// cause and answer are why the target fails and what it said, for the record of a message that waits.
	cause, answer string
}

// MayDelete reports whether the host may delete the message: storage has acknowledged everything that replaces it.
func (r *Result) MayDelete() bool {
	return r.Err == nil && r.Action != decision.Fault && r.Action != decision.Release
}

// ErrHostGone is the cause with which [Deliverer.Stopping] ends when the Functions host has ended.
var ErrHostGone = errors.New("the Functions host has ended")

// Caller makes the call of an envelope, which it must not change. If ctx ends, the call is interrupted.
type Caller interface {
	Do(ctx context.Context, e *envelope.Envelope) decision.Outcome
}

// Deliverer delivers messages. Its only state is that of the gate. It is safe for concurrent use.
type Deliverer struct {
	Rules decision.Rules
	// Routes are the calls of queues with other contents than envelopes.
	Routes route.Routes
	// Guard say which targets may be called.
	Guard guard.Rules
	// Gate says whether a call that is due may begin, and Limits whether the limits of its target allow it; nil counts
	// them in each instance.
	Gate    *admission.Gate
	Limits  *limit.Limits
	Caller  Caller
	Settler *settle.Settler
	// Record keeps a record of scheduled messages, and Outcomes of what becomes of messages of runs; nil keeps none.
	Record, Outcomes *record.Recorder
	// Targets keeps the targets that fail; nil keeps none. AnswerText returns the beginning of an answer as printable
	// text without secrets.
	Targets    *record.Targets
	AnswerText func(*envelope.Answer) string
	// History keeps how calls ended; nil keeps nothing. KeepHistory says what of it, unless the profile of a target
	// does.
	History     *history.History
	KeepHistory targets.History
	// Pauses says which targets an operator has paused; nil if none can be.
	Pauses *record.Pauses
	// Log receives the lines about messages.
	Log zerolog.Logger
	// Hold is how long hold mode keeps a message before putting it back; zero delivers messages.
	Hold time.Duration
	// Stopping ends when the handler is told to stop, which interrupts the calls, or with the cause [ErrHostGone].
	// Calls run in it and not in the context of the invocation, because a host that hangs up must not end them.
	Stopping context.Context //nolint:containedctx // the life of the handler, not of a call
	// Now is the clock. Jitter returns random numbers from 0 up to, not including, 1.
	Now    func() time.Time
	Jitter func() float64

	// processing is held while a message is processed, but not during its call.
	processing sync.Mutex
}

// Deliver takes a message from its arrival to the point where the host may delete it, and logs one line about it. It
// does not stop when ctx is cancelled: otherwise a host that hangs up could lose the result of a call.
func (d *Deliverer) Deliver(ctx context.Context, m Message) Result {
	if d.Hold > 0 { // before parsing: an envelope can take much more memory than its message
		storage.Sleep(d.Stopping, d.Hold) //nolint:contextcheck // a host that hangs up must not end it
	}
	var slot *admission.Slot
	defer func() { slot.Release(d.Now()) }() // also after a panic
	r, w := d.process(&m, &slot)
	lease := m.Lease
	if w.Queue != m.Queue { // only on its own queue can a message be updated
		lease = settle.Lease{}
	}
	settled, err := d.Settler.Settle(ctx, w, lease)
	r.Reschedule, r.Err = settled.Reschedule, err
	r.NextAttemptAt = r.State.NextAttemptAt
	now := d.Now()
	if r.NextAttemptAt.Before(now) {
		r.NextAttemptAt = now
	}
	if err == nil {
		d.recordSettled(&r, w, settled)
	}
	if err == nil || r.Action == decision.Release {
		d.keep(ctx, m, &r)
	}
	d.log(&m, &r)
	return r
}

// recordSettled records a message that was settled, in the background.
func (d *Deliverer) recordSettled(r *Result, w decision.Write, settled settle.Settled) {
	if r.isRecorded() {
		d.Record.Scheduled(row(r, w, settled))
	}
	if r.outcome.Run != "" && r.Action != decision.Release {
		d.Outcomes.Outcome(r.outcome)
	}
}

// ends reports whether the call will not be made again.
func (r *Result) ends() bool {
	ends := []decision.Action{
		decision.Finish, decision.Callback, decision.DeadLetter, decision.Drop, decision.Fault,
	}
	return slices.Contains(ends, r.Action)
}

// isRecorded reports whether the record of scheduled messages has the message.
func (r *Result) isRecorded() bool {
	return r.Action == decision.Reschedule && r.Delay >= decision.MinRecordedDelay && !r.isInPlace
}

// process decides about a message, makes its call if that is due, and returns what must be written. It sets the
// slot of the call, which the caller releases when the message is settled. Except for its call, it does so for one
// message at a time: a hostile message of 48 KiB takes 6 MiB while it is parsed, and up to a MiB from then until
// it is composed. An ordinary one takes microseconds.
func (d *Deliverer) process(m *Message, slot **admission.Slot) (r Result, w decision.Write) {
	d.processing.Lock()
	defer d.processing.Unlock()
	arrived := d.Now()
	in := d.open(m, arrived)
	if wasRecorded(in.Received, m.Lease) {
		d.Record.Gone(storage.Key{Partition: m.Queue, ID: m.Lease.ID})
	}
	r = Result{
		Decision: d.Rules.BeforeCall(in, arrived), Envelope: in.Envelope, Tenant: in.Tenant, RequestID: in.RequestID,
	}
	decided := arrived
	refused := ""
	var pause record.Pause
	isPaused := false
	if r.Action == decision.Call {
		refused = d.Guard.JudgeCall(in.Envelope.Call.Target, in.Envelope.Call.Host)
		pause, isPaused = d.Pauses.Of(in.Envelope.Call.Target, arrived)
	}
	switch {
	case d.Hold > 0:
		r.Decision = d.Rules.Hold(in, arrived, d.Jitter())
	case refused != "": // before admission, which keeps state of targets that may be called
		outcome := decision.Outcome{Failure: decision.FailureTargetRefused, Detail: refused}
		r.Decision = d.Rules.AfterCall(in, outcome, arrived, arrived, d.Jitter())
		r.Attempt = in.Envelope.Attempts + 1
	case isPaused:
		r.Decision = d.Rules.Pause(in, pause.Until, arrived, d.Jitter())
	case r.Action == decision.Call:
		admitted, refusal := d.admit(m, in, arrived)
		if refusal != nil {
			r.Decision = d.Rules.Refuse(in, *refusal, arrived, d.Jitter())
			break
		}
		*slot = admitted
		outcome, refusal, delivered := d.call(m, in, admitted)
		decided = d.Now()
		if !delivered.IsZero() {
			admitted.Cancel(nil)
			r.Decision = d.Rules.Duplicate(in, delivered)
			break
		}
		if refusal != nil {
			admitted.Cancel(refusal)
			r.Decision = d.Rules.Refuse(in, *refusal, decided, d.Jitter())
			break
		}
		r.Decision = d.Rules.AfterCall(in, outcome, arrived, decided, d.Jitter())
		r.Attempt, r.Took = in.Envelope.Attempts+1, outcome.Took
		change := admitted.Ended(outcome, decided)
		d.logChange(common{m, &r}, change)
		d.recordCall(&r, outcome, arrived, decided, change.IsOpen)
	}
	r.Decision = d.Rules.WithoutRoom(in, r.Decision, func(delay time.Duration) bool {
		return d.Settler.CanUpdate(m.Lease, decided.Add(delay))
	})
	r.isInPlace = in.NoRoom
	r.ended = d.ended(in.Envelope, &r, decided)
	if errors.Is(context.Cause(d.Stopping), ErrHostGone) {
		if r.Action != decision.Finish { // its callback or its dead letter is not written now
			r.ended = nil
		}
		r.Decision = d.Rules.Release(in, decided, d.Jitter())
	}
	d.explainWait(&r)
	if in.Envelope != nil && r.ends() {
		r.Age = decided.Sub(in.Envelope.BeginsAt())
	}
	w = d.Rules.Compose(in, r.Decision, m.Queue, decided)
	r.LeftOut = w.LeftOut
	r.outcome = outcome(m, in, &r, decided)
	r.shrink()
	return r, w
}

// errNoRoute is why a message of a function of a route is not delivered. Start-up does not allow that.
var errNoRoute = errors.New("the queue has no route")

// open reads the content of a message as an envelope or, on the queue of a route, as the body of its call.
func (d *Deliverer) open(m *Message, now time.Time) decision.Intake {
	limit := d.Settler.MaxContentBytes()
	if !m.IsRouted {
		return d.Rules.Open(m.Content, m.ID, limit, now)
	}
	to, hasRoute := d.Routes[m.Queue]
	if !hasRoute { // in hold mode, routes.json may be invalid
		return decision.Intake{Content: m.Content, Limit: limit, Malformed: errNoRoute}
	}
	a := route.Arrival{Content: m.Content, MessageID: m.ID, InsertedAt: m.Lease.InsertedAt}
	if a.InsertedAt.IsZero() || a.InsertedAt.After(now) {
		a.InsertedAt = now
	}
	return d.Rules.OpenRouted(to, a, m.DequeueCount, limit, now)
}

// call makes a call, unless a limit of the app refuses it, or the history says when it was delivered. Other messages
// are processed meanwhile.
func (d *Deliverer) call(
	m *Message, in decision.Intake, slot *admission.Slot,
) (o decision.Outcome, refusal *decision.Refusal, delivered time.Time) {
	d.processing.Unlock()
	defer d.processing.Lock()
	e := in.Envelope
	profile := d.Rules.Profiles.For(e.Call.Target)
	isChecked, isLimited := d.isChecked(m, in, profile), d.isLimited(profile)
	if isLimited {
		leave, refusal, err := d.Limits.Enter(d.Stopping, limit.Request{
			Profile: profile, RequestID: e.RequestID, Deadline: e.GiveUpAt(d.Rules.Expiration), Reserved: e.Reserved,
		})
		switch {
		case err != nil:
			return decision.Outcome{Failure: decision.FailureInterrupted}, nil, time.Time{}
		case refusal != nil:
			return o, refusal, time.Time{}
		}
		defer leave()
	}
	if isChecked { // last, so that little happens between the answer and the call
		at, wasDelivered := d.History.WasDelivered(d.Stopping, e, d.Now())
		if wasDelivered {
			return o, nil, at
		}
	}
	if isChecked || isLimited {
		slot.Begin(d.Now())
	}
	return d.Caller.Do(d.Stopping, e), nil, time.Time{}
}

// isLimited reports whether the calls of all instances to a target are limited together.
func (d *Deliverer) isLimited(p targets.Profile) bool { return d.Limits != nil && p.IsLimited() }

// recordCall records whether the target of a call that was made fails.
func (d *Deliverer) recordCall(r *Result, o decision.Outcome, began, ended time.Time, isOpen bool) {
	notOfTarget := []decision.Failure{
		decision.FailureInterrupted, decision.FailureBadURL, decision.FailureTargetRefused,
	}
	if d.Targets == nil || slices.Contains(notOfTarget, o.Failure) {
		return
	}
	host := record.RowHost(r.Envelope.Call.Target.Host)
	if r.Reason == decision.Delivered {
		d.Targets.Succeeded(host, ended)
		return
	}
	failed := record.Target{
		Host: host, Reason: string(r.Reason), Cause: o.Cause(), Status: o.Status, Since: began, Latest: began,
		Answer: d.AnswerText(o.Answer()),
	}
	if isOpen {
		failed.OpenAt = ended
	}
	d.Targets.Failed(failed)
	r.cause, r.answer = failed.Cause, failed.Answer
}

// explainWait completes the result for a message that waits: a message that was refused has the cause of the target.
func (d *Deliverer) explainWait(r *Result) {
	if d.Targets == nil || !r.isRecorded() {
		return
	}
	if r.answer == "" {
		r.answer = d.AnswerText(r.State.Latest)
	}
	if r.Reason == decision.TargetDown {
		latest := d.Targets.Latest(record.RowHost(r.Envelope.Call.Target.Host))
		r.cause, r.answer = latest.Cause, cmp.Or(r.answer, latest.Answer)
	}
}

// shrink drops what the log and the record do not need. Storage can take a minute to settle a message, and
// hundreds of messages may wait for it.
func (r *Result) shrink() {
	if r.Envelope != nil {
		r.Envelope = r.Envelope.Identity()
	}
	r.State.Latest, r.State.Trail = nil, nil
}

// admit asks for a slot for the call of an intake.
func (d *Deliverer) admit(m *Message, in decision.Intake, now time.Time) (*admission.Slot, *decision.Refusal) {
	e, jitter := in.Envelope, d.Jitter()
	request := admission.Request{
		Function: m.Function, Target: e.Call.Target, Profile: d.Rules.Profiles.For(e.Call.Target),
		Memory: e.Memory(), LastAttempt: d.Rules.IsLastAttempt(e, now),
	}
	request.IsShared = d.isLimited(request.Profile)
	request.Waits = request.IsShared || d.isChecked(m, in, request.Profile)
	if e.Attempts > 0 {
		request.Backoff = in.Policy.Delay(e.Attempts, jitter)
	}
	return d.Gate.Admit(request, now, jitter)
}

// wasRecorded reports whether the record of scheduled messages may have the message, whose successor was written when
// it was rescheduled. The clocks of storage and of the handler differ.
func wasRecorded(e *envelope.Envelope, lease settle.Lease) bool {
	if e == nil || lease.ID == "" {
		return false
	}
	return e.NextAttemptAt.Sub(lease.InsertedAt) >= decision.MinRecordedDelay-storage.ClockDifference
}

// row describes a message that was rescheduled.
func row(r *Result, w decision.Write, settled settle.Settled) record.Scheduled {
	target := r.Envelope.Call.Target
	return record.Scheduled{
		Key:        storage.Key{Partition: w.Queue, ID: settled.ID},
		PopReceipt: settled.PopReceipt, Repeated: settled.Repeated,
		RequestID: r.Envelope.RequestID, TargetHost: cut(target.Host), Route: target.EscapedPath(),
		Reason: string(r.Reason), Status: r.Status, Attempts: r.State.Attempts,
		CreatedAt: r.State.CreatedAt, NextAttemptAt: r.State.NextAttemptAt, Deadline: r.State.Expires,
		Organization: cut(r.Tenant.Organization), Environment: cut(r.Tenant.Environment),
		Cause: r.cause, Answer: r.answer, Content: w.Content,
	}
}

// outcome describes what becomes of a message of a run. Its Run is empty for any other message.
func outcome(m *Message, in decision.Intake, r *Result, at time.Time) record.Outcome {
	e := cmp.Or(in.Envelope, in.Received)
	if e == nil || e.Run == "" {
		return record.Outcome{}
	}
	return record.Outcome{
		Run: e.Run, RequestID: cmp.Or(e.RequestID, m.ID), Attempt: cmp.Or(r.Attempt, e.Attempts+1),
		Called: r.Attempt > 0 && r.Reason != decision.Interrupted,
		Action: string(r.Action), Reason: string(r.Reason), Status: r.Status, TargetHost: e.Call.Target.Host, At: at,
	}
}

// log writes one line about every message, and further lines if the envelope is given up or the response has invalid
// retry signals.
func (d *Deliverer) log(m *Message, r *Result) {
	fields := common{m, r}
	if r.Err != nil {
		d.Log.Error().EmbedObject(fields).Err(r.Err).EmbedObject(r).
			Msg("not settled: the host keeps the message and delivers it again")
		return
	}
	if r.GivenUp {
		d.Log.Error().EmbedObject(fields).EmbedObject(r).
			Msgf("Giving up on envelope %s: %s", r.Envelope.RequestID, r.Detail)
	}
	if len(r.Ignored) > 0 {
		d.Log.Warn().EmbedObject(fields).Strs(logs.Ignored, r.Ignored).
			Msg("ignored invalid retry signals in the response")
	}
	level := zerolog.InfoLevel
	if r.Reason == decision.Malformed {
		level = zerolog.ErrorLevel // a person must look at it, and no other line says so
	}
	d.Log.WithLevel(level).EmbedObject(fields).EmbedObject(r).Msg("settled")
}

// logChange writes a line if the call opened or closed the circuit breaker of its target.
func (d *Deliverer) logChange(fields common, c admission.Change) {
	switch {
	case c.Opened:
		d.Log.Warn().EmbedObject(fields).Int(logs.Failures, c.Failures).
			Str(logs.Reason, string(fields.result.Reason)).Str(logs.Detail, fields.result.Detail).
			Msg("circuit breaker opened: messages for the target are rescheduled without a call, " +
				"except one at a time as a probe")
	case c.Closed:
		d.Log.Info().EmbedObject(fields).Int64(logs.Down, logs.Millis(c.Down)).
			Msg("circuit breaker closed: the target is up again")
	}
}

// MarshalZerologObject adds the fields that identify the message.
func (m *Message) MarshalZerologObject(event *zerolog.Event) {
	event.Str(logs.Function, m.Function).Str(logs.Queue, m.Queue).Str(logs.InvocationID, m.InvocationID)
	if m.ID != "" {
		event.Str(logs.MessageID, m.ID).Int64(logs.DequeueCount, m.DequeueCount)
	}
}

// common has the fields of every log line about a message.
type common struct {
	message *Message
	result  *Result
}

// MarshalZerologObject adds the fields.
func (c common) MarshalZerologObject(event *zerolog.Event) {
	event.EmbedObject(c.message)
	if e := c.result.Envelope; e != nil {
		event.Str(logs.RequestID, e.RequestID).Str(logs.TargetHost, e.Call.Target.Host).
			Str(logs.TraceID, e.Trace.ID).Str(logs.SpanID, e.Trace.SpanID)
		logText(event, logs.OriginalID, cut(e.OriginalRequestID))
		logText(event, logs.CorrelationID, cut(e.CorrelationID()))
	} else {
		logText(event, logs.RequestID, c.result.RequestID)
	}
	logText(event, logs.Organization, cut(c.result.Tenant.Organization))
	logText(event, logs.Environment, cut(c.result.Tenant.Environment))
}

// MarshalZerologObject adds the fields of the line `settled` that the other lines do not have.
func (r *Result) MarshalZerologObject(event *zerolog.Event) {
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
	logText(event, logs.Reschedule, string(r.Reschedule))
	logText(event, logs.Detail, r.Detail)
	logText(event, logs.RetryLimited, r.Limited)
	if r.Envelope != nil && r.Envelope.DeadlineLimited {
		event.Time(logs.DeadlineLimited, r.Envelope.Deadline)
	}
	logText(event, logs.LeftOut, r.LeftOut)
}

func logText(event *zerolog.Event, name, value string) {
	if value != "" {
		event.Str(name, value)
	}
}

// cut bounds a text that the sender can choose freely, for the log and the record.
func cut(text string) string { return text[:min(len(text), 128)] }
