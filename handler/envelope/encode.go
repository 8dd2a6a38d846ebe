package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxTrailBytes = 2 << 10
	maxTrailError = 100
	// firstAttempts is how many attempts at the trail's beginning are kept when it gets too long.
	firstAttempts = 3
	maxDetail     = 300
	// comfortableRoom is more than anything that we ever add to an envelope but the trail, which goes
	// first when there is no room.
	comfortableRoom = 2 << 10
)

// level says how much of an envelope is left out so that it fits. The call, the callback and what
// bounds the retries are never left out.
type level int

const (
	complete level = iota
	latestOfTrail
	noTrail
	noTimes    // nor latestAttemptAt, nextAttemptAt and, where a deadline makes it needless, createdAt
	noExtras   // nor priority and members that we do not know
	noContext  // nor the sender's context
	noAttempts // nor attempts: the waits begin at the first again, the deadline still ends them
	// bare is for dead letters only: neither createdAt nor deadline, which start anew when it is moved
	// back, and of the dead letter only its reason.
	bare
	barest // nor notBefore and retry: moved back, it is retried by the configured policy
)

func (l level) leavesOut() string {
	switch l {
	case complete:
		return ""
	case latestOfTrail, noTrail:
		return "trail"
	case noTimes:
		return "trail and times"
	case noExtras:
		return "trail, times and unknown members"
	case noContext:
		return "trail, times, unknown members and context"
	case noAttempts, bare:
		return "trail, times, unknown members, context and attempts"
	case barest:
		return "trail, times, unknown members, context, attempts and retry"
	}
	return ""
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

// WithState returns the envelope with another state.
func (e *Envelope) WithState(s State) *Envelope {
	next := *e
	next.State = s
	return &next
}

// PutBack is the successor's content: the envelope with its present state, in at most limit bytes.
func (e *Envelope) PutBack(limit int) (Content, error) {
	return e.fit(limit, nil, noAttempts)
}

// DeadLettered is the content for the poison queue: the envelope with the reason why it is there, in
// at most limit bytes.
func (e *Envelope) DeadLettered(d DeadLetter, limit int) (Content, error) {
	d.Detail = clip(d.Detail, maxDetail)
	return e.fit(limit, &d, barest)
}

func (e *Envelope) fit(limit int, d *DeadLetter, last level) (Content, error) {
	var content []byte
	for l := complete; l <= last; l++ {
		if content = e.encode(l, d); len(content) <= limit {
			return Content{Bytes: content, LeftOut: l.leavesOut()}, nil
		}
	}
	return Content{}, &TooLargeError{Size: len(content), Limit: limit, Excess: len(content) - limit}
}

// checkRoom makes sure that every form in which the envelope may have to be written fits.
func (e *Envelope) checkRoom(limit int) error {
	if e.size+comfortableRoom <= limit {
		return nil
	}
	reason := strings.Repeat("x", maxReason)
	longest := max(len(e.encode(noAttempts, nil)), len(e.encode(barest, &DeadLetter{Reason: reason})))
	if e.Callback != nil {
		report := Report{Reason: reason, Attempts: maxAttempts, At: e.CreatedAt}
		longest = max(longest, len(e.encodeCallback(report, true))+callbackRoom)
	}
	if longest > limit {
		return &TooLargeError{Size: e.size, Limit: limit, Excess: longest - limit}
	}
	return nil
}

func (e *Envelope) encode(l level, d *DeadLetter) []byte {
	w := newObject()
	w.raw(marker, []byte(version))
	w.text("requestId", e.RequestID)
	for _, m := range e.members {
		if e.keeps(m.Name, l) {
			w.raw(m.Name, m.Value)
		}
	}
	if l < noTimes || (l < bare && e.Deadline.IsZero()) {
		w.time("createdAt", e.CreatedAt)
	}
	if l < noAttempts && e.Attempts > 0 {
		w.raw("attempts", fmt.Append(nil, e.Attempts))
	}
	if l < noTimes {
		w.time("latestAttemptAt", e.LatestAttemptAt)
		w.time("nextAttemptAt", e.NextAttemptAt)
	}
	switch {
	case len(e.Trail) == 0:
	case l < latestOfTrail:
		w.raw("trail", encodeTrail(e.Trail))
	case l < noTrail:
		w.raw("trail", encodeTrail(e.Trail[len(e.Trail)-1:]))
	}
	switch {
	case d == nil:
	case l < bare:
		w.raw("deadLetter", marshal(d))
	default:
		reason := newObject()
		reason.text("reason", d.Reason)
		w.raw("deadLetter", reason.end())
	}
	return w.end()
}

// keeps reports whether a member is written as it came. State is written anew and so is not kept.
func (e *Envelope) keeps(name string, l level) bool {
	switch name {
	case marker, "requestId", "createdAt", "attempts", "latestAttemptAt", "nextAttemptAt", "trail", "deadLetter":
		return false
	case "call", "callback", "giveUp":
		return true
	case "retry", "notBefore":
		return l < barest
	case "deadline":
		return !e.Deadline.IsZero() && l < bare
	case "context":
		return l < noContext
	default:
		return l < noExtras
	}
}

// AppendAttempt returns the trail with one more attempt, shortened in its middle to at most 2 KiB.
func AppendAttempt(trail []Attempt, a Attempt) []Attempt {
	a.Error = clip(a.Error, maxTrailError)
	longer := append(slices.Clip(trail), a)
	for len(longer) > firstAttempts+1 && len(encodeTrail(longer)) > maxTrailBytes {
		longer = slices.Concat(longer[:firstAttempts], longer[firstAttempts+1:])
	}
	return longer
}

func encodeTrail(trail []Attempt) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, a := range trail {
		if i > 0 {
			b.WriteByte(',')
		}
		w := newObject()
		w.time("at", a.At)
		if a.Status != 0 {
			w.raw("status", fmt.Append(nil, a.Status))
		}
		if a.Error != "" {
			w.text("error", a.Error)
		}
		w.raw("tookMs", fmt.Append(nil, a.Took.Milliseconds()))
		b.Write(w.end())
	}
	b.WriteByte(']')
	return b.Bytes()
}

// object writes a JSON object member by member, so that what came stays byte for byte.
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
	w.Write(quote(name))
	w.WriteByte(':')
	w.Write(value)
}

func (w *object) text(name, value string) { w.raw(name, quote(value)) }

// time leaves out a zero time. Milliseconds, because a trail entry is not worth more bytes.
func (w *object) time(name string, t time.Time) {
	if !t.IsZero() {
		w.raw(name, quote(t.UTC().Format("2006-01-02T15:04:05.999Z07:00")))
	}
}

func (w *object) end() []byte {
	w.WriteByte('}')
	return w.Bytes()
}

func quote(text string) []byte { return marshal(text) }

// marshal encodes a value that always can be, without the escapes that only HTML needs.
func marshal(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// clip shortens a text to at most limit bytes, at a character's boundary.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
