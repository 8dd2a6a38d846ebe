// Package envelope is the content of a message: an HTTP call as data, what the sender wants done about
// it, and what has become of it so far. It reads and writes two formats, our own JSON (native) and that
// of Nexus Async Caller (nexus), each envelope in the one it came in, and keeps three promises about
// them: the call stays as it came, byte for byte; members that we do not know are kept; and whatever was
// accepted always fits on the queue again.
package envelope

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"asynccaller/handler/internal/retry"
)

// Envelope is a call to be delivered. Treat it as a value: nothing here changes it but [Envelope.Accept].
type Envelope struct {
	// RequestID names the call over every retry: 1 to 128 visible ASCII characters. It is empty only
	// before Accept, when the sender gave none.
	RequestID string
	// OriginalRequestID is, on a callback, the id of the request that it reports about. It is empty
	// where the format does not say, and not checked at all.
	OriginalRequestID string
	// Tenant is whose call it is, as far as the format says.
	Tenant Tenant
	Call   Call
	// Callback is the call that reports the outcome, or nil when nobody wants to know.
	Callback *Callback
	// Context is any JSON that is handed back in the callback, or nil.
	Context json.RawMessage
	// Priority tells the sender's queue, 1 to 10; 0 means the standard queue.
	Priority int
	// NotBefore is the moment before which no call is made, or zero.
	NotBefore time.Time
	// Deadline is the moment after which we give up, or zero when the sender set none; see GiveUpAt. The
	// year 1 is zero, as in .NET, where it means never.
	Deadline time.Time
	// Retry is the policy that the sender asks for, or nil. RetryProblem is what is wrong with it: the
	// call cannot be made, but all else is known, so that the dead letter can say why it is one.
	Retry        *retry.Spec
	RetryProblem error
	// GiveUp is what the sender wants when we give up, or empty.
	GiveUp GiveUp
	// DeadLetter is present when the envelope was given up before and a person moved it back.
	DeadLetter *DeadLetter
	State

	// format is what the envelope came in and is written in; size is its length in bytes.
	format format
	size   int
}

// Tenant is an organization and one of its environments. Both are the sender's text, unchecked.
type Tenant struct{ Organization, Environment string }

// State is what has become of the call so far. We write it; a new envelope has none.
type State struct {
	// Attempts is the number of calls made.
	Attempts int
	// CreatedAt is when the envelope was made or, if the sender did not say, first seen by us.
	CreatedAt       time.Time
	LatestAttemptAt time.Time
	NextAttemptAt   time.Time
	// Expires is the moment at which the call is given up, as last decided; zero before. It is for a
	// format whose other readers must be told.
	Expires time.Time
	// Latest is the target's latest answer, nil when there was none or the format does not keep it.
	Latest *Answer
	// Trail is the history of attempts: the first and the last few.
	Trail []Attempt
}

// Call is the request to the target.
type Call struct {
	// URL is absolute, http or https. Target is the same in parts; nobody may change it.
	URL    string
	Target *url.URL
	Method string
	// Header has canonical names. Host is not among them.
	Header http.Header
	// Host replaces the URL's host in the request, unless empty.
	Host string
	// Body is nil when the call has none.
	Body []byte
	// Timeout is what the sender allows, or 0 for the configured time.
	Timeout time.Duration
}

// Callback says where and how the outcome is to be reported.
type Callback struct {
	// URL is absolute, http or https.
	URL string
}

// DeadLetter says why a person has to look at the envelope.
type DeadLetter struct {
	At       time.Time `json:"at"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail,omitempty"`
	Queue    string    `json:"queue"`
	Attempts int       `json:"attempts"`
}

// GiveUp is what happens to an envelope that is given up when there is no callback.
type GiveUp string

// The ways to give up.
const (
	GiveUpDeadLetter GiveUp = "dead-letter" // write it to the poison queue for a person
	GiveUpDrop       GiveUp = "drop"        // delete it
	GiveUpFault      GiveUp = "fault"       // answer 500: the host's dequeue count and poison queue take it
)

// ParseGiveUp reads one of the ways to give up.
func ParseGiveUp(text string) (GiveUp, bool) {
	switch g := GiveUp(text); g {
	case GiveUpDeadLetter, GiveUpDrop, GiveUpFault:
		return g, true
	}
	return "", false
}

// Format is the name of one of the formats.
type Format string

// The formats.
const (
	FormatNative Format = "native"
	FormatNexus  Format = "nexus"
)

// Format is what the envelope came in and is written in.
func (e *Envelope) Format() Format {
	if _, ok := e.format.(*nexus); ok {
		return FormatNexus
	}
	return FormatNative
}

// GiveUpAt is the moment after which no call is made: the sender's deadline, or else the expiration
// counted from when the envelope was created, or from notBefore if that is later.
func (e *Envelope) GiveUpAt(expiration time.Duration) time.Time {
	if !e.Deadline.IsZero() {
		return e.Deadline
	}
	from := e.CreatedAt
	if e.NotBefore.After(from) {
		from = e.NotBefore
	}
	if at := from.Add(expiration); at.Before(endOfTime) {
		return at
	}
	return endOfTime
}

// endOfTime is the last second that both formats, and Go's JSON, can write.
var endOfTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// DueAt is the moment before which no call may be made, or zero.
func (e *Envelope) DueAt() time.Time {
	if e.NotBefore.After(e.NextAttemptAt) {
		return e.NotBefore
	}
	return e.NextAttemptAt
}

// LatestStatus is the target's most recent answer as far as the state tells, or 0.
func (e *Envelope) LatestStatus() int {
	if e.Latest != nil {
		return e.Latest.Status
	}
	for _, attempt := range slices.Backward(e.Trail) {
		if attempt.Status != 0 {
			return attempt.Status
		}
	}
	return 0
}

// Accept takes an envelope in at its arrival: it fills in what the sender left to us, starts an
// envelope again that a person moved back (attempt 0, a new deadline), and makes sure that it can be
// written again within limit bytes, whatever becomes of it. Its error is a [*TooLargeError].
func (e *Envelope) Accept(now time.Time, messageID string, limit int) error {
	if e.RequestID == "" {
		e.RequestID = messageID
	}
	if e.DeadLetter != nil {
		e.DeadLetter = nil
		e.State = State{}
		e.Deadline = time.Time{}
	}
	if e.CreatedAt.IsZero() {
		e.CreatedAt = now
	}
	return e.format.checkRoom(e, limit)
}

// CorrelationID is the one that the call carries in its header X-Correlation-ID, for the log; empty when
// it has none, or one that is no id.
func (e *Envelope) CorrelationID() string {
	if ids := e.Call.Header["X-Correlation-Id"]; len(ids) > 0 && ValidRequestID(ids[0]) {
		return ids[0]
	}
	return ""
}

// WithState returns the envelope with another state.
func (e *Envelope) WithState(s State) *Envelope {
	next := *e
	next.State = s
	return &next
}
