package envelope

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
)

// The headers of W3C Trace Context, with canonical names. They are sent in lower case.
const (
	HeaderTraceparent = "Traceparent"
	HeaderTracestate  = "Tracestate"
)

// Trace is the W3C Trace Context of a call. Its id is the same in all attempts, in the callback and in the dead letter.
type Trace struct {
	// ID and SpanID are in lower-case hexadecimal. Each delivery of a message is a span of its own.
	ID, SpanID string
	// Parent is the span of the sender.
	Parent string
	Flags  byte
	// State is the tracestate, at most 512 bytes, or empty.
	State string
}

// Traceparent returns the header for what this delivery sends.
func (t Trace) Traceparent() string { return t.traceparent(t.SpanID) }

func (t Trace) traceparent(span string) string {
	return "00-" + t.ID + "-" + span + "-" + hex.EncodeToString([]byte{t.Flags})
}

const (
	maxTracestate = 512
	maxEntries    = 32
	traceSampled  = 1
	// traceFlags are the flags that are defined; all others must be 0.
	traceFlags = 3
)

var (
	traceparents = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)
	// The specification allows empty entries.
	tracestates = regexp.MustCompile(`^([ \t,]*` +
		`[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]` + `[ \t]*(,|$))+[ \t,]*$`)
)

// ParseTrace reads the two headers. It returns false if the traceparent is invalid. An invalid tracestate is left out.
func ParseTrace(traceparent, tracestate string) (Trace, bool) {
	parts := traceparents.FindStringSubmatch(traceparent)
	if parts == nil {
		return Trace{}, false
	}
	version, id, parent, rest := parts[1], parts[2], parts[3], parts[5]
	validVersion := version != "ff" && (version != "00" || rest == "")
	if !validVersion || strings.Trim(id, "0") == "" || strings.Trim(parent, "0") == "" {
		return Trace{}, false
	}
	flags, _ := strconv.ParseUint(parts[4], 16, 8) // it is two digits
	t := Trace{ID: id, Parent: parent, Flags: byte(flags) & traceFlags}
	if version != "00" {
		t.Flags &= traceSampled // the only flag that later versions must keep
	}
	if validTracestate(tracestate) {
		t.State = tracestate
	}
	return t, true
}

func validTracestate(text string) bool {
	return len(text) <= maxTracestate && strings.Count(text, "=") <= maxEntries && tracestates.MatchString(text)
}

// parseTrace reads the member trace. Like the headers, it must never prevent a call.
func parseTrace(value json.RawMessage) Trace {
	text := func(name string) string {
		text, _ := strictjson.String(orNull(strictjson.ExactNames.Get(value, name)))
		return text
	}
	t, _ := ParseTrace(text(traceparentName), text(tracestateName))
	return t
}

// The member trace of a native envelope, and its members. They have the names of the headers.
const (
	traceName       = "trace"
	traceparentName = "traceparent"
	tracestateName  = "tracestate"
)

// write writes the member trace with this span as the parent of the receiver's. It leaves out a trace without an id.
func (t Trace) write(w *object, span string) {
	if t.ID == "" {
		return
	}
	inner := newObject()
	inner.text(traceparentName, t.traceparent(span))
	if t.State != "" {
		inner.text(tracestateName, t.State)
	}
	w.raw(traceName, inner.end())
}

// trace sets the trace: that of the envelope, or of the headers of the call, or else a new one. A new one follows from
// what identifies the call, so that a message that is delivered again before it is settled, or twice, has the same.
func (e *Envelope) trace(now time.Time, messageID string) {
	if e.Trace.ID == "" {
		if parents := e.Call.Header[HeaderTraceparent]; len(parents) == 1 {
			e.Trace, _ = ParseTrace(parents[0], strings.Join(e.Call.Header[HeaderTracestate], ","))
		}
	}
	if e.Trace.ID == "" {
		sum := digest(e.format.traceKey(e, messageID)...)
		e.Trace = Trace{ID: sum[:32], Parent: sum[32:48], Flags: traceSampled}
	}
	e.Trace.SpanID = digest(e.Trace.ID, messageID, strconv.FormatInt(now.UnixNano(), 10))[:16]
}

// digest returns a hash of texts in hexadecimal. Quotes keep different texts apart. It must stay as it is: calls that
// wait during an upgrade, and instances of several versions, would otherwise have other traces.
func digest(texts ...string) string {
	joined := append(make([]byte, 0, 256), '[') // enough for most texts, and on the stack
	for i, text := range texts {
		if i > 0 {
			joined = append(joined, ' ')
		}
		joined = strconv.AppendQuote(joined, text)
	}
	sum := sha256.Sum256(append(joined, ']'))
	var digits [2 * sha256.Size]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:])
}

// traceKey returns the request id, and the creation time or the id of the first message, because a sender may use a
// request id again.
func (*native) traceKey(e *Envelope, messageID string) []string {
	if e.CreatedAt.IsZero() {
		return []string{e.RequestID, messageID}
	}
	return []string{e.RequestID, e.CreatedAt.UTC().Format(time.RFC3339Nano)}
}

// traceKey returns what a callback has in common with its call, because the format has no place for a trace.
func (n *nexus) traceKey(e *Envelope, _ string) []string {
	return []string{e.Tenant.Organization, e.Tenant.Environment, cmp.Or(n.originalRequestID, e.RequestID)}
}
