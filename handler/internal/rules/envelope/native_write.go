package envelope

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"asynccaller/handler/internal/plain/strictjson"
)

// The levels of a native envelope. Each leaves out what the levels before it leave out, and more: nativeMembers has the
// first level that leaves out a member.
const (
	latestOfTrail level = iota + 1 // only the latest attempt of the trail stays
	noTrail
	noExtras
	noContext // a dead letter states only its reason
	// always is beyond all levels: no level leaves out the member.
	always
)

// nativeMember says how a native envelope holds a member.
type nativeMember struct {
	// until is the first level that leaves out the member.
	until level
	// state is set if encode writes the member anew. It writes the others as they came, but for a deadline or a run
	// that has changed.
	state bool
	// text is set if the member can only be a string.
	text bool
}

// nativeMembers has the members of a native envelope. The method set reads them; members of other names are unknown.
var nativeMembers = map[string]nativeMember{
	nativeMarker:         {until: always, state: true},
	"requestId":          {until: always, state: true, text: true},
	string(partCall):     {until: always},
	string(partCallback): {until: always},
	"giveUp":             {until: always, text: true},
	"deadLetter":         {until: always, state: true},
	"retry":              {until: always},
	"notBefore":          {until: always, text: true},
	"deadline":           {until: always, text: true},
	"createdAt":          {until: always, state: true, text: true},
	"attempts":           {until: always, state: true},
	"nextAttemptAt":      {until: always, state: true, text: true},
	reservedName:         {until: always, state: true},
	"context":            {until: noContext},
	"priority":           {until: noExtras},
	"latestAttemptAt":    {until: noTrail, state: true, text: true},
	traceName:            {until: noTrail, state: true},
	"trail":              {until: noTrail, state: true},
	"run":                {until: noTrail},
}

// has reports whether a level has room for a member. Unknown members count as extras.
func (*native) has(name string, l level) bool {
	member, known := nativeMembers[name]
	if !known {
		return l < noExtras
	}
	return l < member.until
}

// nativeLevels says what each level leaves out.
var nativeLevels = []string{
	latestOfTrail: "trail",
	noTrail:       "trail, trace, run and latestAttemptAt",
	noExtras:      "trail, trace, run, latestAttemptAt, priority and unknown members",
	noContext:     "trail, trace, run, latestAttemptAt, priority, unknown members and context",
}

func (n *native) levels() (all, answered []string) { return nativeLevels, nativeLevels[:latestOfTrail] }

func (n *native) encode(e *Envelope, l level, d *DeadLetter, _ int) []byte {
	has := func(name string) bool { return n.has(name, l) }
	w := newObject()
	w.Grow(e.size + comfortableRoom)
	w.number(nativeMarker, n.version)
	w.text("requestId", e.RequestID)
	for _, m := range n.members {
		if n.keeps(e, m.Name, l) {
			w.raw(m.Name, m.Value)
		}
	}
	if !e.Deadline.Equal(n.deadline) {
		w.time("deadline", e.Deadline)
	}
	w.time("createdAt", e.CreatedAt)
	if e.Attempts > 0 {
		w.number("attempts", e.Attempts)
	}
	if has("latestAttemptAt") {
		w.time("latestAttemptAt", e.LatestAttemptAt)
	}
	w.time("nextAttemptAt", e.NextAttemptAt)
	if e.Ticket > 0 {
		w.raw(reservedName, strconv.AppendInt(nil, e.Ticket, 10))
	}
	if has("run") && e.Run != "" && e.Run != n.run {
		w.text("run", e.Run)
	}
	if has(traceName) {
		e.Trace.write(w, e.Trace.Parent)
	}
	camelCase.writeTrail(w, e.Trail, l, latestOfTrail, noTrail)
	camelCase.writeDeadLetter(w, d, l, noContext)
	return w.end()
}

// callbackNames are the members of a callback, which a call has as well.
var callbackNames = []string{"url", "method", "headers"}

func nativeObjects() []knownObject {
	return []knownObject{
		{"", slices.Sorted(maps.Keys(nativeMembers))},
		{string(partCall), slices.Concat(callbackNames, bodyMembers, []string{"timeout"})},
		{string(partCallback), callbackNames},
		{traceName, []string{traceparentName, tracestateName}},
	}
}

// keeps reports whether a level writes a member as it came.
func (n *native) keeps(e *Envelope, name string, l level) bool {
	switch name {
	case "deadline":
		if e.Deadline.IsZero() || !e.Deadline.Equal(n.deadline) {
			return false
		}
	case "run":
		if e.Run != n.run {
			return false
		}
	}
	return !nativeMembers[name].state && n.has(name, l)
}

// CallbackSuffix ends the request id of a native callback, which begins with that of the call: the receiver recognizes
// a duplicate callback by its Idempotency-Key.
const CallbackSuffix = ".callback"

// WithoutCallbackSuffix returns the request id of the call on which a native callback reports, and any other unchanged.
func WithoutCallbackSuffix(requestID string) string {
	return strings.TrimSuffix(requestID, CallbackSuffix)
}

// payloadRoom returns spare, because the payload is written as it is.
func (n *native) payloadRoom(spare int) int { return spare }

func (n *native) encodeCallback(e *Envelope, r Report, context json.RawMessage) []byte {
	call := newObject()
	for _, m := range n.callback {
		call.raw(m.Name, m.Value)
	}
	body := newObject()
	r.begin(body, e.RequestID, context)
	body.number("Attempts", r.Attempts)
	body.text("Reason", r.Reason)
	body.raw(payloadTruncated, strconv.AppendBool(nil, r.Truncated))
	call.raw("json", body.end())

	w := newObject()
	w.number(nativeMarker, nativeVersion)
	w.text("requestId", CallbackID(e.RequestID))
	w.time("createdAt", r.At)
	r.trace.write(w, r.trace.SpanID)
	w.raw(string(partCall), call.end())
	return w.end()
}

// CallbackID returns the request id of the native callback of a call. A sender can give it to any other call.
func CallbackID(requestID string) string {
	if len(requestID)+len(CallbackSuffix) > maxRequestID {
		requestID = hash(requestID)
	}
	return requestID + CallbackSuffix
}

// IsCallbackOf reports whether an envelope has the request id and the body of the native callback of a call.
func (e *Envelope) IsCallbackOf(requestID string) bool {
	var body struct{ ID string }
	return e.RequestID == CallbackID(requestID) && json.Unmarshal(e.Call.Body.Bytes(), &body) == nil &&
		body.ID == requestID
}

func (*native) names() strictjson.Names { return strictjson.ExactNames }

func (*native) deadlineName() string { return "deadline" }

// bodyMembers are the members of a call that are its body. A call has at most one of them.
var bodyMembers = []string{"body", "bodyBase64", "json", gzipBody}

// gzipBody is the member with gzip of the body, in base64.
const gzipBody = "gzipBody"

func (n *native) setPath(content []byte, path []string, text string) ([]byte, error) {
	of := part(path[0])
	inCall := of == partCall || of == partCallback
	switch {
	case inCall && len(path) == 3 && path[1] == "headers":
		return n.changeHeader(content, of, path[2], &text)
	case of == partCall && len(path) == 2 && slices.Contains(bodyMembers, path[1]):
		return n.setBody(content, path[1], text)
	case inCall && len(path) == 2 && (path[1] == "url" || path[1] == "method"),
		len(path) == 1 && nativeMembers[path[0]].text:
		return n.names().Set(content, path, asString(text))
	}
	return n.names().Set(content, path, asJSON(text))
}

// setBody replaces the body. The member json implies a Content-Type: another kind of body gets it as a header, so that
// the target can still read it.
func (n *native) setBody(content []byte, kind, text string) ([]byte, error) {
	values := map[string]json.RawMessage{kind: quote(text)}
	switch kind {
	case "json":
		values[kind] = asJSON(text)
	case "bodyBase64":
		values[kind] = asString(text)
	case gzipBody:
		values[kind] = asString(text)
		var err error
		content, err = n.names().Set(content, []string{nativeMarker}, strconv.AppendInt(nil, gzipVersion, 10))
		if err != nil {
			return nil, err
		}
	}
	wasJSON := n.names().Get(content, string(partCall), "json") != nil
	for _, member := range append([]string{kind}, bodyMembers...) {
		var err error
		content, err = n.names().Set(content, []string{string(partCall), member}, values[member])
		if err != nil {
			return nil, err
		}
	}
	headers := n.names().Get(content, string(partCall), "headers")
	if !wasJSON || kind == "json" || strictjson.FoldNames.Get(headers, "Content-Type") != nil {
		return content, nil
	}
	return n.changeHeader(content, partCall, "Content-Type", new(jsonMediaType))
}

func (n *native) changeHeader(content []byte, of part, name string, value *string) ([]byte, error) {
	path := []string{string(of), "headers"}
	return n.names().Change(content, path, func(old json.RawMessage) (json.RawMessage, error) {
		current := old
		if old == nil || strictjson.IsNull(old) {
			current = json.RawMessage("{}")
		}
		headers, err := strictjson.Object(current)
		if err != nil {
			return nil, err
		}
		before := strictjson.Pack('{', headers)
		if value != nil && indexHeader(headers, name) < 0 {
			headers = append(headers, strictjson.Member{Name: name})
		}
		for i := range headers {
			if strings.EqualFold(headers[i].Name, name) {
				headers[i].Value = nil
				if value != nil {
					headers[i].Value = quote(*value)
					value = nil
				}
			}
		}
		after := strictjson.Pack('{', headers)
		if bytes.Equal(before, after) {
			return old, nil
		}
		return after, nil
	})
}

func indexHeader(headers []strictjson.Member, name string) int {
	return slices.IndexFunc(headers, func(m strictjson.Member) bool { return strings.EqualFold(m.Name, name) })
}

func (n *native) replaceHost(content []byte, of part, replace HostReplacer) ([]byte, error) {
	inURL := func(text string) string { return replaceInURL(text, replace) }
	inHost := func(text string) string {
		_, host := replace("", text)
		return host
	}
	url, headers := []string{string(of), "url"}, []string{string(of), "headers"}
	content, err := n.names().Change(content, url, func(old json.RawMessage) (json.RawMessage, error) {
		return mapStrings(old, inURL), nil
	})
	if err != nil {
		return nil, err
	}
	return n.names().Change(content, headers, func(old json.RawMessage) (json.RawMessage, error) {
		return strictjson.FoldNames.Change(old, []string{"Host"}, func(host json.RawMessage) (json.RawMessage, error) {
			return mapStrings(host, inHost), nil
		})
	})
}

// urlHost matches the scheme and the host of a URL, with user info between them.
var urlHost = regexp.MustCompile(`^([^:]*)://(?:[^/?#]*@)?([^/?#]*)`)

// replaceInURL replaces the scheme and the host. It keeps all other bytes: the target may require an unusual spelling.
func replaceInURL(text string, replace HostReplacer) string {
	at := urlHost.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	scheme, host := replace(text[:at[3]], text[at[4]:at[5]])
	return scheme + text[at[3]:at[4]] + host + text[at[5]:]
}

// mapStrings changes a string, or the strings in an array. It returns any other value as it is.
func mapStrings(value json.RawMessage, change func(string) string) json.RawMessage {
	if text, err := strictjson.String(orNull(value)); err == nil {
		changed := change(text)
		if changed == text {
			return value
		}
		return quote(changed)
	}
	elements, err := strictjson.Elements(orNull(value))
	if err != nil {
		return value
	}
	before := strictjson.PackArray(elements)
	for i, element := range elements {
		elements[i] = mapStrings(element, change)
	}
	after := strictjson.PackArray(elements)
	if bytes.Equal(before, after) {
		return value
	}
	return after
}
