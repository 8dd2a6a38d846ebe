package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/strictjson"
)

const (
	maxTrailEntries = 100
	maxTrailBytes   = 2 << 10
	maxTrailError   = 100
	// firstAttempts is how many attempts at the trail's beginning are kept when it gets too long.
	firstAttempts = 3
)

// Attempt is one call in the trail.
type Attempt struct {
	At time.Time
	// Status is the target's answer, 0 when there was none.
	Status int
	// Error is a short reason when there was no answer.
	Error string
	Took  time.Duration
}

// trailNames are a format's names for what is known of an attempt.
type trailNames struct {
	at, status, error, tookMs string
	is                        func(name, wanted string) bool
}

var (
	nativeTrail = trailNames{"at", "status", "error", "tookMs", func(name, wanted string) bool { return name == wanted }}
	nexusTrail  = trailNames{"At", "Status", "Error", "TookMs", strings.EqualFold}
)

// AppendAttempt returns the trail with one more attempt, shortened in its middle to at most 2 KiB.
func AppendAttempt(trail []Attempt, a Attempt) []Attempt {
	a.Error = clip(a.Error, maxTrailError)
	longer := append(slices.Clip(trail), a)
	for len(longer) > firstAttempts+1 && len(encodeTrail(longer, nativeTrail)) > maxTrailBytes {
		longer = slices.Concat(longer[:firstAttempts], longer[firstAttempts+1:])
	}
	return longer
}

func encodeTrail(trail []Attempt, names trailNames) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, a := range trail {
		if i > 0 {
			b.WriteByte(',')
		}
		w := newObject()
		w.time(names.at, a.At)
		if a.Status != 0 {
			w.raw(names.status, fmt.Append(nil, a.Status))
		}
		if a.Error != "" {
			w.text(names.error, a.Error)
		}
		w.raw(names.tookMs, fmt.Append(nil, a.Took.Milliseconds()))
		b.Write(w.end())
	}
	b.WriteByte(']')
	return b.Bytes()
}

func parseTrail(value json.RawMessage, names trailNames) ([]Attempt, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxTrailEntries {
		return nil, fmt.Errorf("holds %d attempts, more than the %d that we ever keep", len(elements), maxTrailEntries)
	}
	trail := make([]Attempt, len(elements))
	for i, element := range elements {
		if trail[i], err = parseAttempt(element, names); err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
	}
	return trail, nil
}

func parseAttempt(value json.RawMessage, names trailNames) (Attempt, error) {
	members, err := strictjson.Members(value)
	if err != nil {
		return Attempt{}, err
	}
	var attempt Attempt
	for _, m := range members {
		switch {
		case names.is(m.Name, names.at):
			attempt.At, err = strictjson.Time(m.Value)
		case names.is(m.Name, names.status):
			attempt.Status, err = strictjson.Int(m.Value, 0, 999)
		case names.is(m.Name, names.error):
			attempt.Error, err = strictjson.String(m.Value)
			attempt.Error = clip(attempt.Error, maxTrailError)
		case names.is(m.Name, names.tookMs):
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
