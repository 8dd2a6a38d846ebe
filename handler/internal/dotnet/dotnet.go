// Package dotnet reads and writes what .NET writes: HTTP messages as bytes (System.Net.Http.Formatting's
// HttpMessageContent) and moments (DateTimeOffset as Newtonsoft.Json writes it).
//
// A message as bytes looks like HTTP/1.1 on a connection, but is none: the bytes end where the body ends,
// so no length and no transfer coding says anything about it, and a body is there only if a content
// header says so. Errors name the part of a message that is wrong and never quote it, because targets,
// values and bodies hold secrets.
package dotnet

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// lineEnd ends every line of a message's head. .NET refuses any other.
const lineEnd = "\r\n"

const space = " \t"

// field is one header of a message.
type field struct {
	name  string // as it came
	value string // unfolded and trimmed
	raw   []byte // its line and the lines that continue it, with their ends
}

func (f field) isContent() bool { return isContentHeader(f.name) }

// isContentHeader reports whether a header belongs to the body. Such headers come last, and without one
// .NET reads no body.
func isContentHeader(name string) bool {
	switch name = strings.ToLower(name); name {
	case "allow", "expires", "last-modified":
		return true
	}
	return strings.HasPrefix(name, "content-")
}

// parseFields reads the header lines behind the first line of a message. What stands behind the blank
// line at their end is the rest; it is not nil and shares the memory of the text.
func parseFields(text []byte) (fields []field, rest []byte, err error) {
	for number := 1; ; {
		if after, found := bytes.CutPrefix(text, []byte(lineEnd)); found {
			return fields, slices.Clip(after), nil
		}
		end, lines := fieldEnd(text)
		if end < 0 {
			return nil, nil, errors.New("headers: no blank line (CR LF CR LF) behind them")
		}
		parsed, err := parseField(text[:end])
		if err != nil {
			return nil, nil, fmt.Errorf("header line %d: %w", number, err)
		}
		fields = append(fields, parsed)
		text = text[end:]
		number += lines
	}
}

// fieldEnd is where the next header ends, together with the lines that continue it (RFC 9112, 5.2,
// obs-fold), and how many lines that are. It is -1 when a line has no end.
func fieldEnd(text []byte) (end, lines int) {
	for {
		length := bytes.Index(text[end:], []byte(lineEnd))
		if length < 0 {
			return -1, 0
		}
		end += length + len(lineEnd)
		lines++
		if end == len(text) || !strings.ContainsRune(space, rune(text[end])) {
			return end, lines
		}
	}
}

func parseField(raw []byte) (field, error) {
	if strings.ContainsRune(space, rune(raw[0])) {
		return field{}, errors.New("begins with a space but continues no header")
	}
	name, value, found := strings.Cut(string(raw), ":")
	if !found {
		return field{}, errors.New("no colon")
	}
	if !httpguts.ValidHeaderFieldName(name) {
		return field{}, errors.New("the name is not a token")
	}
	value = unfold(value)
	if !httpguts.ValidHeaderFieldValue(value) {
		return field{}, errors.New("the value holds a control character")
	}
	return field{name: name, value: value, raw: raw}, nil
}

// unfold makes one line of a value and of the lines that continue it. A lone CR or LF is no line end and
// stays, to be refused.
func unfold(value string) string {
	pieces := strings.Split(value, lineEnd)
	for i := range pieces {
		pieces[i] = strings.Trim(pieces[i], space)
	}
	return strings.Trim(strings.Join(pieces, " "), " ")
}

// headerOf collects fields under their canonical names. Each line is one value: what .NET joined stays
// joined, because commas within values cannot be told from those between them.
func headerOf(fields []field) http.Header {
	header := http.Header{}
	for _, f := range fields {
		header.Add(f.name, f.value)
	}
	return header
}

// isVersion reports whether a text is the protocol version of a first line.
func isVersion(text string) bool {
	return len(text) == len("HTTP/1.1") && strings.HasPrefix(text, "HTTP/") &&
		isDigit(text[5]) && text[6] == '.' && isDigit(text[7])
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// appendHeaders writes headers as .NET orders them: those of the message, then those of its content, and
// the blank line. Within these the names are sorted, so that the same message is always the same bytes.
// A body without a content header gets a Content-Type, because .NET would not read it. Left out are
// headers without values and names that are no tokens, which no message can hold.
func appendHeaders(message []byte, header http.Header, hasBody bool) []byte {
	var content []string
	for _, name := range slices.Sorted(maps.Keys(header)) {
		switch {
		case len(header[name]) == 0 || !httpguts.ValidHeaderFieldName(name):
		case isContentHeader(name):
			content = append(content, name)
		default:
			message = appendField(message, name, header[name])
		}
	}
	if hasBody && len(content) == 0 {
		message = appendLine(message, "Content-Type: application/octet-stream")
	}
	for _, name := range content {
		message = appendField(message, name, header[name])
	}
	return append(message, lineEnd...)
}

// appendField writes one header, its values joined as HttpMessageContent joins them.
func appendField(message []byte, name string, values []string) []byte {
	switch http.CanonicalHeaderKey(name) {
	case "Cookie", "Set-Cookie", "X-Powered-By":
		for _, value := range values {
			message = appendLine(message, name+": "+value)
		}
		return message
	case "User-Agent":
		return appendLine(message, name+": "+strings.Join(values, " "))
	}
	return appendLine(message, name+": "+strings.Join(values, ", "))
}

// appendLine writes a text as exactly one line: what could end the line, or make it unreadable, becomes
// a space. No other byte changes; a text need not be valid UTF-8.
func appendLine(message []byte, text string) []byte {
	for i := range len(text) {
		c := text[i]
		if (c < ' ' && c != '\t') || c == 0x7f {
			c = ' '
		}
		message = append(message, c)
	}
	return append(message, lineEnd...)
}
