package decision

import (
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/retry"
	"asynccaller/handler/internal/strictjson"
)

// Intake is the content of a message after it was opened: an accepted envelope with its retry policy, or the
// reason why the message is malformed.
type Intake struct {
	// Content is the message's content, unchanged. Limit is the size of the largest content that its queue
	// accepts, in bytes.
	Content []byte
	Limit   int
	// Received is the envelope as the content states it; nil if the content is not an envelope.
	Received *envelope.Envelope
	// Envelope is the envelope after [envelope.Envelope.Accept]; nil if it cannot be accepted.
	Envelope *envelope.Envelope
	// Policy is the policy by which the envelope is retried.
	Policy retry.Policy
	// Malformed says why the message can never be delivered; nil if it can. If only the retry policy is
	// wrong, Envelope is set nevertheless.
	Malformed error
	// Tenant and RequestID are the sender's, as far as they can be read. RequestID is empty if the sender
	// gave none.
	Tenant    envelope.Tenant
	RequestID string
}

// Open reads a message's content as it arrives. MessageID identifies the call if the envelope has no request
// id; limit is the size of the largest content that the queue accepts, in bytes.
func (r Rules) Open(content []byte, messageID string, limit int, now time.Time) Intake {
	in := Intake{Content: content, Limit: limit}
	e, err := envelope.Parse(content)
	if err != nil {
		in.Malformed = err
		in.Tenant, in.RequestID = envelope.Identify(content)
		return in
	}
	received := *e
	in.Received, in.Tenant, in.RequestID = &received, e.Tenant, e.RequestID
	if in.Malformed = e.Accept(now, messageID, limit); in.Malformed != nil {
		return in
	}
	in.Envelope = e
	in.Policy, in.Malformed = r.PolicyFor(e)
	return in
}

// PolicyFor returns the policy by which an envelope is retried. Its error makes the envelope malformed.
func (r Rules) PolicyFor(e *envelope.Envelope) (retry.Policy, error) {
	if e.Retry == nil {
		return r.Retry, nil
	}
	policy, err := r.Policies.Parse(e.Retry)
	if err != nil {
		return retry.Policy{}, strictjson.In("retry", err)
	}
	return policy.Within(r.Limits), nil
}
