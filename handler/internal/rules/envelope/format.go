package envelope

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/text"
)

// format is one way to write an envelope. It keeps the envelope as it came, so that the next content differs only in
// the delivery state.
type format interface {
	name() Format
	// levels describes what each level leaves out. The levels of answered are those at which a dead letter holds the
	// answer.
	levels() (all, answered []string)
	// encode writes the envelope and, unless d is nil, why it is a dead letter. It fills up to limit bytes at levels
	// that cut something, and returns nil at a level that is of no use.
	encode(e *Envelope, l level, d *DeadLetter, limit int) []byte
	// encodeCallback writes the envelope that reports the outcome, with this context. Its payload can grow by
	// payloadRoom(spare) bytes of JSON if the whole content can grow by spare bytes.
	encodeCallback(e *Envelope, r Report, context json.RawMessage) []byte
	payloadRoom(spare int) int
	// callbackCall returns what the sender chooses of the callback's call, if there is a callback.
	callbackCall() (Call, error)
	// traceKey returns texts that are the same in all messages of a call, from its first on.
	traceKey(e *Envelope, messageID string) []string
	editor
}

// level says how much of an envelope is left out so that it fits. Each format has levels of its own, which leave out
// more and more. None leaves out the call, the callback, or the state without which the delivery could not continue:
// the number of attempts, when the next one is due, when to give up, and the ticket of a limit.
type level int

// complete is the first level of both formats. It leaves out nothing.
const complete level = 0

// The members that identify the formats.
const (
	nativeMarker = "asyncCaller"
	nexusMarker  = "RawRequest"
)

// ErrNotEnvelope means that a JSON object has no member that identifies a format.
var ErrNotEnvelope = errors.New(`asyncCaller: missing, and so is RawRequest: this is no envelope ` +
	`(every native envelope has "asyncCaller":1, every Nexus envelope a "RawRequest")`)

// Parse reads an envelope in either format. Its errors name the invalid member, or the line and column where the text
// stops being JSON. They never quote a header's value, a body or a URL. A [*WrappedError] names the form around an
// envelope. The envelope shares the memory of content.
func Parse(content []byte) (*Envelope, error) {
	e, err := ParseUnchecked(content)
	if err == nil {
		err = e.CheckBody()
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// ParseUnchecked is Parse without [Envelope.CheckBody], which can take some milliseconds. Before that, nothing may read
// the body.
func ParseUnchecked(content []byte) (*Envelope, error) {
	members, err := strictjson.Object(content)
	native, nexus := markers(members)
	var e *Envelope
	switch {
	case native && nexus:
		return nil, strictjson.In(nativeMarker,
			errors.New("appears together with RawRequest: an envelope is either native or Nexus"))
	case native:
		e, err = parseNative(members)
	case nexus:
		e, err = parseNexus(members)
	default:
		if _, forms := Unwrap(content); forms != nil {
			return nil, &WrappedError{forms}
		}
		err = cmp.Or(err, ErrNotEnvelope)
	}
	if err != nil {
		return nil, err
	}
	e.size, e.members = len(content), len(members)
	return e, nil
}

// Identify returns the tenant and the request id of content that [Parse] refuses, as far as they can be read. As in
// [Parse], the request id of a Nexus envelope is that of its RawRequest, or else the original one.
func Identify(content []byte) (tenant Tenant, requestID string) {
	content, _ = Unwrap(content)
	members, _ := strictjson.Object(content)
	native, nexus := markers(members)
	for _, m := range members {
		if !native && nexus && strings.EqualFold(m.Name, nexusMarker) {
			id, _ := strictjson.String(orNull(strictjson.FoldNames.Get(m.Value, rawID)))
			requestID = cmp.Or(asRequestID(id), requestID)
		}
		text, err := strictjson.String(m.Value)
		if err != nil {
			continue
		}
		name := nameIn(nexusNames, m.Name)
		isID := name == nexusOriginalRequestID || strings.EqualFold(m.Name, "requestId")
		switch {
		case isID && requestID == "" && ValidRequestID(text):
			requestID = text
		case native || !nexus:
		case name == nexusOrganization:
			tenant.Organization = text
		case name == nexusEnvironment:
			tenant.Environment = text
		}
	}
	return tenant, requestID
}

// markers reports which formats the members identify.
func markers(members []strictjson.Member) (native, nexus bool) {
	for _, m := range members {
		if strictjson.IsNull(m.Value) {
			continue // null means absent
		}
		native = native || m.Name == nativeMarker
		nexus = nexus || strings.EqualFold(m.Name, nexusMarker)
	}
	return native, nexus
}

// Content is an envelope to be encoded for the queue.
type Content struct {
	Bytes []byte
	// LeftOut names the parts that did not fit; it is empty if all parts did.
	LeftOut string
}

// TooLargeError reports an envelope without room for the state that we have to add.
type TooLargeError struct {
	Size, Limit, Excess int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the envelope has %d bytes and a message holds %d: shorten it by %d to leave room for its state",
		e.Size, e.Limit, e.Excess)
}

const (
	maxDetail = 300
	// maxReason is the length of the longest reason that we give.
	maxReason    = 16
	maxMediaType = 100
	// comfortableRoom exceeds the size of any addition to an envelope except its trail, trace and the answer, which are
	// the first parts to be left out.
	comfortableRoom = 2 << 10
	// callbackRoom is the space that a callback leaves free in its message, so that it is accepted like any envelope.
	callbackRoom = 256
)

// Successor returns the content of the successor: the envelope with its present state, in at most limit bytes.
func (e *Envelope) Successor(limit int) (Content, error) {
	levels, _ := e.format.levels()
	return e.fit(levels, nil, limit)
}

// DeadLettered returns the content for the poison queue: the envelope, the reason and the target's latest answer, in at
// most limit bytes. The answer is shortened, and left out, before anything else.
func (e *Envelope) DeadLettered(d DeadLetter, limit int) (Content, error) {
	d.Detail = text.Clip(d.Detail, maxDetail)
	state := e.State
	state.Ticket = 0 // once it is moved back, it begins anew
	e = e.WithState(state)
	levels, answered := e.format.levels()
	if e.Latest == nil {
		return e.fit(levels, &d, limit)
	}
	for longest := maxExcerpt; longest > 0; longest /= 2 {
		d.Answer = e.Latest.excerpt(longest)
		if content, err := e.fit(answered, &d, limit); err == nil {
			return content, nil
		}
	}
	d.Answer = nil
	content, err := e.fit(levels, &d, limit)
	content.LeftOut = strings.TrimSuffix("the answer, "+content.LeftOut, ", ")
	return content, err
}

// fit writes the envelope at the first level that fits.
func (e *Envelope) fit(levels []string, d *DeadLetter, limit int) (Content, error) {
	var content []byte
	for l, leftOut := range levels {
		content = e.format.encode(e, level(l), d, limit)
		if content != nil && len(content) <= limit {
			return Content{Bytes: content, LeftOut: leftOut}, nil
		}
	}
	return Content{}, &TooLargeError{Size: len(content), Limit: limit, Excess: len(content) - limit}
}

// checkRoom returns an error unless every content that we may have to write for the envelope fits.
func (e *Envelope) checkRoom(limit int) error {
	longestTime := time.Unix(0, 123456700) // with as many digits as a time can have
	longest := 0
	if e.size+comfortableRoom > limit {
		next := e.WithState(State{
			Attempts: MaxAttempts, CreatedAt: e.CreatedAt, LatestAttemptAt: longestTime, NextAttemptAt: longestTime,
			Ticket: MaxTicket,
		})
		if next.Deadline.IsZero() {
			next.Deadline = endOfTime // LimitDeadline may set one
		}
		levels, _ := e.format.levels()
		last := level(len(levels) - 1)
		longest = len(e.format.encode(next, last, nil, limit))
		next.Ticket = 0 // a dead letter has none
		letter := &DeadLetter{Reason: strings.Repeat("x", maxReason)}
		longest = max(longest, len(e.format.encode(next, last, letter, limit)))
	}
	if e.Callback != nil { // a Nexus callback holds its URL twice, so it can be longer than the envelope
		report := Report{
			Status: http.StatusOK, MediaType: "x/" + strings.Repeat("x", maxMediaType-len("x/")), Truncated: true,
			Attempts: MaxAttempts, Reason: strings.Repeat("x", maxReason), At: longestTime, Deadline: longestTime,
		}
		longest = max(longest, len(e.format.encodeCallback(e, report, nil))+callbackRoom)
	}
	if longest > limit {
		return &TooLargeError{Size: e.size, Limit: limit, Excess: longest - limit}
	}
	return nil
}

var null = json.RawMessage("null")

// object writes a JSON object member by member, so that values keep their bytes.
type object struct{ bytes.Buffer }

func newObject() *object {
	w := &object{}
	w.WriteByte('{')
	return w
}

func (w *object) raw(name string, value json.RawMessage) {
	if w.Len() > 1 {
		w.WriteByte(',')
	}
	w.Write(strictjson.AppendString(w.AvailableBuffer(), name))
	w.WriteByte(':')
	w.Write(value)
}

func (w *object) text(name, value string) { w.raw(name, quote(value)) }

func (w *object) number(name string, n int) { w.raw(name, strconv.AppendInt(nil, int64(n), 10)) }

// time writes a time to the millisecond. It leaves out a zero time.
func (w *object) time(name string, t time.Time) {
	if !t.IsZero() {
		w.text(name, t.UTC().Format("2006-01-02T15:04:05.999Z07:00"))
	}
}

func (w *object) end() []byte {
	w.WriteByte('}')
	return w.Bytes()
}

func quote(text string) []byte { return strictjson.AppendString(nil, text) }
