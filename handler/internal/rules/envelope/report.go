package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/dotnet"
)

// Report is the outcome of a call, for its callback.
type Report struct {
	// Status is the target's latest answer, or 504 if there was none.
	Status int
	// Payload is the body of that answer as text.
	Payload string
	// MediaType is the payload's media type, without parameters. One that .NET cannot parse, or that is longer than 100
	// bytes, becomes application/json, as if there were none.
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
	// trace is the trace of the call; empty if there is no room for it.
	trace Trace
}

// payloadTruncated is the member of a callback's body that says whether the payload is the whole answer.
const payloadTruncated = "PayloadTruncated"

// begin writes the members of a callback's body that both formats have, under the names that Nexus receivers know.
func (r Report) begin(body *object, id string, context json.RawMessage) {
	body.text("Id", id)
	body.raw("Context", orNull(context))
	body.number("StatusCode", r.Status)
	body.text("Payload", r.Payload)
	mediaType := r.MediaType
	if len(mediaType) > maxMediaType || !dotnet.IsMediaType(mediaType) {
		mediaType = jsonMediaType
	}
	body.text("PayloadMediaType", mediaType)
}

// CallbackWith returns the content of the callback's envelope, which has attempts and a deadline of its own, and no
// callback. It cuts the payload so that the content fits into limit bytes and leaves room for the callback's state.
func (e *Envelope) CallbackWith(r Report, limit int) (Content, error) {
	limit -= callbackRoom
	r.Payload, r.trace = queueSafe(r.Payload), e.Trace
	content := e.format.encodeCallback(e, r, e.Context)
	if len(content) <= limit {
		return Content{Bytes: content}, nil
	}
	whole := r.Payload
	r.Payload, r.Truncated = "", true
	content = e.format.encodeCallback(e, r, e.Context)
	if len(content) > limit {
		r.trace = Trace{}
		content = e.format.encodeCallback(e, r, e.Context)
	}
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
func cut(s string, room int) string {
	longer := sort.Search(room+1, func(n int) bool { return len(quote(text.Clip(s, n))) > room+len(`""`) })
	return text.Clip(s, longer-1)
}

// The limits of the delivery state. Parse refuses state beyond them, so what writes state must keep to them.
const (
	// MaxAttempts is the largest number of attempts that is counted, and that the C# side can read.
	MaxAttempts = math.MaxInt32

	maxTook         = 24 * time.Hour
	maxTrailEntries = 100
	maxTrailBytes   = 2 << 10
	maxTrailError   = 100
	// firstAttempts is the number of attempts at the beginning of a trail that survive when it gets too long.
	firstAttempts = 3
)

// Attempt is one call in the trail.
type Attempt struct {
	At time.Time
	// Status is the target's answer, or 0 if there was none.
	Status int
	// Error is a short reason if there was no answer.
	Error string
	Took  time.Duration
}

// AppendAttempt returns the trail with one more attempt. It drops attempts from the middle to keep the trail within 2
// KiB, but not the latest with an answer, which a callback reports.
func AppendAttempt(trail []Attempt, a Attempt) []Attempt {
	a.Error, a.Took = text.Clip(a.Error, maxTrailError), min(max(a.Took, 0), maxTook)
	longer := append(slices.Clip(trail), a)
	tooLong := func() bool {
		return len(longer) > maxTrailEntries || len(camelCase.trail(longer)) > maxTrailBytes
	}
	for len(longer) > firstAttempts+1 && tooLong() {
		drop := firstAttempts
		if latestAnswer(longer) == drop && drop+2 < len(longer) { // the last one stays as well
			drop++
		}
		longer = slices.Concat(longer[:drop], longer[drop+1:])
	}
	return longer
}

// latestAnswer returns the index of the latest attempt with an answer, or -1. A 2xx is none: it broke off.
func latestAnswer(trail []Attempt) int {
	for i, a := range slices.Backward(trail) {
		if a.Status != 0 && a.Status/100 != 2 {
			return i
		}
	}
	return -1
}

// spelling is how a format writes and compares member names, which are given in camelCase, and writes times.
type spelling struct {
	write func(name string) string
	names strictjson.Names
	time  func(time.Time) string
}

var (
	camelCase = spelling{
		write: func(name string) string { return name },
		names: strictjson.ExactNames,
		time:  func(t time.Time) string { return t.Format(time.RFC3339Nano) },
	}
	pascalCase = spelling{
		write: func(name string) string { return strings.ToUpper(name[:1]) + name[1:] },
		names: strictjson.FoldNames,
		time:  dotnet.FormatTime,
	}
)

func (s spelling) trail(trail []Attempt) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, a := range trail {
		if i > 0 {
			b.WriteByte(',')
		}
		w := newObject()
		w.time(s.write("at"), a.At)
		if a.Status != 0 {
			w.number(s.write("status"), a.Status)
		}
		if a.Error != "" {
			w.text(s.write("error"), a.Error)
		}
		w.number(s.write("tookMs"), int(a.Took.Milliseconds()))
		b.Write(w.end())
	}
	b.WriteByte(']')
	return b.Bytes()
}

// writeTrail writes the trail as far as a level keeps it: only the latest attempt from level latest on, nothing from
// level none on.
func (s spelling) writeTrail(w *object, trail []Attempt, l, latest, none level) {
	switch {
	case len(trail) == 0 || l >= none:
	case l >= latest:
		w.raw(s.write("trail"), s.trail(trail[len(trail)-1:]))
	default:
		w.raw(s.write("trail"), s.trail(trail))
	}
}

// writeDeadLetter writes why the envelope is a dead letter, at level bare only the reason.
func (s spelling) writeDeadLetter(w *object, d *DeadLetter, l, bare level) {
	if d == nil {
		return
	}
	inner := newObject()
	if l < bare {
		inner.text(s.write("at"), s.time(d.At))
	}
	inner.text(s.write("reason"), d.Reason)
	if l < bare {
		if d.Detail != "" {
			inner.text(s.write("detail"), d.Detail)
		}
		inner.text(s.write("queue"), d.Queue)
		inner.number(s.write("attempts"), d.Attempts)
		s.writeAnswer(inner, d.Answer)
	}
	w.raw(s.write("deadLetter"), inner.end())
}

func (s spelling) writeAnswer(w *object, x *Excerpt) {
	if x == nil {
		return
	}
	inner := newObject()
	inner.number(s.write("status"), x.Status)
	if x.MediaType != "" {
		inner.text(s.write("mediaType"), x.MediaType)
	}
	inner.text(s.write("text"), x.Text)
	if x.Truncated {
		inner.raw(s.write("truncated"), []byte("true"))
	}
	w.raw(s.write("answer"), inner.end())
}

func (s spelling) parseTrail(value json.RawMessage) ([]Attempt, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxTrailEntries {
		return nil, fmt.Errorf("holds %d attempts, more than the %d that we ever keep", len(elements), maxTrailEntries)
	}
	return readEach(elements, s.parseAttempt)
}

func (s spelling) parseAttempt(value json.RawMessage) (attempt Attempt, err error) {
	err = eachMember(strictjson.Member{Value: value}, func(m strictjson.Member) (err error) {
		switch {
		case strictjson.IsNull(m.Value): // absent
		case s.names(m.Name, "at"):
			attempt.At, err = strictjson.Time(m.Value)
		case s.names(m.Name, "status"):
			attempt.Status, err = strictjson.Int(m.Value, 0, 999)
		case s.names(m.Name, "error"):
			attempt.Error, err = strictjson.String(m.Value)
			attempt.Error = text.Clip(attempt.Error, maxTrailError)
		case s.names(m.Name, "tookMs"):
			var ms int
			ms, err = strictjson.Int(m.Value, 0, int(maxTook/time.Millisecond))
			attempt.Took = time.Duration(ms) * time.Millisecond
		}
		return err
	})
	return attempt, err
}

// eachMember calls read for each member of an object, and puts the member's name before its error.
func eachMember(object strictjson.Member, read func(strictjson.Member) error) error {
	members, err := object.Object()
	if err != nil {
		return err
	}
	for _, m := range members {
		if err := read(m); err != nil {
			return strictjson.In(m.Name, err)
		}
	}
	return nil
}

// readEach reads the elements of an array that are not null, and puts an element's index before its error.
func readEach[T any](elements []json.RawMessage, read func(json.RawMessage) (T, error)) ([]T, error) {
	values := make([]T, 0, len(elements))
	for i, element := range elements {
		if strictjson.IsNull(element) {
			continue // null means absent
		}
		value, err := read(element)
		if err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
		values = append(values, value)
	}
	return values, nil
}
