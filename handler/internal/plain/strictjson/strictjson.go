// Package strictjson reads JSON from untrusted senders: one object or array at a time, with the members in their order
// and the bytes of their values. It is stricter than encoding/json: it refuses invalid UTF-8, duplicate names and half
// surrogates, compares names exactly, and reports the line and column at which a text stops being JSON. It skips a byte
// order mark before the text, as RFC 8259 allows.
//
// Object, Elements and Depth read any text. The functions that read a single value, such as String, want a value that
// Object or Elements returned; other bytes give an unspecified result or an error, but no panic.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/plain/bounds"

	"github.com/go-json-experiment/json/jsontext"
)

// Member is one member of an object. Value shares the memory of the object's text.
type Member struct {
	Name  string
	Value json.RawMessage
	read  *value // the value as it was read, for Object; nil after Release
}

// MemberError reports an invalid member. A path looks like "call.headers[0]".
type MemberError struct {
	Path string
	Err  error
}

func (e *MemberError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *MemberError) Unwrap() error { return e.Err }

// In puts the name of the enclosing member before the path of an error. It returns nil for nil.
func In(name string, err error) error {
	if err == nil {
		return nil
	}
	path := Quotable(name)
	if inner, ok := errors.AsType[*MemberError](err); ok {
		path, err = joined(path, inner.Path), inner.Err
	}
	return &MemberError{Path: path, Err: err}
}

// joined returns the path of a member inside another one.
func joined(outer, inner string) string {
	if outer == "" || strings.HasPrefix(inner, "[") {
		return outer + inner
	}
	return outer + "." + inner
}

// Index returns the path of an array's element, as a name for [In].
func Index(i int) string { return "[" + strconv.Itoa(i) + "]" }

// Object returns the members of one JSON object. No name may appear twice.
func Object(text []byte) ([]Member, error) { return members(read(text, '{', 2)) }

// Object is the function [Object] for the member's value. If it can, it does not read the text again: reading 48 KiB
// takes 50 µs.
func (m Member) Object() ([]Member, error) {
	if m.read == nil || m.read.inner == nil || !bytes.Equal(m.read.text, m.Value) {
		return Object(m.Value)
	}
	return members(m.read.inner, nil)
}

// Release drops what [Member.Object] would use, which takes a multiple of the memory of the text. Call it for a
// member that is kept.
func (m *Member) Release() { m.read = nil }

func members(values []value, err error) ([]Member, error) {
	if err != nil {
		return nil, err
	}
	list := make([]Member, len(values)/2)
	for i := range list {
		name, err := String(values[2*i].text)
		if err != nil {
			return nil, fmt.Errorf("a member's name: %w", err)
		}
		list[i] = Member{name, values[2*i+1].text, &values[2*i+1]}
	}
	if name, ok := repeated(list); ok {
		return nil, &MemberError{Path: Quotable(name), Err: errors.New("appears twice")}
	}
	return list, nil
}

// repeated returns the first name that appears a second time.
func repeated(list []Member) (name string, ok bool) {
	const few = 8 // comparing the names of an object of usual size is faster than hashing them
	var seen map[string]bool
	if len(list) > few {
		seen = make(map[string]bool, len(list))
	}
	for i, m := range list {
		isMet := seen[m.Name]
		if seen == nil {
			isMet = slices.ContainsFunc(list[:i], func(earlier Member) bool { return earlier.Name == m.Name })
		} else {
			seen[m.Name] = true
		}
		if isMet {
			return m.Name, true
		}
	}
	return "", false
}

// Elements returns the elements of one JSON array.
func Elements(text []byte) ([]json.RawMessage, error) {
	values, err := read(text, '[', 0)
	elements := make([]json.RawMessage, len(values))
	for i, v := range values {
		elements[i] = v.text
	}
	return elements, err
}

// Depth returns the depth to which a JSON value nests arrays and objects: 0 for a string or a number.
func Depth(text []byte) (int, error) {
	d, err := newDecoder(text)
	if err != nil {
		return 0, err
	}
	deepest := 0
	for {
		if _, err := d.ReadToken(); err != nil {
			return 0, d.syntaxError(err)
		}
		deepest = max(deepest, d.StackDepth())
		if d.StackDepth() == 0 {
			return deepest, d.end()
		}
	}
}

// IsNull reports whether a value is null.
func IsNull(value json.RawMessage) bool { return string(value) == "null" }

// value is a JSON value. Inner is set if the value is an object that has been split: its names and values in turn.
type value struct {
	text  json.RawMessage
	inner []value
}

// read reads one JSON value of a kind, '{' or '['. It returns the values directly inside; for an object, names
// alternate with values. It splits the objects among them as well, down to a number of levels.
func read(text []byte, kind jsontext.Kind, levels int) ([]value, error) {
	d, err := newDecoder(text)
	if err != nil {
		return nil, err
	}
	var v value
	next := d.PeekKind()
	expected := next == kind
	if expected {
		v, err = d.split(levels)
	} else {
		v, err = d.value(next, 0)
	}
	if err == nil {
		err = d.end()
	}
	if err == nil && !expected {
		err = wrongType(kind, d.text)
	}
	return v.inner, err
}

// decoder reads JSON values from a text. Its errors are syntax errors.
type decoder struct {
	*jsontext.Decoder
	text []byte
}

// newDecoder returns a decoder of a text without its byte order mark, or an error for a text that is not UTF-8.
// jsontext must accept invalid UTF-8, because it would otherwise refuse half surrogates in values that only travel
// along, and duplicate names, because only the level that [Object] reads must be free of them.
func newDecoder(text []byte) (decoder, error) {
	text, err := bom.Text(text)
	if err != nil {
		return decoder{}, err
	}
	tokens := jsontext.NewDecoder(bytes.NewBuffer(text),
		jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	d := decoder{tokens, text}
	if !utf8.Valid(text) {
		return d, notJSON(text, invalidAt(text), "invalid UTF-8")
	}
	return d, nil
}

// split reads the next value, an array or object, and the values inside.
func (d decoder) split(levels int) (value, error) {
	if _, err := d.ReadToken(); err != nil {
		return value{}, d.syntaxError(err)
	}
	start := d.InputOffset() - 1
	var inner []value
	for next := d.PeekKind(); next != '}' && next != ']'; next = d.PeekKind() {
		v, err := d.value(next, levels)
		if err != nil {
			return value{}, err
		}
		if inner == nil {
			inner = make([]value, 0, 8) // most objects of a message have two to four members
		}
		inner = append(inner, v)
	}
	if _, err := d.ReadToken(); err != nil {
		return value{}, d.syntaxError(err)
	}
	end := d.InputOffset()
	return value{d.text[start:end:end], inner}, nil
}

// value reads the next value, which is of the given kind. It splits an object if there are levels left.
func (d decoder) value(kind jsontext.Kind, levels int) (value, error) {
	if levels > 0 && kind == '{' {
		return d.split(levels - 1)
	}
	text, err := d.ReadValue()
	if err != nil {
		return value{}, d.syntaxError(err)
	}
	end := int(d.InputOffset())
	return value{text: d.text[end-len(text) : end : end]}, nil
}

// end returns an error unless only white space is left.
func (d decoder) end() error {
	rest := bytes.TrimLeft(d.text[d.InputOffset():], " \t\r\n")
	if len(rest) == 0 {
		return nil
	}
	return notJSON(d.text, len(d.text)-len(rest), "text after top-level value")
}

// syntaxError converts an error of jsontext. Any other error is the end of the text.
func (d decoder) syntaxError(err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok && !errors.Is(err, io.ErrUnexpectedEOF) {
		return notJSON(d.text, int(syntax.ByteOffset), syntax.Err.Error())
	}
	return notJSON(d.text, len(d.text), "unexpected end of JSON input")
}

// notJSON says where and why a text is not JSON. Lines and columns count from 1; a column is a byte.
func notJSON(text []byte, offset int, problem string) error {
	before := text[:offset]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("not JSON: line %d, column %d: %s", line, column, problem)
}

// invalidAt returns the index at which a text stops being UTF-8.
func invalidAt(text []byte) int {
	for at, r := range string(text) {
		if r == utf8.RuneError && !bytes.HasPrefix(text[at:], []byte("\ufffd")) {
			return at
		}
	}
	return len(text)
}

// Quotable returns the part of a sender's text that errors may quote: as much as looks like a name, at most 40 bytes.
// A member that is called "Authorization: Bearer ..." by mistake must not put a secret into a log.
func Quotable(name string) string {
	const longest = 40
	for at := range len(name) {
		c := name[at]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if at == longest || (!letter && !strings.ContainsRune("-_.$[]@*", rune(c))) {
			return name[:at] + "…"
		}
	}
	return name
}

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

// maxExact is the largest number up to which every whole number is a float64.
const maxExact = 1 << 53

// Int reads a whole number from lowest to highest. Its value counts: 1.0 and 1e2 are whole.
func Int(value json.RawMessage, lowest, highest int) (int, error) {
	allowed := bounds.New(lowest, highest)
	n, err := strconv.Atoi(string(value))
	if err != nil {
		real, notNumber := Number(value)
		n, err = int(real), notNumber
		if math.Abs(real) > maxExact || real != math.Trunc(real) {
			err = strconv.ErrRange
		}
	}
	if err != nil || !allowed.Contains(n) {
		return 0, fmt.Errorf("want a whole number %v", allowed)
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

// Time reads a time, see [bounds.ParseTime]. It returns the time in UTC.
func Time(value json.RawMessage) (time.Time, error) {
	text, err := String(value)
	if err != nil {
		return time.Time{}, err
	}
	t, err := bounds.ParseTime(text)
	return t.UTC(), err
}

// Duration reads a duration: a text ("90s", "1d12h", see [bounds.ParseDuration]) or a number of seconds. It is never
// negative.
func Duration(value json.RawMessage) (time.Duration, error) {
	invalid := errors.New(`want a duration such as "90s", "6h" or "1d12h", or a number of seconds`)
	if jsontext.Value(value).Kind() != '"' {
		seconds, err := Number(value)
		switch {
		case err != nil && jsontext.Value(value).Kind() == '0':
			return 0, bounds.ErrTooLong
		case err != nil:
			return 0, invalid
		case seconds < 0:
			return 0, errors.New("a duration cannot be negative")
		case seconds >= math.MaxInt64/float64(time.Second):
			return 0, bounds.ErrTooLong
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	text, err := String(value)
	if err != nil {
		return 0, err
	}
	d, err := bounds.ParseDuration(text)
	switch {
	case errors.Is(err, bounds.ErrTooLong):
		return 0, err
	case err != nil:
		return 0, invalid
	case d < 0:
		return 0, errors.New("a duration cannot be negative")
	}
	return d, nil
}

// kinds names the kinds of JSON values by their first byte.
var kinds = map[jsontext.Kind]string{
	'{': "an object", '[': "an array", '"': "a string", '0': "a number",
	't': "a boolean", 'f': "a boolean", 'n': "null", 0: "nothing",
}

func wrongType(want jsontext.Kind, value []byte) error {
	return fmt.Errorf("want %s, not %s", kinds[want], kinds[jsontext.Value(value).Kind()])
}
