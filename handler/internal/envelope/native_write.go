package envelope

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"asynccaller/handler/internal/strictjson"
)

// The levels of a native envelope.
const (
	latestOfTrail level = iota + 1 // only the latest attempt of the trail stays
	noTrail                        // the trace and the run are left out as well
	// latestAttemptAt, nextAttemptAt and, if there is a deadline, createdAt are left out as well
	noTimes
	noExtras   // priority and unknown members as well
	noContext  // the sender's context as well
	noAttempts // attempts as well: the delays start again, the deadline still ends them
	// bare is for dead letters only. It leaves out createdAt and deadline, which start anew when the dead letter is
	// moved back, and keeps only the reason of deadLetter.
	bare
	barest // notBefore and retry as well: once moved back, the configured policy applies
)

// nativeLevels says what each level leaves out.
var nativeLevels = []string{
	latestOfTrail: "trail",
	noTrail:       "trail, trace and run",
	noTimes:       "trail, trace, run and times",
	noExtras:      "trail, trace, run, times and unknown members",
	noContext:     "trail, trace, run, times, unknown members and context",
	noAttempts:    "trail, trace, run, times, unknown members, context and attempts",
	bare:          "trail, trace, run, times, unknown members, context and attempts",
	barest:        "trail, trace, run, times, unknown members, context, attempts and retry",
}

func (n *native) levels() (successor, answered, deadLetter []string) {
	return nativeLevels[:bare], nativeLevels[:latestOfTrail], nativeLevels
}

func (n *native) encode(e *Envelope, l level, d *DeadLetter, _ int) []byte {
	w := newObject()
	w.Grow(e.size + comfortableRoom)
	w.raw(nativeMarker, []byte(nativeVersion))
	w.text("requestId", e.RequestID)
	for _, m := range n.members {
		if n.keeps(e, m.Name, l) {
			w.raw(m.Name, m.Value)
		}
	}
	if l < bare && !e.Deadline.Equal(n.deadline) {
		w.time("deadline", e.Deadline)
	}
	if l < noTimes || (l < bare && e.Deadline.IsZero()) {
		w.time("createdAt", e.CreatedAt)
	}
	if l < noAttempts && e.Attempts > 0 {
		w.number("attempts", e.Attempts)
	}
	if l < noTimes {
		w.time("latestAttemptAt", e.LatestAttemptAt)
		w.time("nextAttemptAt", e.NextAttemptAt)
	}
	if l < noTrail && e.Run != "" && e.Run != n.run {
		w.text("run", e.Run)
	}
	if l < noTrail {
		e.Trace.write(w, e.Trace.Parent)
	}
	camelCase.writeTrail(w, e.Trail, l, latestOfTrail, noTrail)
	camelCase.writeDeadLetter(w, d, l, bare)
	return w.end()
}

// nativeMembers lists the members of a native envelope.
var nativeMembers = map[string]struct {
	// until is the first level that leaves the member out. It is 0 for members that encode writes anew.
	until level
	// nexus is set if the Nexus format can hold the member.
	nexus bool
}{
	nativeMarker: {0, true}, "requestId": {0, true}, "createdAt": {0, true},
	"attempts": {}, "latestAttemptAt": {}, "nextAttemptAt": {}, "trail": {}, "deadLetter": {}, "trace": {0, true},
	"call": {barest + 1, true}, "callback": {barest + 1, true}, "giveUp": {barest + 1, false},
	"retry": {barest, false}, "notBefore": {barest, true}, "deadline": {bare, true},
	"context": {noContext, true}, "priority": {noExtras, true}, "run": {noTrail, false},
}

// callbackNames are the members of a callback, which a call has as well.
var callbackNames = []string{"url", "method", "headers"}

func nativeObjects() []knownObject {
	return []knownObject{
		{"", slices.Sorted(maps.Keys(nativeMembers))},
		{string(partCall), slices.Concat(callbackNames, bodyMembers, []string{"timeout"})},
		{string(partCallback), callbackNames},
		{"trace", traceNames},
	}
}

// keeps reports whether a level writes a member as it came.
func (n *native) keeps(e *Envelope, name string, l level) bool {
	member, known := nativeMembers[name]
	switch {
	case !known:
		return l < noExtras
	case name == "deadline" && (e.Deadline.IsZero() || !e.Deadline.Equal(n.deadline)):
		return false
	case name == "run" && e.Run != n.run:
		return false
	}
	return l < member.until
}

// callbackSuffix makes a callback's request id from the call's, so that the receiver can recognize a duplicate callback
// by its Idempotency-Key.
const callbackSuffix = ".callback"

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
	w.raw(nativeMarker, []byte(nativeVersion))
	w.text("requestId", callbackID(e.RequestID))
	w.time("createdAt", r.At)
	r.trace.write(w, r.trace.SpanID)
	w.raw("call", call.end())
	return w.end()
}

func callbackID(requestID string) string {
	if id := requestID + callbackSuffix; len(id) <= maxRequestID {
		return id
	}
	return hash(requestID) + callbackSuffix
}

func (*native) names() strictjson.Names { return strictjson.ExactNames }

func (*native) deadlineName() string { return "deadline" }

func (*native) unpack(content []byte) ([]byte, error) { return content, nil }

func (*native) repack(_, edited []byte) ([]byte, error) { return edited, nil }

// bodyMembers are the members of a call that are its body. A call has at most one of them.
var bodyMembers = []string{"body", "bodyBase64", "json"}

// nativeStrings are the members that can only be strings.
var nativeStrings = []string{
	"requestId", "call.url", "call.method", "callback.url", "callback.method", "notBefore", "deadline", "giveUp",
	"createdAt", "latestAttemptAt", "nextAttemptAt",
}

func (n *native) setPath(content []byte, path []string, text string) ([]byte, error) {
	of := part(path[0])
	switch {
	case len(path) == 3 && path[1] == "headers" && (of == partCall || of == partCallback):
		return n.changeHeader(content, of, path[2], &text)
	case len(path) == 2 && of == partCall && slices.Contains(bodyMembers, path[1]):
		return n.setBody(content, path[1], text)
	case slices.Contains(nativeStrings, strings.Join(path, ".")):
		return n.names().Set(content, path, asString(text))
	}
	return n.names().Set(content, path, asJSON(text))
}

// setBody replaces the body. The member json implies a Content-Type: another kind of body gets it as a header, so that
// the target can still read it.
func (n *native) setBody(content []byte, kind, text string) (_ []byte, err error) {
	values := map[string]json.RawMessage{kind: quote(text)}
	switch kind {
	case "json":
		values[kind] = asJSON(text)
	case "bodyBase64":
		values[kind] = asString(text)
	}
	wasJSON := n.names().Get(content, string(partCall), "json") != nil
	for _, member := range append([]string{kind}, bodyMembers...) {
		if content, err = n.names().Set(content, []string{string(partCall), member}, values[member]); err != nil {
			return nil, err
		}
	}
	headers := n.names().Get(content, string(partCall), "headers")
	if !wasJSON || kind == "json" || strictjson.FoldNames.Get(headers, "Content-Type") != nil {
		return content, nil
	}
	contentType := "application/json"
	return n.changeHeader(content, partCall, "Content-Type", &contentType)
}

func (n *native) changeHeader(content []byte, of part, name string, value *string) ([]byte, error) {
	return n.names().
		Change(content, []string{string(of), "headers"}, func(old json.RawMessage) (json.RawMessage, error) {
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
						headers[i].Value, value = quote(*value), nil
					}
				}
			}
			if after := strictjson.Pack('{', headers); !bytes.Equal(before, after) {
				return after, nil
			}
			return old, nil
		})
}

func indexHeader(headers []strictjson.Member, name string) int {
	return slices.IndexFunc(headers, func(m strictjson.Member) bool { return strings.EqualFold(m.Name, name) })
}

func (n *native) replaceHost(content []byte, of part, replace HostReplacer) ([]byte, error) {
	content, err := n.names().
		Change(content, []string{string(of), "url"}, func(old json.RawMessage) (json.RawMessage, error) {
			return mapStrings(old, func(text string) string { return replaceInURL(text, replace) }), nil
		})
	if err != nil {
		return nil, err
	}
	return n.names().
		Change(content, []string{string(of), "headers"}, func(old json.RawMessage) (json.RawMessage, error) {
			return strictjson.FoldNames.Change(old, []string{"Host"},
				func(host json.RawMessage) (json.RawMessage, error) {
					return mapStrings(host, func(text string) string {
						_, text = replace("", text)
						return text
					}), nil
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
		if changed := change(text); changed != text {
			return quote(changed)
		}
		return value
	}
	elements, err := strictjson.Elements(orNull(value))
	if err != nil {
		return value
	}
	before := strictjson.PackArray(elements)
	for i, element := range elements {
		elements[i] = mapStrings(element, change)
	}
	if after := strictjson.PackArray(elements); !bytes.Equal(before, after) {
		return after
	}
	return value
}
