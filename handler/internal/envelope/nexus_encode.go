package envelope

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/dotnet"
	"asynccaller/handler/internal/strictjson"
)

// nexusLevel says how much of a Nexus envelope is left out so that it fits. RawRequest, the tenant and
// what bounds the retries are never left out.
type nexusLevel int

const (
	nexusComplete nexusLevel = iota
	responseCut              // the latest response's body as far as there is room
	latestOfNexusTrail
	noNexusTrail
	responseLine // of the latest response the status and the media type only
	noResponse
	essential // nor members that we do not know, and moments in whole seconds
	// nexusBare is for dead letters only: neither attempts nor moments, which start anew when it is moved
	// back, and of the dead letter only its reason.
	nexusBare
)

func (l nexusLevel) leavesOut() string {
	switch l {
	case nexusComplete:
		return ""
	case responseCut:
		return "the end of the latest response"
	case latestOfNexusTrail, noNexusTrail, responseLine:
		return "the end of the latest response, and trail"
	case noResponse:
		return "the latest response and trail"
	case essential:
		return "the latest response, trail and unknown members"
	case nexusBare:
		return "the latest response, trail, unknown members, times and attempts"
	}
	return ""
}

// roomForNexus is what a message that holds a latest response cut to its size leaves free, so that the
// C# side can write it again with its own state.
const roomForNexus = 256

func (n *nexus) successor(e *Envelope, limit int) (Content, error) {
	return n.fit(e, limit, nil, essential)
}

func (n *nexus) deadLetter(e *Envelope, d DeadLetter, limit int) (Content, error) {
	return n.fit(e, limit, &d, nexusBare)
}

func (n *nexus) fit(e *Envelope, limit int, d *DeadLetter, last nexusLevel) (Content, error) {
	var content []byte
	for l := nexusComplete; l <= last; l++ {
		spare := 0
		if responseCut <= l && l <= responseLine && e.Latest != nil {
			spare = limit - roomForNexus - len(n.encode(e, l, 0, d))
		}
		if spare < 0 {
			continue
		}
		if content = n.encode(e, l, spare*3/4-3, d); len(content) <= limit {
			return Content{Bytes: content, LeftOut: l.leavesOut()}, nil
		}
	}
	return Content{}, tooLarge(content, limit)
}

func (n *nexus) checkRoom(e *Envelope, limit int) error {
	longest := 0
	if e.size+comfortableRoom > limit {
		state := State{Attempts: maxAttempts, CreatedAt: e.CreatedAt, LatestAttemptAt: e.CreatedAt, NextAttemptAt: e.CreatedAt, Expires: e.CreatedAt}
		d := &DeadLetter{Reason: strings.Repeat("x", maxReason)}
		longest = max(len(n.encode(e.WithState(state), essential, 0, nil)), len(n.encode(e, nexusBare, 0, d)))
	}
	if e.Callback != nil { // its URL stands in it twice, so it may be longer than the envelope
		end := time.Unix(0, 123456700) // with as many digits as a moment can have
		report := Report{Status: http.StatusOK, MediaType: strings.Repeat("x", maxMediaType), At: end, Deadline: end}
		longest = max(longest, len(n.encodeCallback(e, report, true))+callbackRoom)
	}
	if longest > limit {
		return &TooLargeError{Size: e.size, Limit: limit, Excess: longest - limit}
	}
	return nil
}

// encode writes the members that came, in their order and under the names they had, with the present
// state in their place; then those that did not come; then our own. Of the latest response's body it
// takes at most bodyBytes.
func (n *nexus) encode(e *Envelope, l nexusLevel, bodyBytes int, d *DeadLetter) []byte {
	w := newObject()
	w.Grow(e.size + comfortableRoom)
	var seen []string
	for _, m := range n.members {
		seen = append(seen, m.known)
		if value := n.value(e, m, l, bodyBytes); value != nil {
			w.raw(m.Name, value)
		}
	}
	for _, name := range nexusNames {
		if slices.Contains(seen, name) {
			continue
		}
		if value := n.value(e, nexusMember{known: name}, l, bodyBytes); value != nil && !strictjson.IsNull(value) {
			w.raw(name, value)
		}
	}
	switch {
	case len(e.Trail) == 0:
	case l < latestOfNexusTrail:
		w.raw(nexusTrailMember, encodeTrail(e.Trail, nexusTrail))
	case l < noNexusTrail:
		w.raw(nexusTrailMember, encodeTrail(e.Trail[len(e.Trail)-1:], nexusTrail))
	}
	if d != nil {
		w.raw(nexusDeadLetter, nexusDeadLetterOf(*d, l))
	}
	return w.end()
}

// value is what is written for a member: as it came where it stays; nil to leave it out.
func (n *nexus) value(e *Envelope, m nexusMember, l nexusLevel, bodyBytes int) json.RawMessage {
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
		return moment(m, n.came.CreatedAt, e.CreatedAt, l)
	case nexusLatestAttemptAt:
		return moment(m, n.came.LatestAttemptAt, e.LatestAttemptAt, l)
	case nexusNextAttemptAt:
		return moment(m, n.came.NextAttemptAt, e.NextAttemptAt, l)
	case nexusDeadlineAt:
		deadline := e.Deadline
		if deadline.IsZero() {
			// The C# side takes a deadline of the year 1 as passed, and would forget the message.
			deadline = e.Expires
		}
		return moment(m, n.deadlineAt, deadline, l)
	}
	return nil
}

// moment is the value of a member that is a moment: as it came if that is still true.
func moment(m nexusMember, came, now time.Time, l nexusLevel) json.RawMessage {
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

func (n *nexus) latestResponse(e *Envelope, m nexusMember, l nexusLevel, bodyBytes int) json.RawMessage {
	switch {
	case l >= essential:
		return nil
	case l >= noResponse:
		return null
	case e.Latest == n.came.Latest && l == nexusComplete && m.Value != nil:
		return m.Value // also one that we could not read
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
	return quote(base64.StdEncoding.EncodeToString(formatAnswer(answer)))
}

// maxNexusHeader is less than the 16 KiB of headers that the C# side reads: beyond it the whole message
// would be unreadable there.
const maxNexusHeader = 15 << 10

// formatAnswer writes an answer so that the C# side can read it. The length of the body is always told: it
// is the content header without which no body would be read, and what the target said may not be true any
// more.
func formatAnswer(a Answer) []byte {
	header := dotnet.Readable(a.Header)
	header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	message := dotnet.FormatResponse(dotnet.Response{Status: a.Status, Header: header, Body: a.Body})
	if len(message)-len(a.Body) > maxNexusHeader {
		return formatAnswer(a.withoutHeader())
	}
	return message
}

// withoutHeader keeps of the header only what tells how to read the body.
func (a Answer) withoutHeader() Answer {
	header := http.Header{}
	if contentType := a.Header.Get("Content-Type"); len(contentType) <= 2*maxMediaType {
		header.Set("Content-Type", contentType)
	}
	a.Header = header
	return a
}

func nexusDeadLetterOf(d DeadLetter, l nexusLevel) []byte {
	w := newObject()
	if l >= nexusBare {
		w.text("Reason", d.Reason)
		return w.end()
	}
	w.text("At", dotnet.FormatTime(d.At))
	w.text("Reason", d.Reason)
	if d.Detail != "" {
		w.text("Detail", d.Detail)
	}
	w.text("Queue", d.Queue)
	w.raw("Attempts", fmt.Append(nil, d.Attempts))
	return w.end()
}
