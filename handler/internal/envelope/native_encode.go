package envelope

import (
	"fmt"
	"strings"
)

// comfortableRoom is more than anything that we ever add to an envelope but the trail, which goes
// first when there is no room.
const comfortableRoom = 2 << 10

// level says how much of a native envelope is left out so that it fits. The call, the callback and what
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

func (n *native) successor(e *Envelope, limit int) (Content, error) {
	return n.fit(e, limit, nil, noAttempts)
}

func (n *native) deadLetter(e *Envelope, d DeadLetter, limit int) (Content, error) {
	return n.fit(e, limit, &d, barest)
}

func (n *native) fit(e *Envelope, limit int, d *DeadLetter, last level) (Content, error) {
	var content []byte
	for l := complete; l <= last; l++ {
		if content = n.encode(e, l, d); len(content) <= limit {
			return Content{Bytes: content, LeftOut: l.leavesOut()}, nil
		}
	}
	return Content{}, tooLarge(content, limit)
}

func (n *native) checkRoom(e *Envelope, limit int) error {
	if e.size+comfortableRoom <= limit {
		return nil
	}
	reason := strings.Repeat("x", maxReason)
	longest := max(len(n.encode(e, noAttempts, nil)), len(n.encode(e, barest, &DeadLetter{Reason: reason})))
	if e.Callback != nil {
		report := Report{Reason: reason, Attempts: maxAttempts, At: e.CreatedAt}
		longest = max(longest, len(n.encodeCallback(e, report, true))+callbackRoom)
	}
	if longest > limit {
		return &TooLargeError{Size: e.size, Limit: limit, Excess: longest - limit}
	}
	return nil
}

func (n *native) encode(e *Envelope, l level, d *DeadLetter) []byte {
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
		w.raw("attempts", fmt.Append(nil, e.Attempts))
	}
	if l < noTimes {
		w.time("latestAttemptAt", e.LatestAttemptAt)
		w.time("nextAttemptAt", e.NextAttemptAt)
	}
	switch {
	case len(e.Trail) == 0:
	case l < latestOfTrail:
		w.raw("trail", encodeTrail(e.Trail, nativeTrail))
	case l < noTrail:
		w.raw("trail", encodeTrail(e.Trail[len(e.Trail)-1:], nativeTrail))
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
func (n *native) keeps(e *Envelope, name string, l level) bool {
	switch name {
	case nativeMarker, "requestId", "createdAt", "attempts", "latestAttemptAt", "nextAttemptAt", "trail", "deadLetter":
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
