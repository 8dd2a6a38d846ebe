package envelope

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/dotnet"
)

// nexus is the format of Nexus Async Caller: a RawRequestEnvelope of its C# SDK (nexus-link/Nexus.Link.Sdks,
// src/AsyncCaller.Sdk). It is JSON by Newtonsoft.Json, with the call as the bytes of an HTTP request. The letter case
// of names does not matter, as in Newtonsoft.Json.
type nexus struct {
	// members are the members as they came, in their order, and then the known members that did not come.
	members []nexusMember
	// received, deadlineAt and run are the state, the deadline and the run as they came.
	received   State
	deadlineAt time.Time
	run        string
	// originalRequestID is the Id in the body of callbacks, or empty if the sender gave none.
	originalRequestID string
	// callBack is the callback's HTTP request as it came, nil for none.
	callBack                       []byte
	callBackScheme, callBackMethod string
}

// nexusMember is a member as it came, or one with a nil Value that did not come.
type nexusMember struct {
	strictjson.Member
	// known is its name as nexusNames or rawNames has it; empty for an unknown member.
	known string
}

// The members of a RawRequestEnvelope, and our own at its end.
const (
	nexusOrganization      = "Organization"
	nexusEnvironment       = "Environment"
	nexusOriginalRequestID = "OriginalRequestId"
	nexusAttempts          = "Attempts"
	nexusCreatedAt         = "CreatedAt"
	nexusLatestAttemptAt   = "LatestAttemptAt"
	nexusLatestResponse    = "LatestResponse"
	nexusDeadlineAt        = "DeadlineAt"
	nexusNextAttemptAt     = "NextAttemptAt"
	nexusRawRequest        = nexusMarker
	nexusTrailMember       = "Trail"
	nexusDeadLetter        = "DeadLetter"
	nexusRun               = "Run"
	nexusReserved          = "Reserved"
)

// nexusNames lists these members in the order of their declaration in C#.
var nexusNames = []string{
	nexusOrganization, nexusEnvironment, nexusOriginalRequestID, nexusAttempts, nexusCreatedAt, nexusLatestAttemptAt,
	nexusLatestResponse, nexusDeadlineAt, nexusNextAttemptAt, nexusRawRequest, nexusTrailMember, nexusDeadLetter,
	nexusRun, nexusReserved,
}

// The members of a RawRequest.
const (
	rawID                = "Id"
	rawTitle             = "Title"
	rawContext           = "Context"
	rawCallOut           = "CallOut"
	rawCallOutURIScheme  = "CallOutUriScheme"
	rawCallBack          = "CallBack"
	rawCallBackURIScheme = "CallBackUriScheme"
	rawPriority          = "Priority"
)

// rawNames lists these members in the order of their declaration in C#.
var rawNames = []string{
	rawID, rawTitle, rawContext, rawCallOut, rawCallOutURIScheme, rawCallBack, rawCallBackURIScheme, rawPriority,
}

// nexusMembers finds the known members among members, and appends the absent ones. The letter case of names does not
// matter.
func nexusMembers(members []strictjson.Member, names []string) ([]nexusMember, error) {
	known := make([]nexusMember, len(members))
	seen := make(map[string]bool, len(members))
	for i, m := range members {
		name := nameIn(names, m.Name)
		if (name == nexusRun || name == nexusReserved) && seen[name] {
			name = "" // a second one is unknown: they must not make a message malformed
		}
		known[i] = nexusMember{m, name}
		if name != "" && seen[name] {
			return nil, strictjson.In(name, errors.New("appears twice, in different letter case"))
		}
		seen[name] = true
	}
	for _, name := range names {
		if !seen[name] {
			known = append(known, nexusMember{strictjson.Member{Name: name}, name})
		}
	}
	return known, nil
}

func nameIn(names []string, name string) string {
	for _, known := range names {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

func (n *nexus) name() Format { return FormatNexus }

func parseNexus(members []strictjson.Member) (*Envelope, error) {
	known, err := nexusMembers(members, nexusNames)
	if err != nil {
		return nil, err
	}
	n := &nexus{members: known}
	e := &Envelope{format: n}
	for _, m := range known {
		if m.Value == nil || strictjson.IsNull(m.Value) {
			continue
		}
		if err := n.set(e, m); err != nil {
			return nil, strictjson.In(m.known, err)
		}
	}
	for i := range known {
		known[i].Release()
	}
	n.received, n.deadlineAt, n.run = e.State, e.Deadline, e.Run
	e.RequestID = cmp.Or(e.RequestID, asRequestID(n.originalRequestID))
	if n.originalRequestID != e.RequestID {
		e.OriginalRequestID = n.originalRequestID
	}
	return e, nil
}

func (n *nexus) set(e *Envelope, m nexusMember) (err error) {
	switch m.known {
	case nexusOrganization:
		e.Tenant.Organization, err = strictjson.String(m.Value)
	case nexusEnvironment:
		e.Tenant.Environment, err = strictjson.String(m.Value)
	case nexusOriginalRequestID:
		n.originalRequestID, err = strictjson.String(m.Value)
	case nexusAttempts:
		e.Attempts, err = strictjson.Int(m.Value, 0, MaxAttempts)
	case nexusCreatedAt:
		e.CreatedAt, err = parseDate(m.Value)
	case nexusLatestAttemptAt:
		e.LatestAttemptAt, err = parseDate(m.Value)
	case nexusLatestResponse:
		e.Latest, err = parseLatestResponse(m.Value)
	case nexusDeadlineAt:
		e.Deadline, err = parseDate(m.Value)
	case nexusNextAttemptAt:
		e.NextAttemptAt, err = parseDate(m.Value)
	case nexusRawRequest:
		err = n.setRawRequest(e, m.Member)
	case nexusTrailMember:
		e.Trail, err = pascalCase.parseTrail(m.Value)
	case nexusRun:
		e.Run = parseRun(m.Value)
	case nexusReserved:
		e.Ticket = parseTicket(m.Value)
	case nexusDeadLetter:
		// It is only an explanation. To encoding/json, the letter case of names does not matter either.
		e.DeadLetter = &DeadLetter{}
		_ = json.Unmarshal(m.Value, e.DeadLetter)
	}
	return err
}

func (n *nexus) setRawRequest(e *Envelope, raw strictjson.Member) error {
	members, err := raw.Object()
	if err != nil {
		return err
	}
	known, err := nexusMembers(members, rawNames)
	if err != nil {
		return err
	}
	var callOut []byte
	var scheme string
	for _, m := range known {
		if m.Value == nil || strictjson.IsNull(m.Value) {
			continue
		}
		switch m.known {
		case rawID:
			var id string
			id, err = strictjson.String(m.Value)
			e.RequestID = asRequestID(id)
		case rawContext:
			e.Context, err = parseNexusContext(m.Value)
		case rawCallOut:
			callOut, err = parseBase64(m.Value)
		case rawCallOutURIScheme:
			scheme, err = parseScheme(m.Value)
		case rawCallBack:
			n.callBack, err = parseBase64(m.Value)
		case rawCallBackURIScheme:
			n.callBackScheme, err = parseScheme(m.Value)
		case rawPriority:
			// It selected the queue that the message is on. A priority without a queue must not prevent the
			// call.
			e.Priority, _ = strictjson.Int(m.Value, 1, Priorities)
		}
		if err != nil {
			return strictjson.In(m.known, err)
		}
	}
	if callOut == nil {
		return strictjson.In(rawCallOut, errMissing)
	}
	e.Call, err = parseCallOut(callOut, scheme)
	if err != nil {
		return strictjson.In(rawCallOut, err)
	}
	if n.callBack == nil {
		return nil
	}
	callback, err := parseCallOut(n.callBack, n.callBackScheme)
	if err != nil {
		return strictjson.In(rawCallBack, err)
	}
	e.Callback, n.callBackMethod = &Callback{URL: callback.URL}, callback.Method
	return nil
}

// callbackCall leaves out the content headers, which [nexus.encodeCallback] replaces.
func (n *nexus) callbackCall() (Call, error) {
	call, err := parseCallOut(n.callBack, n.callBackScheme)
	maps.DeleteFunc(call.Header, func(name string, _ []string) bool { return dotnet.IsContentHeader(name) })
	call.Body = Body{}
	return call, err
}

// parseCallOut reads the bytes of an HTTP request. The URL consists of the scheme, the one Host header, and the path
// and query of the request line, which are escaped already.
func parseCallOut(message []byte, scheme string) (Call, error) {
	request, err := dotnet.ParseRequest(message)
	if err != nil {
		return Call{}, err
	}
	call := Call{
		URL:    cmp.Or(scheme, defaultScheme) + "://" + request.Host + request.Target,
		Header: request.Header, Spelling: request.Spelling, Body: BodyOf(request.Body),
	}
	call.Method, err = checkMethod(request.Method)
	if err != nil {
		return Call{}, fmt.Errorf("request line: %w", err)
	}
	call.Target, err = ParseURL(call.URL)
	return call, err
}

// defaultScheme applies to calls and callbacks without a scheme.
const defaultScheme = "http"

func parseScheme(value json.RawMessage) (string, error) {
	text, err := strictjson.String(value)
	scheme := strings.ToLower(strings.TrimSpace(text))
	if err == nil && scheme != "" && scheme != "http" && scheme != "https" {
		err = errors.New(`want "http" or "https"`)
	}
	return scheme, err
}

// parseNexusContext reads base64 of any JSON. Other text becomes a JSON string, because the context must not prevent
// the call.
func parseNexusContext(value json.RawMessage) (json.RawMessage, error) {
	content, err := parseBase64(value)
	if err != nil {
		return nil, err
	}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, nil
	}
	if depth, err := strictjson.Depth(content); err == nil && depth <= maxContextDepth {
		return content, nil
	}
	return quote(strings.ToValidUTF8(string(content), string(utf8.RuneError))), nil
}

// parseLatestResponse reads base64 of the bytes of an HTTP response. It returns nil for a response that it cannot
// read, because the response is only an explanation, and for a 2xx, which has broken off: otherwise the call would
// be delivered.
func parseLatestResponse(value json.RawMessage) (*Answer, error) {
	message, err := parseBase64(value)
	if err != nil {
		return nil, err
	}
	response, err := dotnet.ParseResponse(message)
	if err != nil || response.Status/100 == 2 {
		return nil, nil //nolint:nilerr // see above
	}
	return &Answer{
		Status: response.Status, Header: response.Header, Body: response.Body,
		Truncated: response.Header.Get(truncatedHeader) != "",
	}, nil
}

func parseDate(value json.RawMessage) (time.Time, error) {
	text, err := strictjson.String(value)
	if err != nil {
		return time.Time{}, err
	}
	return dotnet.ParseTime(text)
}

// asRequestID returns the text itself, usually a GUID, if it is a valid request id, and otherwise its hash.
func asRequestID(text string) string {
	if text == "" || ValidRequestID(text) {
		return text
	}
	return hash(text)
}

func hash(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}
