package envelope

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"asynccaller/handler/internal/dotnet"
	"asynccaller/handler/internal/strictjson"
)

// The levels of a Nexus envelope. RawRequest and the tenant are never left out.
const (
	responseCut        level = iota + 1 // the latest response's body is cut to the room that there is
	latestOfNexusTrail                  // and only the latest attempt of the trail stays
	noNexusTrail                        // and none
	responseLine                        // and of the latest response only the status and the media type
	noResponse                          // and not even those
	essential                           // and no unknown members, and times are in whole seconds
	// nexusBare is for dead letters only. It leaves out attempts and times, which start anew when the dead letter is moved
	// back, and keeps only the reason of DeadLetter.
	nexusBare
)

// nexusLevels says what each level leaves out.
var nexusLevels = []string{
	responseCut:        "the end of the latest response",
	latestOfNexusTrail: "the end of the latest response, and trail",
	noNexusTrail:       "the end of the latest response, and trail",
	responseLine:       "the end of the latest response, and trail",
	noResponse:         "the latest response and trail",
	essential:          "the latest response, trail and unknown members",
	nexusBare:          "the latest response, trail, unknown members, times and attempts",
}

// roomForNexus is the space that a message with a cut response leaves free, so that the C# side can write the message
// again with its own state.
const roomForNexus = 256

func (n *nexus) levels() (successor, deadLetter []string) {
	return nexusLevels[:nexusBare], nexusLevels
}

func (n *nexus) encode(e *Envelope, l level, d *DeadLetter, limit int) []byte {
	if e.Latest == nil || l < responseCut || l > responseLine {
		return n.encodeWith(e, l, d, 0)
	}
	spare := limit - roomForNexus - len(n.encodeWith(e, l, d, 0))
	if spare < 0 {
		return nil
	}
	return n.encodeWith(e, l, d, spare*3/4-3) // base64 makes four bytes of three
}

// encodeWith writes the members with the present state as values, then our own. If a level cuts the latest response's body,
// encodeWith writes at most bodyBytes of it.
func (n *nexus) encodeWith(e *Envelope, l level, d *DeadLetter, bodyBytes int) []byte {
	w := newObject()
	w.Grow(e.size + comfortableRoom)
	for _, m := range n.members {
		value := n.value(e, m, l, bodyBytes)
		if value != nil && (m.Value != nil || !strictjson.IsNull(value)) {
			w.raw(m.Name, value)
		}
	}
	pascalCase.writeTrail(w, e.Trail, l, latestOfNexusTrail, noNexusTrail)
	pascalCase.writeDeadLetter(w, d, l, nexusBare)
	return w.end()
}

// value returns what to write for a member: its own bytes if nothing changed, nil to leave it out.
func (n *nexus) value(e *Envelope, m nexusMember, l level, bodyBytes int) json.RawMessage {
	switch m.known {
	case nexusTrailMember, nexusDeadLetter:
		return nil
	case nexusOrganization, nexusEnvironment, nexusRawRequest:
		return m.Value
	case nexusOriginalRequestID:
		if n.originalRequestID == "" {
			return quote(e.RequestID)
		}
		return m.Value
	case "":
		if l >= essential {
			return nil
		}
		return m.Value
	case nexusLatestResponse:
		return n.latestResponse(e, m, l, bodyBytes)
	}
	if l >= nexusBare {
		return nil
	}
	switch m.known {
	case nexusAttempts:
		return fmt.Append(nil, e.Attempts)
	case nexusCreatedAt:
		return date(m, n.came.CreatedAt, e.CreatedAt, l)
	case nexusLatestAttemptAt:
		return date(m, n.came.LatestAttemptAt, e.LatestAttemptAt, l)
	case nexusNextAttemptAt:
		return date(m, n.came.NextAttemptAt, e.NextAttemptAt, l)
	case nexusDeadlineAt:
		deadline := e.Deadline
		if deadline.IsZero() {
			// To the C# side a deadline in the year 1 has passed, and it would drop the message.
			deadline = e.Expires
		}
		return date(m, n.deadlineAt, deadline, l)
	}
	return nil
}

// date returns the value of a member that is a time: its own bytes if the time has not changed.
func date(m nexusMember, came, now time.Time, l level) json.RawMessage {
	null := m.Value == nil || strictjson.IsNull(m.Value)
	switch {
	case m.Value == nil && now.IsZero():
		return nil
	case l >= essential:
		return quote(dotnet.FormatTime(now.Truncate(time.Second)))
	case now.Equal(came) && !null:
		return m.Value
	}
	return quote(dotnet.FormatTime(now))
}

func (n *nexus) latestResponse(e *Envelope, m nexusMember, l level, bodyBytes int) json.RawMessage {
	switch {
	case l >= essential:
		return nil
	case l >= noResponse:
		return null
	case e.Latest == n.came.Latest && l == complete && m.Value != nil:
		return m.Value // even if we could not read it
	case e.Latest == nil:
		return null
	}
	answer := *e.Latest
	if l >= responseCut {
		answer.Body = answer.Body[:min(max(bodyBytes, 0), len(answer.Body))]
	}
	if l >= responseLine {
		answer = answer.withoutHeader()
	}
	return inBase64(formatAnswer(answer))
}

// maxNexusHeader is less than the 16 KiB of headers that the C# side reads. It could not read a message with more.
const maxNexusHeader = 15 << 10

// formatAnswer writes an answer so that the C# side can read it. It always sets Content-Length, because .NET reads no body
// without a content header, and the target's own may be wrong for a cut body.
func formatAnswer(a Answer) []byte {
	header := dotnet.Readable(a.Header)
	header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	message := dotnet.FormatResponse(dotnet.Response{Status: a.Status, Header: header, Body: a.Body})
	if len(message)-len(a.Body) > maxNexusHeader {
		return formatAnswer(a.withoutHeader())
	}
	return message
}

// withoutHeader removes all headers except Content-Type.
func (a Answer) withoutHeader() Answer {
	header := http.Header{}
	if contentType := a.Header.Get("Content-Type"); len(contentType) <= 2*maxMediaType {
		header.Set("Content-Type", contentType)
	}
	a.Header = header
	return a
}
