package envelope

import (
	"encoding/json"
	"strconv"
)

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
