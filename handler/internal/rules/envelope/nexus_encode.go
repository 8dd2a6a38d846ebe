package envelope

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/dotnet"
)

// The levels of a Nexus envelope. Each leaves out what the levels before it leave out, and more.
const (
	responseCut  level = iota + 1 // the latest response's body is cut to the available room
	noNexusTrail                  // of the latest response's headers, only those stay that are needed to read its body
	essential                     // times are in whole seconds, and a dead letter states only its reason
)

// nexusLevels says what each level leaves out.
var nexusLevels = []string{
	responseCut:  "the end of the latest response",
	noNexusTrail: "the end and headers of the latest response, trail and run",
	essential:    "the latest response, trail, run and unknown members",
}

// roomForNexus is the space that a message with a cut response leaves free, so that the C# side can write the message
// again with its own state.
const roomForNexus = 256

func (n *nexus) levels() (all, answered []string) {
	// A dead letter holds a response twice: as the latest response, whose end is left out first, and as the answer.
	return nexusLevels, nexusLevels[:noNexusTrail]
}

func (n *nexus) encode(e *Envelope, l level, d *DeadLetter, limit int) []byte {
	if e.Latest == nil || l == complete || l == essential {
		return n.encodeWith(e, l, d, 0)
	}
	spare := limit - roomForNexus - len(n.encodeWith(e, l, d, 0))
	if spare < 0 {
		return nil
	}
	return n.encodeWith(e, l, d, spare*3/4-3) // base64 makes four bytes of three
}

// encodeWith writes the members with the present state as values, then our own. If a level cuts the latest response's
// body, encodeWith writes at most bodyBytes of it.
func (n *nexus) encodeWith(e *Envelope, l level, d *DeadLetter, bodyBytes int) []byte {
	w := newObject()
	w.Grow(e.size + comfortableRoom)
	for _, m := range n.members {
		value := n.value(e, m, l, bodyBytes)
		if value != nil && (m.Value != nil || !strictjson.IsNull(value)) {
			w.raw(m.Name, value)
		}
	}
	pascalCase.writeTrail(w, e.Trail, l, noNexusTrail, noNexusTrail)
	pascalCase.writeDeadLetter(w, d, l, essential)
	return w.end()
}

// value returns what to write for a member: its own bytes if nothing changed, nil to leave it out.
func (n *nexus) value(e *Envelope, m nexusMember, l level, bodyBytes int) json.RawMessage {
	switch m.known {
	case nexusTrailMember, nexusDeadLetter:
		return nil
	case nexusOriginalRequestID:
		if n.originalRequestID == "" {
			return quote(e.RequestID)
		}
	case "":
		if l >= essential {
			return nil
		}
	case nexusLatestResponse:
		return n.latestResponse(e, m, l, bodyBytes)
	case nexusRun:
		switch {
		case l >= noNexusTrail, e.Run == "" && e.Run != n.run:
			return nil
		case e.Run != n.run:
			return quote(e.Run)
		}
	case nexusReserved:
		if e.Ticket == 0 {
			return nil
		}
		return strconv.AppendInt(nil, e.Ticket, 10)
	case nexusAttempts:
		return fmt.Append(nil, e.Attempts)
	case nexusCreatedAt:
		return date(m, n.received.CreatedAt, e.CreatedAt, l)
	case nexusLatestAttemptAt:
		return date(m, n.received.LatestAttemptAt, e.LatestAttemptAt, l)
	case nexusNextAttemptAt:
		return date(m, n.received.NextAttemptAt, e.NextAttemptAt, l)
	case nexusDeadlineAt:
		deadline := e.Deadline
		if deadline.IsZero() {
			// To the C# side a deadline in the year 1 has passed, and it would drop the message.
			deadline = e.Expires
		}
		return date(m, n.deadlineAt, deadline, l)
	}
	return m.Value
}

// date returns the value of a member that is a time: its own bytes if the time has not changed.
func date(m nexusMember, received, now time.Time, l level) json.RawMessage {
	null := m.Value == nil || strictjson.IsNull(m.Value)
	switch {
	case m.Value == nil && now.IsZero():
		return nil
	case l >= essential:
		return quote(dotnet.FormatTime(now.Truncate(time.Second)))
	case now.Equal(received) && !null:
		return m.Value
	}
	return quote(dotnet.FormatTime(now))
}

func (n *nexus) latestResponse(e *Envelope, m nexusMember, l level, bodyBytes int) json.RawMessage {
	switch {
	case l >= essential:
		return nil
	case e.Latest == n.received.Latest && l == complete && m.Value != nil:
		return m.Value // even if we could not read it
	case e.Latest == nil:
		return null
	}
	answer := *e.Latest
	if l >= responseCut {
		answer.Body = answer.Body[:min(max(bodyBytes, 0), len(answer.Body))]
		answer.Truncated = answer.Truncated || len(answer.Body) < len(e.Latest.Body)
	}
	if l >= noNexusTrail {
		answer = answer.withoutHeader()
	}
	return inBase64(formatAnswer(answer))
}

// maxNexusHeader is less than the 16 KiB of headers that the C# side reads. It could not read a message with more.
const maxNexusHeader = 15 << 10

// truncatedHeader marks an answer without the end of its body, for our own later callback.
const truncatedHeader = "X-Async-Caller-Truncated"

// formatAnswer writes an answer so that the C# side can read it. It always sets Content-Length, because .NET reads no
// body without a content header, and the target's own may be wrong for a cut body.
func formatAnswer(a Answer) []byte {
	header := make(http.Header, len(a.Header)+2)
	for name, values := range a.Header {
		if dotnet.IsReadable(name, values) {
			header[name] = values
		}
	}
	header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	if a.Truncated {
		header.Set(truncatedHeader, "true")
	}
	message := dotnet.FormatResponse(dotnet.Response{Status: a.Status, Header: header, Body: a.Body})
	if len(message)-len(a.Body) > maxNexusHeader {
		return formatAnswer(a.withoutHeader())
	}
	return message
}

// withoutHeader removes all headers except those without which the body cannot be read.
func (a Answer) withoutHeader() Answer {
	header := http.Header{}
	for name, value := range map[string]string{
		"Content-Type": a.Header.Get("Content-Type"), "Content-Encoding": strings.Join(contentCodings(a.Header), ", "),
	} {
		if value != "" && len(value) <= 2*maxMediaType {
			header.Set(name, value)
		}
	}
	a.Header = header
	return a
}

// callbackContentType is the content type that the C# side's StringContent sets.
const callbackContentType = jsonMediaType + "; charset=utf-8"

// payloadRoom accounts for base64, which makes four bytes of three.
func (n *nexus) payloadRoom(spare int) int { return max(spare/4*3-3, 0) }

// encodeCallback writes the callback as RequestEnvelope.GetResponseAsRequestEnvelopeAsync of the C# SDK does.
func (n *nexus) encodeCallback(e *Envelope, r Report, context json.RawMessage) []byte {
	original := cmp.Or(n.originalRequestID, e.RequestID)
	body := newObject()
	r.begin(body, original, context)
	if r.Truncated {
		body.raw(payloadTruncated, []byte("true")) // our own member, which the C# side ignores
	}
	callOut, err := dotnet.ReplaceContent(n.callBack, callbackContentType, body.end())
	if err != nil {
		panic(fmt.Sprintf("a callback that was parsed before cannot be parsed: %v", err))
	}
	if r.trace.ID != "" && e.Call.Header[HeaderTraceparent] != nil {
		if traced, err := withTrace(callOut, r.trace, r.trace.SpanID); err == nil {
			callOut = traced
		}
	}
	// The GUID is always the same for a call, so that the receiver can recognize a duplicate callback by its
	// Idempotency-Key.
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:async-caller:callback:"+e.RequestID)).String()
	return nexusRequest{
		Tenant: e.Tenant, originalRequestID: original, id: id, method: n.callBackMethod, url: e.Callback.URL,
		createdAt: r.At, deadline: r.Deadline,
		callOut: callOut, callOutScheme: cmp.Or(n.callBackScheme, defaultScheme),
	}.encode()
}

// withTrace sets the headers of a trace in the bytes of an HTTP request.
func withTrace(message []byte, t Trace, span string) ([]byte, error) {
	message, err := dotnet.ReplaceHeader(message, traceparentName, t.traceparent(span))
	if err != nil {
		return nil, err
	}
	if t.State == "" {
		return dotnet.RemoveHeader(message, tracestateName)
	}
	return dotnet.ReplaceHeader(message, tracestateName, t.State)
}

// nexusRequest is a callback, as the C# SDK writes it: every member, in the order of declaration, null if there is no
// value.
type nexusRequest struct {
	Tenant
	originalRequestID, id string
	createdAt, deadline   time.Time
	// method and url are in the title, the name that the request has in the logs of the C# side.
	method, url   string
	callOut       []byte
	callOutScheme string
}

func (r nexusRequest) encode() []byte {
	raw := newObject()
	raw.text(rawID, r.id)
	raw.text(rawTitle, fmt.Sprintf("%s %s (%s)", r.method, r.url, r.id))
	raw.raw(rawContext, null)
	raw.raw(rawCallOut, inBase64(r.callOut))
	raw.text(rawCallOutURIScheme, r.callOutScheme)
	raw.raw(rawCallBack, null)
	raw.raw(rawCallBackURIScheme, null)
	raw.raw(rawPriority, null)

	w := newObject()
	w.raw(nexusOrganization, textOrNull(r.Organization))
	w.raw(nexusEnvironment, textOrNull(r.Environment))
	w.text(nexusOriginalRequestID, r.originalRequestID)
	w.number(nexusAttempts, 0)
	w.text(nexusCreatedAt, dotnet.FormatTime(r.createdAt))
	w.text(nexusLatestAttemptAt, dotnet.FormatTime(time.Time{}))
	w.raw(nexusLatestResponse, null)
	w.text(nexusDeadlineAt, dotnet.FormatTime(r.deadline))
	w.text(nexusNextAttemptAt, dotnet.FormatTime(time.Time{}))
	w.raw(nexusRawRequest, raw.end())
	return w.end()
}

func textOrNull(text string) json.RawMessage {
	if text == "" {
		return null
	}
	return quote(text)
}
