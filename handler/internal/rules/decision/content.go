package decision

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// Intake is the content of a message after it was opened: an accepted envelope with its retry policy, or the
// reason why the message is malformed.
type Intake struct {
	// Content is the message's content, unchanged. Limit is the size of the largest content that its queue
	// accepts, in bytes.
	Content []byte
	Limit   int
	// Successors is the queue for what replaces the message; empty means its own. NoRoom says that Content is that of
	// a route, and that its envelope is larger than a message. It is rescheduled in place, and its attempts are the
	// host's deliveries.
	Successors string
	NoRoom     bool
	// Received is the envelope with the state, the run and the dead letter that the content states, which Accept
	// removes from one that a person moved back; nil if the content is not an envelope.
	Received *envelope.Envelope
	// Envelope is the envelope after [envelope.Envelope.Accept]; nil if it cannot be accepted.
	Envelope *envelope.Envelope
	// Moved is the call of Envelope as it is made at another host; nil if its target has not moved. Refused says why it
	// must not be made; empty if it may.
	Moved   *envelope.Call
	Refused string
	// Profile is what the operator says about the host that is called.
	Profile targets.Profile
	// Policy is the policy by which the envelope is retried.
	Policy retry.Policy
	// Malformed says why the message can never be delivered; nil if it can. Envelope is set nevertheless if only the
	// retry policy is invalid.
	Malformed error
	// Tenant and RequestID are the sender's, as far as they can be read. RequestID is empty if the sender
	// gave none.
	Tenant    envelope.Tenant
	RequestID string
}

// Identity is what identifies an envelope in the log.
type Identity struct {
	RequestID, OriginalRequestID, CorrelationID string
	// TargetHost is the host of the call in the form of [targets.Host], and MovedTo that of the one that is called
	// instead; empty if it has not moved.
	TargetHost, MovedTo string
	Trace               envelope.Trace
}

// CalledHost returns the host that is called.
func (i *Identity) CalledHost() string { return cmp.Or(i.MovedTo, i.TargetHost) }

// Identity returns what identifies the envelope; nil if it cannot be accepted.
func (in *Intake) Identity() *Identity {
	e := in.Envelope
	if e == nil {
		return nil
	}
	return &Identity{
		RequestID: e.RequestID, OriginalRequestID: e.OriginalRequestID, CorrelationID: e.CorrelationID(),
		TargetHost: targets.Host(e.Call.Target), MovedTo: in.MovedTo(), Trace: e.Trace,
	}
}

// Call returns the call of the envelope as it is made.
func (in *Intake) Call() *envelope.Call { return cmp.Or(in.Moved, &in.Envelope.Call) }

// MovedTo returns the host that is called in the place of the target's, in the form of [targets.Host]; empty if the
// target has not moved.
func (in *Intake) MovedTo() string {
	if in.Moved == nil {
		return ""
	}
	return targets.Host(in.Moved.Target)
}

// Open reads a message's content as it arrives. MessageID identifies the call if the envelope has no request
// id; limit is the size of the largest content that the queue accepts, in bytes.
func (r Rules) Open(content []byte, messageID string, limit int, now time.Time) Intake {
	in := r.OpenUnchecked(content, messageID, limit, now)
	in.CheckBody()
	return in
}

// CheckBody checks the body of the envelope, see [envelope.Envelope.CheckBody]. A message whose body is wrong is
// malformed, as any content that is no envelope.
func (in *Intake) CheckBody() {
	if in.Received == nil {
		return
	}
	if err := in.Received.CheckBody(); err != nil {
		*in = Intake{
			Content: in.Content, Limit: in.Limit, Successors: in.Successors, Malformed: err,
			Tenant: in.Tenant, RequestID: in.RequestID,
		}
	}
}

// OpenUnchecked is Open without [Intake.CheckBody], which must follow before anything reads the body.
func (r Rules) OpenUnchecked(content []byte, messageID string, limit int, now time.Time) Intake {
	in := Intake{Content: content, Limit: limit}
	e, err := envelope.ParseUnchecked(content)
	if err != nil {
		in.Malformed = err
		in.Tenant, in.RequestID = envelope.Identify(content)
		return in
	}
	in.Received, in.Tenant, in.RequestID = e, e.Tenant, e.RequestID
	if e.DeadLetter != nil {
		received := *e
		in.Received = &received
	}
	in.Malformed = e.Accept(now, messageID, limit)
	if in.Malformed != nil {
		return in
	}
	in.Envelope = e
	if r.MaxDeadline > 0 {
		e.LimitDeadline(r.Expiration, r.MaxDeadline)
	}
	in.Moved, in.Refused = r.Profiles.Moved(e.Call)
	in.Profile = r.Profiles.For(in.Call().Target)
	in.Policy, in.Malformed = r.PolicyFor(e, in.Profile.Retry)
	return in
}

// maxRoutedBytes is more than the envelope of any routed message has.
const maxRoutedBytes = 1 << 20

// OpenRouted reads a message on the queue of a route. Its envelope has the body as gzip if it would be larger than a
// message otherwise. DequeueCount is how often the host has received the message; 0 if that is not known.
func (r Rules) OpenRouted(to route.Route, a route.Arrival, dequeueCount int64, limit int, now time.Time) Intake {
	content := to.Envelope(a)
	in := r.OpenUnchecked(content, a.MessageID, limit, now)
	if compressed, ok := envelope.Compress(content, in.Malformed); ok {
		in = r.OpenUnchecked(compressed, a.MessageID, limit, now)
	}
	if _, isTooLarge := errors.AsType[*envelope.TooLargeError](in.Malformed); isTooLarge {
		a.Attempts = int(max(dequeueCount-1, 0)) // it has nowhere else to count
		in = r.OpenUnchecked(to.Envelope(a), a.MessageID, maxRoutedBytes, now)
		in.NoRoom = true
	}
	in.Content, in.Limit, in.Successors = a.Content, limit, to.Successors
	return in
}

// PolicyFor returns the policy by which an envelope is retried, whose target has one of its own unless that is nil. Its
// error makes the envelope malformed.
func (r Rules) PolicyFor(e *envelope.Envelope, own *retry.Policy) (retry.Policy, error) {
	if e.Retry == nil {
		if own == nil {
			return r.Retry, nil
		}
		// The other limits are for what senders ask for. They do not apply to the operator's policies.
		return own.Within(retry.Limits{MinDelay: r.Limits.MinDelay}), nil
	}
	policy, err := r.Policies.Parse(e.Retry)
	if err != nil {
		return retry.Policy{}, strictjson.In("retry", err)
	}
	return policy.Within(r.Limits), nil
}

// Write is the message that must be on a queue before the host may delete the original. Only the actions
// Reschedule, Callback, DeadLetter, Hold and Release write one; for the other actions all fields but Action are zero.
type Write struct {
	Action Action
	// Queue is the name of the queue to write to.
	Queue   string
	Content []byte
	// Delay is how long the message stays invisible.
	Delay time.Duration
	// InPlace says that Content is the original's, which should only become due again; with Hold, nothing else may be
	// written.
	InPlace bool
	// LeftOut names the parts of the envelope that had no room; empty if it was written in full.
	LeftOut string
	// Problem says why the message cannot be written; the host must then keep the original.
	Problem error
}

// Compose returns the message that settling a decision writes. The name is that of the original's queue.
func (r Rules) Compose(in Intake, d Decision, name string, now time.Time) Write {
	w := Write{Action: d.Action}
	var content envelope.Content
	switch d.Action {
	case Reschedule:
		w.Queue, w.Delay = cmp.Or(in.Successors, name), d.Delay
		if in.NoRoom {
			w.Queue, w.Content, w.InPlace = name, in.Content, true
			return w
		}
		content, w.Problem = in.Envelope.WithState(d.State).Successor(in.Limit)
	case Callback:
		w.Queue = cmp.Or(in.Successors, name)
		content, w.Problem = in.Envelope.CallbackWith(r.Report(d, now), in.Limit)
	case DeadLetter:
		w.Queue, content, w.Problem = in.deadLetter(d, name, now)
	case Hold, Release:
		w.Queue, w.Delay, w.Content = name, d.Delay, in.Content
		return w
	case Finish, Drop, Fault:
	case Call:
		w.Problem = fmt.Errorf("%s does not end a message", Call)
	}
	w.Content, w.LeftOut = content.Bytes, content.LeftOut
	return w
}

// deadLetter returns the name of the poison queue and the envelope with the reason, or the original content if
// there is no envelope, or no room for it.
func (in Intake) deadLetter(
	d Decision, name string, now time.Time,
) (poison string, content envelope.Content, err error) {
	isOriginal := in.Envelope == nil || in.NoRoom
	if !isOriginal {
		name = cmp.Or(in.Successors, name)
	}
	poison, ok := storage.PoisonName(name)
	switch {
	case !ok:
		return poison, content, fmt.Errorf("there is no poison queue for %q", name)
	case isOriginal:
		return poison, envelope.Content{Bytes: in.Content}, nil
	}
	letter := envelope.DeadLetter{
		At:     now.UTC().Truncate(time.Millisecond),
		Reason: string(d.Reason), Detail: d.Detail, Queue: name, Attempts: d.State.Attempts,
	}
	content, err = in.Envelope.WithState(d.State).DeadLettered(letter, in.Limit)
	return poison, content, err
}

// Report returns the callback's report to the sender: the latest response, or 504 if there was none.
func (r Rules) Report(d Decision, now time.Time) envelope.Report {
	report := envelope.Report{
		Status:   cmp.Or(d.Status, http.StatusGatewayTimeout),
		Attempts: d.State.Attempts,
		Reason:   string(d.Reason),
		At:       now,
		Deadline: now.Add(r.Expiration),
	}
	if latest := d.State.Latest; latest != nil {
		payload, whole := latest.Text()
		report.Payload, report.MediaType, report.Truncated = payload, latest.MediaType(), !whole
	}
	return report
}
