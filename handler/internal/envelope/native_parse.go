package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"asynccaller/handler/internal/strictjson"
)

const (
	// nativeVersion is the value of the marker.
	nativeVersion = "1"
	maxRequestID  = 128
	maxAttempts   = 1_000_000_000
	// maxContextDepth leaves room for the levels that a callback adds: JSON readers accept 10,000.
	maxContextDepth = 1000
)

// native is our own format, version 1.
type native struct {
	// members is the envelope as it came.
	members []strictjson.Member
	// callback is the callback without its body, and callbackMembers its members as they came.
	callback        Call
	callbackMembers []strictjson.Member
}

func (n *native) name() Format { return FormatNative }

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
		return nil, strictjson.In("call", errMissing)
	case !e.Deadline.IsZero() && !e.Deadline.After(e.NotBefore):
		return nil, strictjson.In("deadline", errors.New("is not after notBefore: no call could ever be made"))
	}
	return e, nil
}

var errMissing = errors.New("missing")

func (n *native) set(e *Envelope, m strictjson.Member) (err error) {
	switch m.Name {
	case nativeMarker:
		if string(m.Value) != nativeVersion {
			err = errors.New("want 1, the only version there is")
		}
	case "requestId":
		e.RequestID, err = parseRequestID(m.Value)
	case "call":
		e.Call, err = parseCall(m)
	case "callback":
		err = n.setCallback(e, m)
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
		e.Retry = m.Value
	case "giveUp":
		e.GiveUp, err = parseGiveUp(m.Value)
	case "deadLetter":
		// An earlier handler or a person wrote this as an explanation. It must never prevent a call.
		e.DeadLetter = &DeadLetter{}
		_ = json.Unmarshal(m.Value, e.DeadLetter)
	case "attempts":
		e.Attempts, err = strictjson.Int(m.Value, 0, maxAttempts)
	case "createdAt":
		e.CreatedAt, err = strictjson.Time(m.Value)
	case "latestAttemptAt":
		e.LatestAttemptAt, err = strictjson.Time(m.Value)
	case "nextAttemptAt":
		e.NextAttemptAt, err = strictjson.Time(m.Value)
	case "trail":
		e.Trail, err = camelCase.parseTrail(m.Value)
	}
	return err
}

func (n *native) setCallback(e *Envelope, object strictjson.Member) error {
	n.callback.Method = http.MethodPost
	err := eachMember(object, func(m strictjson.Member) error {
		if strictjson.IsNull(m.Value) || (m.Name != "url" && m.Name != "method" && m.Name != "headers") {
			return nil
		}
		n.callbackMembers = append(n.callbackMembers, m)
		return n.callback.set(m)
	})
	if err == nil && n.callback.URL == "" {
		err = strictjson.In("url", errMissing)
	}
	e.Callback = &Callback{URL: n.callback.URL}
	return err
}

// ValidRequestID reports whether a text is a valid request id: 1 to 128 visible ASCII characters.
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
	giveUp, ok := ParseGiveUp(text)
	if err == nil && !ok {
		err = errors.New(`want "dead-letter", "drop" or "fault"`)
	}
	return giveUp, err
}
