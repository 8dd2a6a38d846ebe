// Package strictjson reads JSON that strangers wrote: one object at a time, every member in its order
// and byte for byte, nothing guessed. Unlike encoding/json it refuses invalid UTF-8, duplicate members
// and half surrogates, tells names apart by case, and says where a text stops being JSON.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Member is one member of an object. Value shares the memory of the text it was read from.
type Member struct {
	Name  string
	Value json.RawMessage
}

// SyntaxError says that a text is not JSON, and from where. Lines and columns count from 1; a column is
// a byte.
type SyntaxError struct {
	Line, Column int
	Problem      string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not JSON: line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// MemberError says what is wrong with one member. Path is written as in "call.headers[0]".
type MemberError struct {
	Path string
	Err  error
}

func (e *MemberError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *MemberError) Unwrap() error { return e.Err }

// In puts the name of the enclosing member before the path of an error; nil stays nil.
func In(name string, err error) error {
	if err == nil {
		return nil
	}
	inner, ok := errors.AsType[*MemberError](err)
	if !ok {
		return &MemberError{Path: name, Err: err}
	}
	if strings.HasPrefix(inner.Path, "[") {
		return &MemberError{Path: name + inner.Path, Err: inner.Err}
	}
	return &MemberError{Path: name + "." + inner.Path, Err: inner.Err}
}

// Index is the path of an array's element, to be put before an error's path by [In].
func Index(i int) string { return "[" + strconv.Itoa(i) + "]" }

// Object reads a text that must be one JSON object.
func Object(text []byte) ([]Member, error) {
	if err := check(text); err != nil {
		return nil, err
	}
	return members(bytes.TrimRight(text, " \t\r\n"))
}

// Members reads a member's value that must be an object.
func Members(value json.RawMessage) ([]Member, error) { return members(value) }

// members walks an object that is known to be valid JSON.
func members(text []byte) ([]Member, error) {
	at := skipSpace(text, 0)
	if text[at] != '{' {
		return nil, wrongType("an object", text)
	}
	var list []Member
	seen := map[string]bool{}
	for at = skipSpace(text, at+1); text[at] != '}'; {
		end := stringEnd(text, at)
		name, err := String(text[at:end])
		if err != nil {
			return nil, fmt.Errorf("a member's name: %w", err)
		}
		if seen[name] {
			return nil, &MemberError{Path: clip(name), Err: errors.New("appears twice")}
		}
		seen[name] = true
		start := skipSpace(text, skipSpace(text, end)+1)
		end = valueEnd(text, start)
		list = append(list, Member{Name: name, Value: text[start:end:end]})
		if at = skipSpace(text, end); text[at] == ',' {
			at = skipSpace(text, at+1)
		}
	}
	return list, nil
}

// Elements reads a member's value that must be an array.
func Elements(value json.RawMessage) ([]json.RawMessage, error) {
	if value[0] != '[' {
		return nil, wrongType("an array", value)
	}
	var list []json.RawMessage
	for at := skipSpace(value, 1); value[at] != ']'; {
		end := valueEnd(value, at)
		list = append(list, value[at:end:end])
		if at = skipSpace(value, end); value[at] == ',' {
			at = skipSpace(value, at+1)
		}
	}
	return list, nil
}

// String reads a member's value that must be a string.
func String(value json.RawMessage) (string, error) {
	if value[0] != '"' {
		return "", wrongType("a string", value)
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), nil
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return "", err
	}
	if replacements(text) > replacements(string(value))+strings.Count(strings.ToLower(string(value)), `\ufffd`) {
		return "", errors.New(`holds half of a surrogate pair (\ud800 to \udfff alone)`)
	}
	return text, nil
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
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
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

// IsNull reports whether a member's value is null.
func IsNull(value json.RawMessage) bool { return string(value) == "null" }

func check(text []byte) error {
	if !utf8.Valid(text) {
		return syntaxError(text, invalidAt(text), "invalid UTF-8")
	}
	var any json.RawMessage
	err := json.Unmarshal(text, &any)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntaxError(text, int(max(syntax.Offset-1, 0)), syntax.Error())
	}
	return err
}

func syntaxError(text []byte, offset int, problem string) *SyntaxError {
	before := text[:min(offset, len(text))]
	return &SyntaxError{
		Line:    bytes.Count(before, []byte("\n")) + 1,
		Column:  len(before) - bytes.LastIndexByte(before, '\n'),
		Problem: problem,
	}
}

func invalidAt(text []byte) int {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

func wrongType(want string, value []byte) error {
	got := "a number"
	switch value[skipSpace(value, 0)] {
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

// clip keeps a name of the sender's making short and printable in an error.
func clip(name string) string {
	const longest = 40
	if len(name) > longest {
		name = strings.ToValidUTF8(name[:longest], "") + "…"
	}
	quoted := strconv.Quote(name)
	return quoted[1 : len(quoted)-1]
}

func replacements(text string) int { return strings.Count(text, string(utf8.RuneError)) }

// The functions below walk text that is known to be valid JSON: every value and string has an end.

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n') {
		at++
	}
	return at
}

func stringEnd(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

func valueEnd(text []byte, at int) int {
	switch text[at] {
	case '"':
		return stringEnd(text, at)
	case '{', '[':
		return nestedEnd(text, at)
	}
	for ; at < len(text); at++ {
		switch text[at] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return at
		}
	}
	return at
}

func nestedEnd(text []byte, at int) int {
	for depth := 0; ; {
		switch text[at] {
		case '"':
			at = stringEnd(text, at)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if at++; depth == 0 {
			return at
		}
	}
}
