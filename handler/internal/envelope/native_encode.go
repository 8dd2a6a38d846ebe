package envelope

import (
	"encoding/json"
	"strconv"
)

// The levels of a native envelope.
const (
	latestOfTrail level = iota + 1 // only the latest attempt of the trail stays
	noTrail
	noTimes    // latestAttemptAt, nextAttemptAt and, if there is a deadline, createdAt are left out as well
	noExtras   // priority and unknown members as well
	noContext  // the sender's context as well
	noAttempts // attempts as well: the delays start again, the deadline still ends them
	// bare is for dead letters only. It leaves out createdAt and deadline, which start anew when the dead letter is moved
	// back, and keeps only the reason of deadLetter.
	bare
	barest // notBefore and retry as well: once moved back, the configured policy applies
)

// nativeLevels says what each level leaves out.
var nativeLevels = []string{
	latestOfTrail: "trail",
	noTrail:       "trail",
	noTimes:       "trail and times",
	noExtras:      "trail, times and unknown members",
	noContext:     "trail, times, unknown members and context",
	noAttempts:    "trail, times, unknown members, context and attempts",
	bare:          "trail, times, unknown members, context and attempts",
	barest:        "trail, times, unknown members, context, attempts and retry",
}

func (n *native) levels() (successor, deadLetter []string) { return nativeLevels[:bare], nativeLevels }

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
	"attempts": {}, "latestAttemptAt": {}, "nextAttemptAt": {}, "trail": {}, "deadLetter": {},
	"call": {barest + 1, true}, "callback": {barest + 1, true}, "giveUp": {barest + 1, false},
	"retry": {barest, false}, "notBefore": {barest, true}, "deadline": {bare, true},
	"context": {noContext, true}, "priority": {noExtras, true},
}

// keeps reports whether a level writes a member as it came.
func (n *native) keeps(e *Envelope, name string, l level) bool {
	member, known := nativeMembers[name]
	switch {
	case !known:
		return l < noExtras
	case name == "deadline" && e.Deadline.IsZero():
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
	for _, m := range n.callbackMembers {
		call.raw(m.Name, m.Value)
	}
	body := newObject()
	r.begin(body, e.RequestID, context)
	body.number("Attempts", r.Attempts)
	body.text("Reason", r.Reason)
	body.raw("PayloadTruncated", strconv.AppendBool(nil, r.Truncated))
	call.raw("json", body.end())

	w := newObject()
	w.raw(nativeMarker, []byte(nativeVersion))
	w.text("requestId", callbackID(e.RequestID))
	w.time("createdAt", r.At)
	w.raw("call", call.end())
	return w.end()
}

func callbackID(requestID string) string {
	if id := requestID + callbackSuffix; len(id) <= maxRequestID {
		return id
	}
	return hash(requestID) + callbackSuffix
}
