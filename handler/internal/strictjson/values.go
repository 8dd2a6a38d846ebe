package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// String reads a member's value that must be a string.
func String(value json.RawMessage) (string, error) {
	if value[0] != '"' {
		return "", wrongType("a string", value)
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), nil
	}
	if text, ok := AppendUnquoted(nil, value); ok {
		return string(text), nil
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return "", err
	}
	if holdsHalfPair(value) {
		return "", errors.New(`holds half of a surrogate pair (\ud800 to \udfff alone)`)
	}
	return text, nil
}

// Bytes is String for a long text. It shares the memory of the value where that has no escapes.
func Bytes(value json.RawMessage) ([]byte, error) {
	if value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1 : len(value)-1], nil
	}
	text, err := String(value)
	return []byte(text), err
}

// Int reads a member's value that must be a whole number from lowest to highest.
func Int(value json.RawMessage, lowest, highest int) (int, error) {
	n, err := strconv.Atoi(string(value))
	if err != nil || n < lowest || n > highest {
		return 0, fmt.Errorf("want a whole number from %d to %d", lowest, highest)
	}
	return n, nil
}

// Number reads a member's value that must be a finite number.
func Number(value json.RawMessage) (float64, error) {
	if c := value[0]; c != '-' && (c < '0' || c > '9') {
		return 0, wrongType("a number", value)
	}
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || math.IsInf(n, 0) {
		return 0, errors.New("the number is too large")
	}
	return n, nil
}

// Time reads a member's value that must be a time as RFC 3339 writes it. The result is in UTC.
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

// Duration reads a member's value that must be a duration: a Go duration ("90s", "6h") or a number of
// seconds. It is never negative.
func Duration(value json.RawMessage) (time.Duration, error) {
	invalid := errors.New(`want a duration such as "90s" or "6h", or a number of seconds`)
	if value[0] != '"' {
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

func wrongType(want string, value []byte) error {
	got := "a number"
	switch value[SkipSpace(value, 0)] {
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	case '"':
		got = "a string"
	case 't', 'f':
		got = "a boolean"
	case 'n':
		got = "null"
	}
	return fmt.Errorf("want %s, not %s", want, got)
}

// holdsHalfPair reports whether a string, as it is written, escapes one half of a surrogate pair without
// the other: no text has such a character, and encoding/json would put U+FFFD in its place.
func holdsHalfPair(value []byte) bool {
	for at := 0; at < len(value); at++ {
		if value[at] != '\\' {
			continue
		}
		high := escapedUnit(value, at)
		if !utf16.IsSurrogate(high) {
			at++ // the escaped character may be a backslash itself
			continue
		}
		if utf16.DecodeRune(high, escapedUnit(value, at+6)) == utf8.RuneError {
			return true
		}
		at += 11
	}
	return false
}

// escapedUnit is the UTF-16 unit that a \uXXXX at this place stands for, or 0 if there is none.
func escapedUnit(value []byte, at int) rune {
	if at+6 > len(value) || value[at] != '\\' || value[at+1] != 'u' {
		return 0
	}
	unit, err := strconv.ParseUint(string(value[at+2:at+6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(unit)
}
