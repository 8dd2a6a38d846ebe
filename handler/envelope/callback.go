package envelope

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// maxReason is the length of the longest reason that we give; longer ones would break the promise that
// an accepted envelope always fits.
const maxReason = 16

// callbackRoom is what a callback leaves free in its message, so that it is accepted as every envelope.
const callbackRoom = 256

// callbackSuffix makes a callback's request id from the call's, so that the receiver can tell a
// callback that comes twice by its Idempotency-Key.
const callbackSuffix = ".callback"

// Report is what a callback tells the sender.
type Report struct {
	// Status is the target's latest answer, or 504 when it never gave one.
	Status int
	// Payload is the body of that answer as text.
	Payload string
	// MediaType is the payload's, without parameters; empty means application/json.
	MediaType string
	// Truncated says that Payload is not all of the body.
	Truncated bool
	// Attempts is the number of calls made.
	Attempts int
	// Reason is why the call ended: at most 16 characters.
	Reason string
	// At is when the call ended: the time at which the callback is created.
	At time.Time
}

// CallbackWith is the content of the callback envelope, which is a call of its own: its own attempts
// and deadline, no callback. The payload is cut so that it fits into limit bytes with room for its own
// state.
func (e *Envelope) CallbackWith(r Report, limit int) (Content, error) {
	limit -= callbackRoom
	r.Payload = queueSafe(r.Payload)
	content := e.encodeCallback(r, false)
	if len(content) <= limit {
		return Content{Bytes: content}, nil
	}
	whole := r.Payload
	r.Payload, r.Truncated = "", true
	content = e.encodeCallback(r, false)
	if len(content) <= limit {
		r.Payload = cut(whole, limit-len(content))
		return Content{Bytes: e.encodeCallback(r, false), LeftOut: "the end of the payload"}, nil
	}
	content = e.encodeCallback(r, true)
	if len(content) <= limit {
		return Content{Bytes: content, LeftOut: "payload and context"}, nil
	}
	return Content{}, &TooLargeError{Size: len(content), Limit: limit, Excess: len(content) - limit}
}

func (e *Envelope) encodeCallback(r Report, withoutContext bool) []byte {
	call := newObject()
	call.raw("url", e.Callback.url)
	if e.Callback.method != nil {
		call.raw("method", e.Callback.method)
	}
	if e.Callback.headers != nil {
		call.raw("headers", e.Callback.headers)
	}
	call.raw("json", e.callbackBody(r, withoutContext))

	w := newObject()
	w.raw(marker, []byte(version))
	w.text("requestId", callbackID(e.RequestID))
	w.time("createdAt", r.At)
	w.raw("call", call.end())
	return w.end()
}

func (e *Envelope) callbackBody(r Report, withoutContext bool) []byte {
	body := newObject()
	body.text("Id", e.RequestID)
	if e.Context == nil || withoutContext {
		body.raw("Context", []byte("null"))
	} else {
		body.raw("Context", e.Context)
	}
	body.raw("StatusCode", fmt.Append(nil, r.Status))
	body.text("Payload", r.Payload)
	mediaType := r.MediaType
	if mediaType == "" {
		mediaType = "application/json"
	}
	body.text("PayloadMediaType", clip(mediaType, 100))
	body.raw("Attempts", fmt.Append(nil, r.Attempts))
	body.text("Reason", r.Reason)
	body.raw("PayloadTruncated", fmt.Append(nil, r.Truncated))
	return body.end()
}

func callbackID(requestID string) string {
	if id := requestID + callbackSuffix; len(id) <= maxRequestID {
		return id
	}
	sum := sha256.Sum256([]byte(requestID))
	return hex.EncodeToString(sum[:]) + callbackSuffix
}

// queueSafe replaces what a queue message cannot hold when it is not encoded as base64: bytes that are
// not UTF-8, and the two characters that XML forbids and JSON does not escape.
func queueSafe(text string) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	return strings.NewReplacer("\ufffe", "\ufffd", "\uffff", "\ufffd").Replace(text)
}

// cut returns the longest beginning of a text that takes at most room bytes as JSON.
func cut(text string, room int) string {
	for at, r := range text {
		if room -= escapedSize(r); room < 0 {
			return text[:at]
		}
	}
	return text
}

// escapedSize is how many bytes marshal writes for a character inside a string, or a few more.
func escapedSize(r rune) int {
	switch {
	case r == '"', r == '\\':
		return 2
	case r < ' ', r == 0x7f, r == '\u2028', r == '\u2029', r == utf8.RuneError:
		return 6
	}
	return utf8.RuneLen(r)
}
