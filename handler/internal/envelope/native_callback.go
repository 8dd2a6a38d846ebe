package envelope

import "fmt"

// callbackSuffix makes a callback's request id from the call's, so that the receiver can tell a
// callback that comes twice by its Idempotency-Key.
const callbackSuffix = ".callback"

// payloadRoom is what of spare bytes the payload can take.
func (n *native) payloadRoom(spare int) int { return spare }

func (n *native) encodeCallback(e *Envelope, r Report, withoutContext bool) []byte {
	call := newObject()
	call.raw("url", n.callbackTo.url)
	if n.callbackTo.method != nil {
		call.raw("method", n.callbackTo.method)
	}
	if n.callbackTo.headers != nil {
		call.raw("headers", n.callbackTo.headers)
	}
	body := newObject()
	r.begin(body, e.RequestID, e.contextFor(withoutContext))
	body.raw("Attempts", fmt.Append(nil, r.Attempts))
	body.text("Reason", r.Reason)
	body.raw("PayloadTruncated", fmt.Append(nil, r.Truncated))
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
