package strictjson

import (
	"bytes"
	"unicode/utf8"
)

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
