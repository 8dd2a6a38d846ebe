// Package message describes poison messages: what a message is and why it is on the poison queue, which messages a
// filter selects, and how messages group. It is pure.
//
// Every byte of a message may come from an attacker. A [Message] is therefore printable and bounded, and never holds
// the call's body, a header's value, a query string or user info.
package message

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// The reasons of messages that carry no reason. All other reasons come from the dead letter, see decision.Reason.
const (
	// Undecodable means that the text is not base64, so that the host could not deliver it and moved it.
	Undecodable = "undecodable"
	// Malformed means that the content is not an envelope, or one that can never be delivered. The handler writes the
	// same reason to a dead letter if only the retry policy is wrong.
	Malformed = string(decision.Malformed)
	// HostGaveUp means a valid envelope without a recorded failure. The host moved it after maxDequeueCount deliveries.
	HostGaveUp = "host_gave_up"
	// Raw means the content of a call of a route, of which nothing says why it is there.
	Raw = "raw"
	// Unknown means a dead letter without a reason.
	Unknown = "unknown"
	// Waiting is said of a message on a queue that a function may read: nothing has failed, as far as is known.
	Waiting = "waiting"
)

// The limits of texts that a sender may have written, in bytes.
const (
	maxReason = 64
	maxDetail = 300
	maxError  = 100
	maxTenant = 128
	maxHost   = 260 // the longest name in DNS, and a port
	maxMethod = 32
	maxPath   = 512
)

// Message describes a message on a poison queue. `--json` prints it, and an export contains it. Its texts are printable
// and bounded, and do not share memory with the message, so that a caller can keep many.
type Message struct {
	// Queue is the poison queue. ID is the message's id there.
	Queue      string    `json:"queue"`
	ID         string    `json:"id"`
	InsertedAt time.Time `json:"insertedAt"`
	// ExpiresAt is when storage deletes the message; zero means never. Messages that the host moved expire after 7
	// days.
	ExpiresAt    time.Time `json:"expiresAt"`
	DequeueCount int64     `json:"dequeueCount"`
	// Main is the queue that the message came from: the queue of the dead letter if that is a valid main queue,
	// otherwise Queue without the suffix.
	Main string `json:"main"`
	// Reason is one of the constants, or the reason of the dead letter. Detail explains it in at most 300 bytes.
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
	// Since is when the handler gave up, or InsertedAt if no credible time is known.
	Since time.Time `json:"since"`
	// Raw says that the content is that of a call of a route, and no envelope, whatever it looks like.
	Raw bool `json:"raw,omitempty"`
	// Format is empty if the content is not an envelope. It is set if the text itself is an envelope without base64.
	Format envelope.Format `json:"format,omitempty"`
	// RequestID is the sender's, or empty. For a malformed message it is a guess.
	RequestID    string `json:"requestId"`
	Organization string `json:"organization,omitempty"`
	Environment  string `json:"environment,omitempty"`
	// Attempts is the number of calls made. Status is the latest answer; 0 means none. Error is the short error of the
	// latest attempt if that had no answer.
	Attempts int                 `json:"attempts"`
	Status   envelope.StatusCode `json:"status"`
	Error    string              `json:"error,omitempty"`
	// Cause says in a few words why a scheduled message waits, without an attempt of its own why its target fails.
	Cause string `json:"cause,omitempty"`
	// Method, Host, Path and PathPattern describe the call; empty if there is no envelope. Host is in the form of
	// [targets.Host]. Path is escaped as in the URL and has at most 512 bytes; an empty path is "/". PathPattern is the
	// path without ids and numbers, see [fold.Path].
	Method string `json:"method,omitempty"`
	Host   string `json:"host"`
	// MovedTo is the host that is called instead; empty if the target has not moved.
	MovedTo     string `json:"movedTo,omitempty"`
	Path        string `json:"path,omitempty"`
	PathPattern string `json:"pathPattern,omitempty"`
	// Answer is the first line of the target's latest answer with its secrets masked and without the parts that differ
	// from message to message; empty if no answer is known. Masking finds only secrets with a name, so lists do not
	// print it.
	Answer string `json:"-"`
	// Bytes is the size of the decoded content, or of the text if it cannot be decoded; 0 if it was not
	// read.
	Bytes int `json:"bytes,omitempty"`
}

// Rules are the rules of the handler that decide whether a message can be delivered.
type Rules struct {
	// Encoding is the encoding on the queue; empty means base64.
	Encoding storage.Encoding
	Decision decision.Rules
	// Routed are the queues of routes: their messages, and those on their poison queues, are contents of calls.
	Routed []string
	// Guard say which targets may be called. [Read] does not use them.
	Guard guard.Rules
}

// IsRaw reports whether the messages on a queue are contents of the calls of a route. It is true for the route's queue
// and its poison queue.
func (r Rules) IsRaw(queueName string) bool {
	return slices.Contains(r.Routed, strings.TrimSuffix(queueName, storage.PoisonSuffix))
}

// CheckRaw returns why messages must not get from one queue to another: on a queue of a route they are contents, and on
// any other queue they are read as envelopes, which choose their calls themselves.
func (r Rules) CheckRaw(isRaw bool, to string) error {
	switch {
	case isRaw && !r.IsRaw(to):
		return fmt.Errorf("the message is the content of a call of a route: on %s it would be read as an envelope, "+
			"so that its sender could choose the call", to)
	case !isRaw && r.IsRaw(to):
		return fmt.Errorf("%s has a route: the target would receive the whole message as the content of a call", to)
	}
	return nil
}

// Content returns the decoded content of a message's text, or the text itself if it cannot be decoded.
func (r Rules) Content(text string) []byte {
	content, err := r.Encoding.Decode(text)
	if err != nil {
		return []byte(text)
	}
	return content
}

// Open opens the content of a message that a handler has accepted. It limits no deadline: the handler applies the
// limit of its own environment, and has stated the result in the content.
func (r Rules) Open(content []byte, messageID string, now time.Time) decision.Intake {
	rules := r.Decision
	rules.MaxDeadline = 0
	return rules.Open(content, messageID, r.Encoding.MaxContentBytes(), now)
}

// Read describes a message on the named poison queue, whatever it contains. It trusts the name of the queue and the
// properties that storage gives.
func Read(r Rules, queueName string, m storage.Message) Message {
	content := r.Content(m.Text)
	about := Message{
		Queue: queueName, ID: m.ID, Main: strings.TrimSuffix(queueName, storage.PoisonSuffix),
		DequeueCount: m.DequeueCount,
		InsertedAt:   m.InsertedAt.UTC(), Since: m.InsertedAt.UTC(), Bytes: len(content), Raw: r.IsRaw(queueName),
	}
	if m.Expires() {
		about.ExpiresAt = m.ExpiresAt.UTC()
	}
	_, undecodable := r.Encoding.Decode(m.Text)
	var in decision.Intake
	if !about.Raw {
		// The delivery is judged at the time of insertion, because its own time is unknown.
		in = r.Open(content, m.ID, m.InsertedAt)
		about.RequestID = text.Line(in.RequestID, maxTenant)
		about.Organization = text.Line(in.Tenant.Organization, maxTenant)
		about.Environment = text.Line(in.Tenant.Environment, maxTenant)
	}
	e := in.Received
	if e != nil {
		about.describe(e)
		about.MovedTo = in.MovedTo()
	}
	switch {
	case undecodable != nil:
		detail := undecodable.Error()
		wrapped, isWrapped := errors.AsType[*envelope.WrappedError](in.Malformed)
		switch {
		case e != nil:
			detail += "; the text is an envelope: calls retry --fix-encoding fixes it"
		case isWrapped: // short, because a list shows only the ends of a long text
			detail = fmt.Sprintf("not base64, but an envelope in %s", wrapped.Wrapping)
		}
		about.setReason(Undecodable, detail)
	case about.Raw:
		about.setReason(Raw, whyRaw)
	case e == nil:
		about.setReason(Malformed, in.Malformed.Error())
	case e.DeadLetter != nil:
		about.applyDeadLetter(*e.DeadLetter)
	default:
		about.setReason(r.whyUnrecorded(in, m))
	}
	return about
}

// ReadWaiting is like [Read] for a queue that is no poison queue. The app may have the message in hand, so it is
// [Waiting] unless the host can never deliver it or it is malformed.
func ReadWaiting(r Rules, queueName string, m storage.Message) Message {
	about := Read(r, queueName, m)
	if about.Reason != Undecodable && about.Reason != Malformed {
		about.Reason, about.Detail, about.Since = Waiting, "", about.InsertedAt
	}
	return about
}

// CalledHost returns the host that is called; empty if there is no envelope.
func (m *Message) CalledHost() string { return cmp.Or(m.MovedTo, m.Host) }

// describe adds the fields that come from the envelope.
func (m *Message) describe(e *envelope.Envelope) {
	m.Format, m.Attempts, m.Status = e.Format(), e.Attempts, envelope.StatusCode(e.LatestStatus())
	if n := len(e.Trail); n > 0 {
		m.Error = text.Line(e.Trail[n-1].Error, maxError)
	}
	m.Answer = record.AnswerKey(e.LatestAnswer())
	m.Host = targets.Host(e.Call.Target)
	m.describePath(e)
}

// describePath adds the method and the path of the call.
func (m *Message) describePath(e *envelope.Envelope) {
	path := cmp.Or(e.Call.Target.EscapedPath(), "/")
	m.Method, m.Path, m.PathPattern = text.Line(e.Call.Method, maxMethod), text.Line(path, maxPath), fold.Path(path)
}

// applyDeadLetter adds the fields that come from the dead letter. Any sender can have written it, so it ignores
// impossible values.
func (m *Message) applyDeadLetter(d envelope.DeadLetter) {
	m.setReason(cmp.Or(d.Reason, Unknown), d.Detail)
	if _, ok := storage.PoisonName(d.Queue); ok {
		m.Main = strings.Clone(d.Queue)
	}
	if d.At.Unix() > 0 && !d.At.After(m.InsertedAt.Add(storage.ClockMaximum)) {
		m.Since = d.At.UTC()
	}
	if m.Attempts == 0 {
		m.Attempts = max(d.Attempts, 0)
	}
}

func (m *Message) setReason(reason, detail string) {
	m.Reason, m.Detail = text.Line(reason, maxReason), text.Line(withoutReason(reason, detail), maxDetail)
}

// withoutReason returns a detail without the reason that it begins with, as in the dead letters of earlier versions.
func withoutReason(reason, detail string) string {
	if detail == reason {
		return ""
	}
	return strings.TrimPrefix(detail, reason+": ")
}

const (
	gaveUp  = "no failure was recorded: the handler crashed, timed out or could not reach storage"
	faulted = "giveUp is fault: the handler answered 500 on purpose, or it crashed or timed out"
	tooLate = "; the deadline had passed"
	whyRaw  = "the host gave up, or its envelope has no room in a message: the log of that time says why"
)

// whyUnrecorded returns the reason for an envelope that carries none.
func (r Rules) whyUnrecorded(in decision.Intake, m storage.Message) (reason, detail string) {
	if in.Malformed != nil { // the handler left an envelope that is too large as it came
		return Malformed, in.Malformed.Error()
	}
	e := in.Envelope
	giveUp := r.Decision.GiveUp
	if in.Policy.GiveUp == envelope.GiveUpFault {
		giveUp = envelope.GiveUpFault
	}
	detail = gaveUp
	// With a callback, the handler reports to the sender and does not use giveUp.
	if e.Callback == nil && cmp.Or(e.GiveUp, giveUp) == envelope.GiveUpFault {
		detail = faulted
	}
	if e.GiveUpAt(r.Decision.Expiration).Before(m.InsertedAt) {
		detail += tooLate
	}
	return HostGaveUp, detail
}
