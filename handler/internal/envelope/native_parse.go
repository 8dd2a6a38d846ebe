package envelope

import (
	"encoding/json"
	"errors"
	"fmt"

	"asynccaller/handler/internal/retry"
	"asynccaller/handler/internal/strictjson"
)

const (
	// nativeVersion is the value of the marker.
	nativeVersion = "1"
	maxRequestID  = 128
	maxAttempts   = 1_000_000_000
	// maxContextDepth keeps a callback, which nests the context deeper, within the 10,000 levels that
	// encoding/json reads.
	maxContextDepth = 1000
)

// native is our own format, version 1.
type native struct {
	// members is the envelope as it came.
	members []strictjson.Member
	// callbackTo is how the callback is to be made, as it came.
	callbackTo nativeCallback
}

// nativeCallback holds members as they came; method and headers may be nil.
type nativeCallback struct{ url, method, headers json.RawMessage }

func parseNative(members []strictjson.Member) (*Envelope, error) {
	n := &native{members: members}
	e := &Envelope{format: n}
	for _, m := range members {
		if strictjson.IsNull(m.Value) && m.Name != "context" {
			continue // null means absent
		}
		if err := n.set(e, m); err != nil {
			return nil, strictjson.In(m.Name, err)
		}
	}
	switch {
	case e.Call.URL == "":
		return nil, strictjson.In("call", errors.New("missing"))
	case !e.Deadline.IsZero() && !e.Deadline.After(e.NotBefore):
		return nil, strictjson.In("deadline", errors.New("is not after notBefore: no call could ever be made"))
	}
	return e, nil
}

func (n *native) set(e *Envelope, m strictjson.Member) (err error) {
	switch m.Name {
	case nativeMarker:
		if string(m.Value) != nativeVersion {
			err = errors.New("want 1, the only version there is")
		}
	case "requestId":
		e.RequestID, err = parseRequestID(m.Value)
	case "call":
		e.Call, err = parseCall(m.Value)
	case "callback":
		e.Callback, n.callbackTo, err = parseCallback(m.Value)
	case "context":
		e.Context = m.Value
		if depth, _ := strictjson.Depth(m.Value); depth > maxContextDepth {
			err = fmt.Errorf("nested deeper than %d levels", maxContextDepth)
		}
	case "priority":
		e.Priority, err = strictjson.Int(m.Value, 1, 10)
	case "notBefore":
		e.NotBefore, err = strictjson.Time(m.Value)
	case "deadline":
		e.Deadline, err = strictjson.Time(m.Value)
	case "retry":
		var spec retry.Spec
		spec, e.RetryProblem = retry.ParseSpec(m.Value)
		e.Retry = &spec
	case "giveUp":
		e.GiveUp, err = parseGiveUp(m.Value)
	case "deadLetter":
		// What an earlier handler or a person wrote here only explains; it must never keep a call
		// from being made.
		e.DeadLetter = &DeadLetter{}
		_ = json.Unmarshal(m.Value, e.DeadLetter)
	default:
		err = setNativeState(&e.State, m)
	}
	return err
}

func setNativeState(s *State, m strictjson.Member) (err error) {
	switch m.Name {
	case "attempts":
		s.Attempts, err = strictjson.Int(m.Value, 0, maxAttempts)
	case "createdAt":
		s.CreatedAt, err = strictjson.Time(m.Value)
	case "latestAttemptAt":
		s.LatestAttemptAt, err = strictjson.Time(m.Value)
	case "nextAttemptAt":
		s.NextAttemptAt, err = strictjson.Time(m.Value)
	case "trail":
		s.Trail, err = parseTrail(m.Value, nativeTrail)
	}
	return err
}

// ValidRequestID reports whether a text can name a call: 1 to 128 visible ASCII characters.
func ValidRequestID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}

func parseRequestID(value json.RawMessage) (string, error) {
	id, err := strictjson.String(value)
	if err == nil && !ValidRequestID(id) {
		err = errors.New("want 1 to 128 visible ASCII characters")
	}
	return id, err
}

func parseGiveUp(value json.RawMessage) (GiveUp, error) {
	text, err := strictjson.String(value)
	if err != nil {
		return "", err
	}
	giveUp, ok := ParseGiveUp(text)
	if !ok {
		return "", errors.New(`want "dead-letter", "drop" or "fault"`)
	}
	return giveUp, nil
}
