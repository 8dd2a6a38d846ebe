package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/retry"
	"asynccaller/handler/strictjson"
)

const (
	// marker is the member that makes a JSON object an envelope, and its version.
	marker          = "asyncCaller"
	version         = "1"
	maxRequestID    = 128
	maxTrailEntries = 100
	maxAttempts     = 1_000_000_000
	// maxContextDepth keeps a callback, which nests the context deeper, within the 10,000 levels that
	// encoding/json reads.
	maxContextDepth = 1000
)

// ErrNotEnvelope means that a JSON object lacks the member asyncCaller.
var ErrNotEnvelope = errors.New(`asyncCaller: missing: this is no envelope (every envelope has "asyncCaller":1)`)

// Parse reads an envelope. Its errors name the member that is wrong, or the line and column where the
// text stops being JSON; they never quote a header's value, a body or a URL. The envelope shares the
// memory of content.
func Parse(content []byte) (*Envelope, error) {
	members, err := strictjson.Object(content)
	if err != nil {
		return nil, err
	}
	e := &Envelope{members: members, size: len(content)}
	marked := false
	for _, m := range members {
		marked = marked || m.Name == marker
		if strictjson.IsNull(m.Value) && m.Name != "context" {
			continue // null means absent
		}
		if err := e.set(m); err != nil {
			return nil, strictjson.In(m.Name, err)
		}
	}
	switch {
	case !marked:
		return nil, ErrNotEnvelope
	case e.Call.URL == "":
		return nil, strictjson.In("call", errors.New("missing"))
	case !e.Deadline.IsZero() && !e.Deadline.After(e.NotBefore):
		return nil, strictjson.In("deadline", errors.New("is not after notBefore: no call could ever be made"))
	}
	return e, nil
}

func (e *Envelope) set(m strictjson.Member) (err error) {
	switch m.Name {
	case marker:
		if string(m.Value) != version {
			err = errors.New("want 1, the only version there is")
		}
	case "requestId":
		e.RequestID, err = parseRequestID(m.Value)
	case "call":
		e.Call, err = parseCall(m.Value)
	case "callback":
		e.Callback, err = parseCallback(m.Value)
	case "context":
		if e.Context = m.Value; strictjson.Depth(m.Value) > maxContextDepth {
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
		err = e.State.set(m)
	}
	return err
}

func (s *State) set(m strictjson.Member) (err error) {
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
		s.Trail, err = parseTrail(m.Value)
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

func parseTrail(value json.RawMessage) ([]Attempt, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxTrailEntries {
		return nil, fmt.Errorf("holds %d attempts, more than the %d that we ever keep", len(elements), maxTrailEntries)
	}
	trail := make([]Attempt, len(elements))
	for i, element := range elements {
		if trail[i], err = parseAttempt(element); err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
	}
	return trail, nil
}

func parseAttempt(value json.RawMessage) (Attempt, error) {
	members, err := strictjson.Members(value)
	if err != nil {
		return Attempt{}, err
	}
	var attempt Attempt
	for _, m := range members {
		switch m.Name {
		case "at":
			attempt.At, err = strictjson.Time(m.Value)
		case "status":
			attempt.Status, err = strictjson.Int(m.Value, 0, 999)
		case "error":
			attempt.Error, err = strictjson.String(m.Value)
			attempt.Error = clip(attempt.Error, maxTrailError)
		case "tookMs":
			var ms int
			ms, err = strictjson.Int(m.Value, 0, int(24*time.Hour/time.Millisecond))
			attempt.Took = time.Duration(ms) * time.Millisecond
		}
		if err != nil {
			return Attempt{}, strictjson.In(m.Name, err)
		}
	}
	return attempt, nil
}
