// Package envelope reads and writes the content of messages: an HTTP call as data, the sender's wishes about its
// delivery, and its delivery state. It knows two formats, our own JSON (native) and that of Nexus Async Caller (nexus),
// and writes each envelope in the format in which it came. It guarantees that the call keeps its bytes, that unknown
// members survive, and that an accepted envelope always fits on the queue again.
package envelope

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/dotnet"
)

// Priorities is the number of priorities: they are 1 to 10.
const Priorities = 10

// QueueFor returns the name of the queue for a priority, or of the standard queue for 0.
func QueueFor(priority int) string {
	if priority == 0 {
		return "async-caller"
	}
	return fmt.Sprintf("async-caller-%d", priority)
}

// Queues returns the names of all queues of [QueueFor].
func Queues() []string {
	var names []string
	for priority := range Priorities + 1 {
		names = append(names, QueueFor(priority))
	}
	return names
}

// Envelope is a call to be delivered. Treat it as a value: the handler changes it only by [Envelope.Accept] and
// [Envelope.LimitDeadline]. Commands that write a message again also set its deadline, state and run.
type Envelope struct {
	// RequestID identifies the call over all its attempts: 1 to 128 visible ASCII characters. It is empty only
	// before Accept, if the sender gave none.
	RequestID string
	// OriginalRequestID is set on a callback: the id of the request that it reports on. It is empty if the format
	// does not say. It is not validated.
	OriginalRequestID string
	// Tenant is the owner of the call, if the format has one.
	Tenant Tenant
	Call   Call
	// Callback is the call that reports the outcome, or nil for none.
	Callback *Callback
	// Context is any JSON that the callback returns to the sender, or nil.
	Context json.RawMessage
	// Priority selects the sender's queue, 1 to 10; 0 means the standard queue.
	Priority int
	// NotBefore is the time before which no call is made, or zero.
	NotBefore time.Time
	// Deadline is the time after which we give up, or zero if the sender set none; see GiveUpAt. The year 1 is
	// zero, as in .NET, where it means never. DeadlineLimited says that LimitDeadline has moved it.
	Deadline        time.Time
	DeadlineLimited bool
	// Retry is the retry policy that the sender asks for, as JSON and unchecked, or nil.
	Retry json.RawMessage
	// GiveUp is the sender's choice of how to give up, or empty.
	GiveUp GiveUp
	// Run is the token of the run of a command that sent the message and waits for its outcome, or empty. Accept
	// removes it from an envelope that a person moved back.
	Run string
	// Trace is the trace of the call; Accept starts one if the sender did not. Its SpanID is set by Accept.
	Trace Trace
	// DeadLetter is set if the envelope was dead-lettered before and a person moved it back.
	DeadLetter *DeadLetter
	State

	// format is the format in which the envelope came; size is its length in bytes, and members the number of its
	// members.
	format        format
	size, members int
}

// Tenant is an organization and one of its environments. Both are the sender's text and not validated.
type Tenant struct{ Organization, Environment string }

// State is the delivery state. We write it; a new envelope has none.
type State struct {
	// Attempts is the number of calls made.
	Attempts int
	// CreatedAt is the sender's time of creation or, if it is missing or in the future, the time at which we first saw
	// the envelope.
	CreatedAt       time.Time
	LatestAttemptAt time.Time
	NextAttemptAt   time.Time
	// Expires is the time of giving up in our latest decision, or zero before the first. Only Nexus envelopes hold
	// it, because the C# side needs it.
	Expires time.Time
	// Ticket is the message's place in the line of a limit that refused its call (package limit), at most [MaxTicket];
	// 0 is none. Anyone could have written it.
	Ticket int64
	// Latest is the target's latest answer. It is nil if there was none, or if the format does not keep it.
	Latest *Answer
	// Trail is the history of attempts: the first few and the last few.
	Trail []Attempt
}

// MaxTicket is the largest ticket: the largest whole number that every JSON reader keeps.
const MaxTicket = 1<<53 - 1

// Call is the request to the target.
type Call struct {
	// URL is absolute, http or https, as it came. Target is the same URL, parsed, with its host in ASCII. The call goes
	// to Target; do not modify it.
	URL    string
	Target *url.URL
	Method string
	// Header has canonical names. It does not include Host. Spelling has the sender's spelling of the names.
	Header   http.Header
	Spelling dotnet.Spelling
	// Host replaces the URL's host in the request, unless empty.
	Host string
	Body Body
	// Timeout is the sender's limit, or 0 for the configured one.
	Timeout time.Duration
}

// HopByHop are the headers that concern only one connection (RFC 9110, 7.6.1), and Content-Length, which follows from
// the body. No call has them.
var HopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
}

// Callback is the call that reports the outcome.
type Callback struct {
	// URL is absolute, http or https.
	URL string
}

// DeadLetter says why the envelope needs a person.
type DeadLetter struct {
	At       time.Time `json:"at"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail,omitempty"`
	Queue    string    `json:"queue"`
	Attempts int       `json:"attempts"`
	// Answer is the target's latest answer; nil if there was none, or no room for it. DeadLettered sets it.
	Answer *Excerpt `json:"answer,omitempty"`
}

// GiveUp says how to give up an envelope without a callback.
type GiveUp string

// The values of GiveUp.
const (
	GiveUpDeadLetter GiveUp = "dead-letter" // write it to the poison queue, for a person
	GiveUpDrop       GiveUp = "drop"        // delete it
	GiveUpFault      GiveUp = "fault"       // answer 500: the host retries, then moves it to the poison queue
)

// Format is the name of a format.
type Format string

// The formats.
const (
	FormatNative Format = "native"
	FormatNexus  Format = "nexus"
)

// Format returns the format in which the envelope came and in which it is written.
func (e *Envelope) Format() Format { return e.format.name() }

// BeginsAt returns the time from which the delivery takes: the creation, or NotBefore if that is later.
func (e *Envelope) BeginsAt() time.Time { return bounds.Later(e.CreatedAt, e.NotBefore) }

// GiveUpAt returns the time after which no call is made: the sender's deadline, or else the expiration after CreatedAt
// or NotBefore, whichever is later.
func (e *Envelope) GiveUpAt(expiration time.Duration) time.Time {
	if !e.Deadline.IsZero() {
		return e.Deadline
	}
	return bounds.Earlier(endOfTime, e.BeginsAt().Add(expiration))
}

// maxNotBefore is how far after its creation the NotBefore of an envelope counts; a later one is a mistake.
const maxNotBefore = 366 * 24 * time.Hour

// LimitDeadline moves a later deadline to at most longest after CreatedAt or NotBefore, whichever is later. NotBefore
// counts only up to 366 days after CreatedAt, so that no envelope waits for ever. Successors state the new deadline.
// Call LimitDeadline after Accept.
func (e *Envelope) LimitDeadline(expiration, longest time.Duration) {
	notBefore := e.NotBefore
	if e.Format() == FormatNexus {
		notBefore = e.NextAttemptAt // a sender of this format has no other way to say it
	}
	latest := bounds.Later(e.CreatedAt, bounds.Earlier(notBefore, e.CreatedAt.Add(maxNotBefore))).Add(longest)
	if e.GiveUpAt(expiration).After(latest) {
		// In whole seconds its text is not longer than any other.
		e.Deadline, e.DeadlineLimited = latest.Truncate(time.Second), true
	}
}

// endOfTime is the last second that both formats, and Go's JSON, can write.
var endOfTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// DueAt returns the time before which no call may be made, or zero.
func (e *Envelope) DueAt() time.Time { return bounds.Later(e.NextAttemptAt, e.NotBefore) }

// StatusCode is the status of an answer; 0 means that there was none, and is null in JSON.
type StatusCode int

// MarshalJSON implements [json.Marshaler].
func (c StatusCode) MarshalJSON() ([]byte, error) {
	if c == 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(c), 10), nil
}

// LatestStatus returns the status of the target's latest answer that the state knows, or 0.
func (e *Envelope) LatestStatus() int {
	if e.Latest != nil {
		return e.Latest.Status
	}
	if i := latestAnswer(e.Trail); i >= 0 {
		return e.Trail[i].Status
	}
	return 0
}

// LatestAnswer returns the beginning of the target's latest answer, or nil: that of the dead letter or, in a Nexus
// envelope, of the latest response.
func (e *Envelope) LatestAnswer() *Excerpt {
	if e.DeadLetter != nil && e.DeadLetter.Answer != nil {
		return e.DeadLetter.Answer
	}
	return e.Latest.Excerpt()
}

// Accept prepares an envelope that has arrived. It sets the request id, the trace and the creation time if the sender
// did not, or if that time is in the future. It resets an envelope that a person moved back from a poison queue:
// attempt 0, a new deadline, no run. And it checks that every content that we may have to write later fits into limit
// bytes; if not, it returns a [*TooLargeError].
func (e *Envelope) Accept(now time.Time, messageID string, limit int) error {
	e.RequestID = cmp.Or(e.RequestID, messageID)
	e.trace(now, messageID)
	if e.DeadLetter != nil {
		e.DeadLetter, e.State, e.Deadline, e.Run = nil, State{}, time.Time{}, ""
	}
	if e.CreatedAt.IsZero() || e.CreatedAt.After(now) {
		e.CreatedAt = now
	}
	return e.checkRoom(limit)
}

const correlationHeader = "X-Correlation-Id"

// CorrelationID returns the call's header X-Correlation-ID, for the log. It is empty if there is none, or if it is not
// a valid id.
func (e *Envelope) CorrelationID() string {
	if ids := e.Call.Header[correlationHeader]; len(ids) > 0 && ValidRequestID(ids[0]) {
		return ids[0]
	}
	return ""
}

// Memory returns about how many bytes the envelope and the request of its call take beside its content. A sender
// can make them a multiple of it, by thousands of short headers or members.
func (e *Envelope) Memory() int {
	// Measured with go1.26, for maps and slices that have just grown.
	const ofMember, ofHeader, ofValue, ofInflater = 48, 200, 24, 52 << 10
	bytes := e.members * ofMember
	if e.Call.Body.isGzip {
		bytes += ofInflater
	}
	headers := []http.Header{e.Call.Header}
	if e.Latest != nil {
		headers = append(headers, e.Latest.Header)
	}
	for _, header := range headers {
		bytes += len(header) * ofHeader
		for _, values := range header {
			bytes += len(values) * ofValue
		}
	}
	return bytes
}

// Fingerprint returns the hash of what the sender chooses of a call: two envelopes have the same only if the target
// receives the same but for its trace, and so does the receiver of a callback but for the report. How the C# app spells
// a Nexus message anew does not count.
func (e *Envelope) Fingerprint() [sha256.Size]byte {
	sum := sha256.New()
	calls := []Call{e.Call}
	if e.Callback != nil {
		callback, _ := e.format.callbackCall() // it was parsed before
		calls = append(calls, callback)
	}
	for _, call := range calls {
		if e.Format() == FormatNexus {
			call = rewritten(call)
		}
		hashCall(sum, call)
	}
	return [sha256.Size]byte(sum.Sum(nil)) // a hash never fails
}

// hashCall hashes what the receiver of a call notices. It leaves out the trace, because a sender that repeats a call
// has a new span, and Content-Length, which follows from the body: the C# app adds it.
func hashCall(sum io.Writer, c Call) {
	_, _ = fmt.Fprintf(sum, "%q %q %q %d ", c.Method, c.URL, c.Host, c.Body.Len())
	_, _ = c.Body.WriteTo(sum)
	for _, name := range slices.Sorted(maps.Keys(c.Header)) {
		switch name {
		case HeaderTraceparent, HeaderTracestate, "Content-Length":
			continue
		}
		_, _ = fmt.Fprintf(sum, "%q %q ", name, c.Header[name])
	}
	_, _ = io.WriteString(sum, ".")
}

// WithState returns the envelope with another state.
func (e *Envelope) WithState(s State) *Envelope {
	next := *e
	next.State = s
	return &next
}
