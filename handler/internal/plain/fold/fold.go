// Package fold leaves out of paths and texts the parts that differ from call to call, such as numbers and ids, so that
// calls of one kind can be counted together. It is pure.
package fold

import (
	"regexp"
	"strings"

	"asynccaller/handler/internal/plain/text"
)

// The placeholders for parts that differ from call to call. They appear in the keys of groups of messages.
const (
	foldedNumber = "{n}"
	foldedID     = "{id}"
	foldedDate   = "{date}"
)

const (
	maxSegments = 8
	// maxPath is how many bytes of a path are read, and maxFolded limits what is returned.
	maxPath   = 512
	maxFolded = 200
)

// Path returns the pattern of a path: the path without the parts that differ from call to call, so that all calls of
// one kind have the same pattern. "/orders/4711" becomes "/orders/{n}". The pattern is printable and has at most 8
// segments and 200 bytes; a shortened one ends with "…". It follows from the first 512 bytes of the path. An empty path
// is "/". The pattern of a pattern is the pattern itself.
func Path(path string) string {
	if len(path) > maxPath { // a path may fill a message
		path = text.Clip(path, maxPath) + text.Ellipsis
	}
	segments := strings.SplitN(strings.TrimPrefix(fold(path), "/"), "/", maxSegments+1)
	if len(segments) > maxSegments {
		segments[maxSegments] = text.Ellipsis
	}
	folded := "/" + strings.Join(segments, "/")
	pattern := text.Line(folded, maxFolded)
	if pattern != folded {
		pattern = text.Line(fold(pattern), maxFolded) // the end of a shortened pattern may be a number now
	}
	return pattern
}

// Text folds an error message or an answer, in one printable line of at most 200 bytes.
func Text(s string) string { return text.Line(fold(s), maxFolded) }

// escapePattern is an escaped byte of a path.
const escapePattern = `%[0-9A-Fa-f]{2}`

var (
	// ids matches e-mail addresses, UUIDs, dates with their times, and long words, after the escapes, which stay. In a
	// path, a colon, a plus and an at sign may be escaped.
	ids = regexp.MustCompile(escapePattern +
		`|[0-9A-Za-z_.%+-]+(?:@|%40)[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)+` +
		`|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}` +
		`|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt][0-9](?:%3[Aa]|%2[Bb]|[0-9Zz+.:-])*)?` +
		`|[0-9A-Za-z]{16,}`)
	// words matches what can be a number or have one, after the escapes.
	words = regexp.MustCompile(escapePattern + `|[0-9A-Za-z_-]*[0-9][0-9A-Za-z_-]*`)
	// longNumber is a number within a word. Fewer digits belong to the word: v1, oauth2, UTF-8.
	longNumber = regexp.MustCompile(`[0-9]{3,}`)
)

const digits = "0123456789"

// fold replaces dates by {date}; UUIDs, e-mail addresses and long words with a digit by {id}; numbers, and three digits
// or more within a word, by {n}. A long word with a digit may be the secret of a webhook, and not only an id.
func fold(s string) string {
	s = ids.ReplaceAllStringFunc(s, func(part string) string {
		const date = len("2006-01-02")
		isEmail := strings.Contains(part, "@") || strings.Contains(part, "%40")
		isNumber := strings.Trim(part, digits) == ""
		switch {
		case part[0] == '%', isNumber, !isEmail && !strings.ContainsAny(part, digits):
			return part
		case !isEmail && len(part) >= date && part[4] == '-':
			return foldedDate
		}
		return foldedID
	})
	return words.ReplaceAllStringFunc(s, func(word string) string {
		switch {
		case word[0] == '%':
			return word
		case strings.Trim(word, digits) == "":
			return foldedNumber
		}
		return longNumber.ReplaceAllLiteralString(word, foldedNumber)
	})
}
