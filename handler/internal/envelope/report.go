package envelope

import (
	"cmp"
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

const maxMediaType = 100

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
	// Deadline is when the callback itself is given up.
	Deadline time.Time
}

// begin writes the members of a callback's body that both formats have, with the names that Nexus
// receivers know.
func (r Report) begin(body *object, id string, context []byte) {
	body.text("Id", id)
	body.raw("Context", context)
	body.raw("StatusCode", fmt.Append(nil, r.Status))
	body.text("Payload", r.Payload)
	body.text("PayloadMediaType", clip(cmp.Or(r.MediaType, "application/json"), maxMediaType))
}

// contextFor is the context as a callback hands it back.
func (e *Envelope) contextFor(withoutContext bool) []byte {
	if e.Context == nil || withoutContext {
		return null
	}
	return e.Context
}

// CallbackWith is the content of the callback envelope, which is a call of its own: its own attempts
// and deadline, no callback. The payload is cut so that it fits into limit bytes with room for its own
// state.
func (e *Envelope) CallbackWith(r Report, limit int) (Content, error) {
	limit -= callbackRoom
	r.Payload = queueSafe(r.Payload)
	content := e.format.encodeCallback(e, r, false)
	if len(content) <= limit {
		return Content{Bytes: content}, nil
	}
	whole := r.Payload
	r.Payload, r.Truncated = "", true
	content = e.format.encodeCallback(e, r, false)
	if len(content) <= limit {
		r.Payload = cut(whole, e.format.payloadRoom(limit-len(content)))
		return Content{Bytes: e.format.encodeCallback(e, r, false), LeftOut: "the end of the payload"}, nil
	}
	content = e.format.encodeCallback(e, r, true)
	if len(content) <= limit {
		return Content{Bytes: content, LeftOut: "payload and context"}, nil
	}
	return Content{}, tooLarge(content, limit)
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
