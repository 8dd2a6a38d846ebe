package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// String reads a JSON string.
func String(value json.RawMessage) (string, error) {
	text, err := Bytes(value)
	return string(text), err
}

// Bytes reads a JSON string that may be long. The result shares the memory of a value without escapes.
func Bytes(value json.RawMessage) ([]byte, error) {
	if jsontext.Value(value).Kind() != '"' {
		return nil, wrongType('"', value)
	}
	if end := len(value) - 1; end > 0 && bytes.IndexByte(value, '\\') < 0 {
		return value[1:end:end], nil
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return nil, errors.New(`holds half of a surrogate pair (\ud800 to \udfff alone)`)
	}
	return text, nil
}

// Int reads a whole number from lowest to highest.
func Int(value json.RawMessage, lowest, highest int) (int, error) {
	n, err := strconv.Atoi(string(value))
	if err != nil || n < lowest || n > highest {
		return 0, fmt.Errorf("want a whole number from %d to %d", lowest, highest)
	}
	return n, nil
}

// Number reads a finite number.
func Number(value json.RawMessage) (float64, error) {
	if jsontext.Value(value).Kind() != '0' {
		return 0, wrongType('0', value)
	}
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || math.IsInf(n, 0) {
		return 0, errors.New("the number is too large")
	}
	return n, nil
}

// Time reads a time in the format of RFC 3339. It returns the time in UTC.
func Time(value json.RawMessage) (time.Time, error) {
	text, err := String(value)
	if err != nil {
		return time.Time{}, err
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil { // stricter than time.Parse
		return time.Time{}, errors.New(`want a time such as "2026-01-31T12:00:00Z"`)
	}
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}, errors.New("the time lies outside the years 1 to 9999 in UTC")
	}
	return t, nil
}

// Duration reads a duration: a Go duration ("90s", "6h") or a number of seconds. It is never negative.
func Duration(value json.RawMessage) (time.Duration, error) {
	invalid := errors.New(`want a duration such as "90s" or "6h", or a number of seconds`)
	if jsontext.Value(value).Kind() != '"' {
		seconds, err := Number(value)
		switch {
		case err != nil:
			return 0, invalid
		case seconds < 0:
			return 0, errors.New("a duration cannot be negative")
		case seconds >= math.MaxInt64/float64(time.Second):
			return 0, errors.New("the duration is too long")
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	text, err := String(value)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, invalid
	}
	if d < 0 {
		return 0, errors.New("a duration cannot be negative")
	}
	return d, nil
}

// kinds names the kinds of JSON values by their first byte.
var kinds = map[jsontext.Kind]string{
	'{': "an object", '[': "an array", '"': "a string", '0': "a number", 't': "a boolean", 'f': "a boolean", 'n': "null", 0: "nothing",
}

func wrongType(want jsontext.Kind, value []byte) error {
	return fmt.Errorf("want %s, not %s", kinds[want], kinds[jsontext.Value(value).Kind()])
}
