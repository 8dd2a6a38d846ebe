// Package strictjson reads JSON that strangers wrote: one object at a time, every member in its order
// and byte for byte, nothing guessed. Unlike encoding/json it refuses invalid UTF-8, duplicate members
// and half surrogates, tells names apart by case, and says where a text stops being JSON.
package strictjson

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	name = Printable(name)
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
	var l list
	if !Read(text, l.add) {
		if err := check(text); err != nil {
			return nil, err
		}
		return nil, cmp.Or(l.err, wrongType("an object", text))
	}
	return l.members, onlyOnce(l.members)
}

// Members reads a member's value that must be an object.
func Members(value json.RawMessage) ([]Member, error) {
	var l list
	if !Each(value, l.add) {
		return nil, cmp.Or(l.err, wrongType("an object", value))
	}
	return l.members, onlyOnce(l.members)
}

// list is members in their order, and what is wrong with the name of the one after them.
type list struct {
	members []Member
	err     error
}

func (l *list) add(name, value []byte) bool {
	const usual = 4
	if l.members == nil {
		l.members = make([]Member, 0, usual)
	}
	text, err := String(name)
	if err != nil {
		l.err = fmt.Errorf("a member's name: %w", err)
		return false
	}
	l.members = append(l.members, Member{text, value})
	return true
}

// Read shows the members of a text that nobody has looked at yet, their names as they are written, in
// quotes, until one is not wanted. It reports whether all were, and the text is one JSON object in UTF-8,
// which encoding/json does not ask for. It may have shown some before it finds that it is not.
func Read(text []byte, visit func(name, value []byte) bool) bool {
	at := SkipSpace(text, 0)
	if !utf8.Valid(text) || at == len(text) || text[at] != '{' {
		return false
	}
	at = validMembers(text, at, 1, visit)
	return at >= 0 && SkipSpace(text, at) == len(text)
}

// Each is [Read] for a text that is known to be valid JSON: a [Member.Value], or a value that Read has shown.
func Each(text []byte, visit func(name, value []byte) bool) bool {
	at := SkipSpace(text, 0)
	if text[at] != '{' {
		return false
	}
	for at = SkipSpace(text, at+1); text[at] != '}'; {
		end := StringEnd(text, at)
		name := text[at:end]
		start := SkipSpace(text, SkipSpace(text, end)+1)
		end = valueEnd(text, start)
		if !visit(name, text[start:end:end]) {
			return false
		}
		if at = SkipSpace(text, end); text[at] == ',' {
			at = SkipSpace(text, at+1)
		}
	}
	return true
}

// onlyOnce finds a name that stands twice.
func onlyOnce(list []Member) error {
	const few = 16 // are compared faster than they are put into a map
	twice := func(name string) error { return &MemberError{Path: Printable(name), Err: errors.New("appears twice")} }
	if len(list) <= few {
		for i, m := range list {
			for _, before := range list[:i] {
				if m.Name == before.Name {
					return twice(m.Name)
				}
			}
		}
		return nil
	}
	seen := make(map[string]bool, len(list))
	for _, m := range list {
		if seen[m.Name] {
			return twice(m.Name)
		}
		seen[m.Name] = true
	}
	return nil
}

// Elements reads a member's value that must be an array.
func Elements(value json.RawMessage) ([]json.RawMessage, error) {
	if value[0] != '[' {
		return nil, wrongType("an array", value)
	}
	var list []json.RawMessage
	for at := SkipSpace(value, 1); value[at] != ']'; {
		end := valueEnd(value, at)
		list = append(list, value[at:end:end])
		if at = SkipSpace(value, end); value[at] == ',' {
			at = SkipSpace(value, at+1)
		}
	}
	return list, nil
}

// Depth is how deep arrays and objects are nested in a member's value: 0 for a string or a number.
func Depth(value json.RawMessage) int {
	depth, deepest := 0, 0
	for at := 0; at < len(value); at++ {
		switch value[at] {
		case '"':
			at = StringEnd(value, at) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}

// IsNull reports whether a member's value is null.
func IsNull(value json.RawMessage) bool { return string(value) == "null" }

func check(text []byte) error {
	if !utf8.Valid(text) {
		return syntaxError(text, invalidAt(text), "invalid UTF-8")
	}
	if valid(text) {
		return nil
	}
	var value json.RawMessage
	err := json.Unmarshal(text, &value) // says what is wrong
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

// Printable is as much of a name of the sender's making as an error may show: what looks like a name. A
// member called "Authorization: Bearer ..." by mistake must not put a secret into a log.
func Printable(name string) string {
	const longest = 40
	for at := range len(name) {
		c := name[at]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if at == longest || (!letter && !strings.ContainsRune("-_.$[]@", rune(c))) {
			return name[:at] + "…"
		}
	}
	return name
}

// SkipSpace is where, from a place on, a text has something else than white space. The text may be anything.
func SkipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n') {
		at++
	}
	return at
}

// StringEnd is where the JSON string that begins at a place ends, or -1 if none does. The text may be
// anything, and what is between the quotes is not checked. It goes from quote to quote, which a processor
// finds faster than one byte after the other.
func StringEnd(text []byte, at int) int {
	if at >= len(text) || text[at] != '"' {
		return -1
	}
	for at++; ; at++ {
		quote := bytes.IndexByte(text[at:], '"')
		if quote < 0 {
			return -1
		}
		at += quote
		escapes := 0
		for text[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
}

// The functions below walk text that is known to be valid JSON: every value and string has an end.

func valueEnd(text []byte, at int) int {
	switch text[at] {
	case '"':
		return StringEnd(text, at)
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
			at = StringEnd(text, at)
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
