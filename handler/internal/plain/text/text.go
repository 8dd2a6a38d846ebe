// Package text makes texts from senders, targets and tables fit for a person and a terminal: printable and bounded. It
// is pure.
package text

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ellipsis marks a cut.
const Ellipsis = "…"

// Printable returns a text in one line, unless line feeds are kept: each character that is neither printable nor kept
// becomes U+FFFD.
func Printable(s string, kept ...rune) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || slices.Contains(kept, r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// Lines returns a printable text that keeps its line feeds and tabs.
func Lines(s string) string { return Printable(strings.ReplaceAll(s, "\r\n", "\n"), '\n', '\t') }

// Line returns a text in one printable line of at most limit bytes. A text that is cut ends with [Ellipsis]. The
// result does not share memory with the text, which may be a small part of a large message.
func Line(s string, limit int) string {
	s = Printable(s)
	if len(s) <= limit {
		return strings.Clone(s)
	}
	return Clip(s, limit-len(Ellipsis)) + Ellipsis
}

// Clip shortens a text to at most limit bytes, at the boundary of a character. The result shares memory with the text.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// maxMarks is the largest number of combining marks on a character that are shown. They have no width, so a text with
// any number of them would fit a column.
const maxMarks = 2

// IsMark reports whether a character is a combining mark, which has no width.
func IsMark(r rune) bool {
	const first = '\u0300' // the comparison makes most characters much faster
	return r >= first && unicode.In(r, unicode.Mn, unicode.Me)
}

// LimitMarks replaces combining marks by U+FFFD that follow two others.
func LimitMarks(s string) string {
	marks := 0
	return strings.Map(func(r rune) rune {
		if !IsMark(r) {
			marks = 0
			return r
		}
		marks++
		if marks > maxMarks {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
