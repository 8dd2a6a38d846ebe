package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/dotnet"
	"asynccaller/handler/internal/strictjson"
)

const (
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

// AppendAttempt returns the trail with one more attempt. It drops attempts from the middle to keep the trail within 2 KiB.
func AppendAttempt(trail []Attempt, a Attempt) []Attempt {
	a.Error = clip(a.Error, maxTrailError)
	longer := append(slices.Clip(trail), a)
	for len(longer) > firstAttempts+1 && len(camelCase.trail(longer)) > maxTrailBytes {
		longer = slices.Concat(longer[:firstAttempts], longer[firstAttempts+1:])
	}
	return longer
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
	}
	w.raw(s.write("deadLetter"), inner.end())
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
		case s.names(m.Name, "at"):
			attempt.At, err = strictjson.Time(m.Value)
		case s.names(m.Name, "status"):
			attempt.Status, err = strictjson.Int(m.Value, 0, 999)
		case s.names(m.Name, "error"):
			attempt.Error, err = strictjson.String(m.Value)
			attempt.Error = clip(attempt.Error, maxTrailError)
		case s.names(m.Name, "tookMs"):
			var ms int
			ms, err = strictjson.Int(m.Value, 0, int(24*time.Hour/time.Millisecond))
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

// readEach reads the elements of an array, and puts an element's index before its error.
func readEach[T any](elements []json.RawMessage, read func(json.RawMessage) (T, error)) (_ []T, err error) {
	values := make([]T, len(elements))
	for i, element := range elements {
		if values[i], err = read(element); err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
	}
	return values, nil
}
