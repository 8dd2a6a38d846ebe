package envelope

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
)

// Report is the outcome of a call, for its callback.
type Report struct {
	// Status is the target's latest answer, or 504 if there was none.
	Status int
	// Payload is the body of that answer as text.
	Payload string
	// MediaType is the payload's media type, without parameters; empty means application/json.
	MediaType string
	// Truncated is set if Payload is not the whole body.
	Truncated bool
	// Attempts is the number of calls made.
	Attempts int
	// Reason says why the call ended, in at most 16 characters.
	Reason string
	// At is when the call ended and the callback is created.
	At time.Time
	// Deadline is the callback's own deadline.
	Deadline time.Time
}

// begin writes the members of a callback's body that both formats have, under the names that Nexus receivers know.
func (r Report) begin(body *object, id string, context json.RawMessage) {
	body.text("Id", id)
	body.raw("Context", orNull(context))
	body.number("StatusCode", r.Status)
	body.text("Payload", r.Payload)
	body.text("PayloadMediaType", clip(cmp.Or(r.MediaType, "application/json"), maxMediaType))
}

// CallbackWith returns the content of the callback's envelope, which has attempts and a deadline of its own, and no
// callback. It cuts the payload so that the content fits into limit bytes and leaves room for the callback's state.
func (e *Envelope) CallbackWith(r Report, limit int) (Content, error) {
	limit -= callbackRoom
	r.Payload = queueSafe(r.Payload)
	content := e.format.encodeCallback(e, r, e.Context)
	if len(content) <= limit {
		return Content{Bytes: content}, nil
	}
	whole := r.Payload
	r.Payload, r.Truncated = "", true
	content = e.format.encodeCallback(e, r, e.Context)
	if len(content) <= limit {
		r.Payload = cut(whole, e.format.payloadRoom(limit-len(content)))
		return Content{Bytes: e.format.encodeCallback(e, r, e.Context), LeftOut: "the end of the payload"}, nil
	}
	content = e.format.encodeCallback(e, r, nil)
	if len(content) <= limit {
		return Content{Bytes: content, LeftOut: "payload and context"}, nil
	}
	return Content{}, &TooLargeError{Size: len(content), Limit: limit, Excess: len(content) - limit}
}

// queueSafe replaces what a queue message without base64 cannot hold: bytes that are not UTF-8, and the two characters
// that XML forbids and JSON does not escape.
func queueSafe(text string) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	return strings.NewReplacer("\ufffe", "\ufffd", "\uffff", "\ufffd").Replace(text)
}

// cut returns the longest prefix of a text that takes at most room bytes as JSON.
func cut(text string, room int) string {
	longer := sort.Search(room+1, func(n int) bool { return len(quote(clip(text, n))) > room+len(`""`) })
	return clip(text, longer-1)
}

// Answer is a target's answer to a call.
type Answer struct {
	Status int
	Header http.Header
	// Body is the beginning of the body; Truncated is set if there was more.
	Body      []byte
	Truncated bool
}

// MediaType returns the answer's Content-Type without parameters. It is empty if there is none, or if it is invalid.
func (a *Answer) MediaType() string {
	mediaType, _ := a.contentType()
	return mediaType
}

// Text returns the body as text. The charset comes from the Content-Type, or else from the body's byte order mark; the
// default, also for an unknown charset, is UTF-8. .NET's ReadAsStringAsync, which gives Nexus's callbacks their payload,
// does the same, except that it fails for an unknown charset.
func (a *Answer) Text() string {
	_, charset := a.contentType()
	if charset == "" || strings.EqualFold(charset, "utf-8") {
		if rest, ok := bytes.CutPrefix(a.Body, []byte("\xef\xbb\xbf")); ok {
			return string(rest)
		}
	}
	from := a.encoding(charset)
	if from == nil {
		return string(a.Body)
	}
	text, err := from.NewDecoder().Bytes(a.Body)
	if err != nil {
		return string(a.Body)
	}
	return string(text)
}

// encoding returns the encoding of a charset, or nil for UTF-8.
func (a *Answer) encoding(charset string) encoding.Encoding {
	switch strings.ToLower(charset) {
	case "":
		// UTF-32's mark begins with UTF-16's, but nobody sends UTF-32.
		if bytes.HasPrefix(a.Body, []byte("\xff\xfe")) || bytes.HasPrefix(a.Body, []byte("\xfe\xff")) {
			return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM)
		}
		return nil
	case "utf-8", "us-ascii":
		return nil
	case "utf-16", "unicode":
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM) // as in .NET; RFC 2781 says big-endian
	}
	known, err := ianaindex.IANA.Encoding(charset)
	if err != nil {
		return nil
	}
	return known // nil for a charset that is registered but not supported
}

func (a *Answer) contentType() (mediaType, charset string) {
	mediaType, parameters, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", ""
	}
	return mediaType, parameters["charset"]
}
