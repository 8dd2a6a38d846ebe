package envelope

import (
	"errors"
	"fmt"
	"strings"

	"asynccaller/handler/internal/strictjson"
)

// format is one way to write an envelope. It keeps the envelope as it came, so that what is written
// again is the same but for the state.
type format interface {
	// successor writes the successor and deadLetter the content for the poison queue, in at most limit
	// bytes.
	successor(e *Envelope, limit int) (Content, error)
	deadLetter(e *Envelope, d DeadLetter, limit int) (Content, error)
	// encodeCallback writes the envelope that reports the outcome. Its payload can be lengthened by
	// payloadRoom(spare) bytes of JSON when the whole may get longer by spare bytes.
	encodeCallback(e *Envelope, r Report, withoutContext bool) []byte
	payloadRoom(spare int) int
	// checkRoom makes sure that each of them will fit, whatever becomes of the call.
	checkRoom(e *Envelope, limit int) error
	editor
}

// The members whose presence tells the formats apart.
const (
	nativeMarker = "asyncCaller"
	nexusMarker  = "RawRequest"
)

// ErrNotEnvelope means that a JSON object is an envelope of neither format.
var ErrNotEnvelope = errors.New(`asyncCaller: missing, and so is RawRequest: this is no envelope ` +
	`(every native envelope has "asyncCaller":1, every Nexus envelope a "RawRequest")`)

// Parse reads an envelope in either format. Its errors name the member that is wrong, or the line and
// column where the text stops being JSON; they never quote a header's value, a body or a URL. The
// envelope shares the memory of content.
func Parse(content []byte) (*Envelope, error) {
	members, err := strictjson.Object(content)
	if err != nil {
		return nil, err
	}
	native, nexus := markers(members)
	var e *Envelope
	switch {
	case native && nexus:
		return nil, strictjson.In(nativeMarker, errors.New("stands beside RawRequest: an envelope is either native or Nexus"))
	case native:
		e, err = parseNative(members)
	case nexus:
		e, err = parseNexus(members)
	default:
		return nil, ErrNotEnvelope
	}
	if err != nil {
		return nil, err
	}
	e.size = len(content)
	return e, nil
}

// markers reports which formats' markers are among an envelope's members.
func markers(members []strictjson.Member) (native, nexus bool) {
	for _, m := range members {
		native = native || m.Name == nativeMarker
		nexus = nexus || strings.EqualFold(m.Name, nexusMarker)
	}
	return native, nexus
}

// Identify returns whose message it is and its request id, as far as both can be read from content that
// [Parse] refuses.
func Identify(content []byte) (tenant Tenant, requestID string) {
	members, err := strictjson.Object(content)
	if err != nil {
		return Tenant{}, ""
	}
	native, nexus := markers(members)
	for _, m := range members {
		text, err := strictjson.String(m.Value)
		if err != nil {
			continue
		}
		switch name := nameIn(nexusNames, m.Name); {
		case requestID == "" && (name == nexusOriginalRequestID || strings.EqualFold(m.Name, "requestId")) && ValidRequestID(text):
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

// Content is an envelope ready to be encoded for the queue.
type Content struct {
	Bytes []byte
	// LeftOut names what had no room; empty when all of it had.
	LeftOut string
}

// TooLargeError says that an envelope leaves no room for what we have to add to it.
type TooLargeError struct {
	Size, Limit, Excess int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the envelope has %d bytes and a message holds %d: shorten it by %d to leave room for its state", e.Size, e.Limit, e.Excess)
}

// tooLarge is the error for content that should have fitted.
func tooLarge(content []byte, limit int) error {
	return &TooLargeError{Size: len(content), Limit: limit, Excess: len(content) - limit}
}

const maxDetail = 300

// Successor returns the successor's content: the envelope with its present state, in at most limit bytes.
func (e *Envelope) Successor(limit int) (Content, error) {
	return e.format.successor(e, limit)
}

// DeadLettered is the content for the poison queue: the envelope with the reason why it is there, in
// at most limit bytes.
func (e *Envelope) DeadLettered(d DeadLetter, limit int) (Content, error) {
	d.Detail = clip(d.Detail, maxDetail)
	return e.format.deadLetter(e, d, limit)
}
