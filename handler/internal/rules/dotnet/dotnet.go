// Package dotnet reads and writes formats of .NET: HTTP messages as bytes (HttpMessageContent of
// System.Net.Http.Formatting) and dates (DateTimeOffset as Newtonsoft.Json writes it).
//
// An HTTP message as bytes looks like HTTP/1.1 on a connection, with two differences. The body ends where the bytes
// end, so lengths and transfer codings have no meaning. And a message has a body only if it has a content header.
// Errors name the part of a message that is wrong. They never quote it, because targets, values and bodies may hold
// secrets.
package dotnet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/plain/bounds"
)

// lineEnd ends every line of a message's head. .NET accepts no other.
const lineEnd = "\r\n"

const space = " \t"

var httpVersion = regexp.MustCompile(`^HTTP/\d\.\d$`)

// message is an HTTP message in parts. The parts together have every byte of the message.
type message struct {
	line   string // the first line, without its end
	fields []field
	rest   []byte // all bytes after the blank line, never nil; it shares the memory of the message
}

// field is one header of a message.
type field struct {
	name  string // in the sender's letter case
	value string // unfolded and trimmed
	raw   []byte // the header's line and the lines that continue it, with their ends
}

func (f field) isContent() bool { return IsContentHeader(f.name) }

// IsContentHeader reports whether a header, in any letter case, is one of .NET's headers of the content. .NET writes
// them last, and reads no body without one. Other headers that begin with Content- are headers of the message.
func IsContentHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Allow", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Location",
		"Content-Md5", "Content-Range", "Content-Type", "Expires", "Last-Modified":
		return true
	}
	return false
}

// parseMessage splits a message into its parts. Errors call its first line by lineName; check reports what is wrong
// with it.
func parseMessage(content []byte, lineName string, check func(line string) error) (message, error) {
	line, text, found := bytes.Cut(content, []byte(lineEnd))
	if !found {
		return message{}, fmt.Errorf("%s: no line end (CR LF)", lineName)
	}
	m := message{line: string(line)}
	if err := check(m.line); err != nil {
		return message{}, fmt.Errorf("%s: %w", lineName, err)
	}
	for number := 1; ; {
		if rest, found := bytes.CutPrefix(text, []byte(lineEnd)); found {
			m.rest = slices.Clip(rest)
			return m, nil
		}
		end, lines := fieldEnd(text)
		if end < 0 {
			return message{}, errors.New("headers: no blank line (CR LF CR LF) after them")
		}
		f, err := parseField(text[:end])
		if err != nil {
			return message{}, fmt.Errorf("header line %d: %w", number, err)
		}
		m.fields = append(m.fields, f)
		text = text[end:]
		number += lines
	}
}

// fieldEnd returns the end of the next header and its number of lines, including the lines that continue it
// (RFC 9112, 5.2, obs-fold). The end is -1 if a line has no end.
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
	name, value, found := strings.Cut(string(raw), ":")
	value = unfold(value)
	switch {
	case strings.ContainsRune(space, rune(raw[0])):
		return field{}, errors.New("begins with a space but continues no header")
	case !found:
		return field{}, errors.New("no colon")
	case !httpguts.ValidHeaderFieldName(name):
		return field{}, errors.New("the name is not a token")
	case !httpguts.ValidHeaderFieldValue(value):
		return field{}, errors.New("the value holds a control character")
	}
	return field{name: name, value: value, raw: raw}, nil
}

// unfold joins a value and the lines that continue it. A lone CR or LF is not a line end: it stays, and makes the value
// invalid.
func unfold(value string) string {
	pieces := strings.Split(value, lineEnd)
	for i := range pieces {
		pieces[i] = strings.Trim(pieces[i], space)
	}
	return strings.Trim(strings.Join(pieces, " "), " ")
}

// header returns the headers under their canonical names. Each line is one value. Values that .NET joined stay joined,
// because a comma inside a value looks like a comma between values.
func (m *message) header() (http.Header, Spelling) {
	header, spelling := http.Header{}, Spelling(nil)
	for _, f := range m.fields {
		spelling.Add(header, f.name, f.value)
	}
	return header, spelling
}

// Spelling has the names of headers as the sender wrote them, by their canonical names, if they differ. Receivers that
// compare letter case want the sender's spelling.
type Spelling map[string]string

// Add adds values to a header. A name that appears in several spellings keeps the first.
func (s *Spelling) Add(header http.Header, name string, values ...string) {
	canonical := http.CanonicalHeaderKey(name)
	before, known := header[canonical]
	if !known && name != canonical {
		if *s == nil {
			*s = Spelling{}
		}
		(*s)[canonical] = name
	}
	header[canonical] = append(before, values...)
}

// Of returns the sender's spelling of a canonical name.
func (s Spelling) Of(canonical string) string { return cmp.Or(s[canonical], canonical) }

// body returns the body, or nil if there is no content header.
func (m *message) body() []byte {
	if !slices.ContainsFunc(m.fields, field.isContent) {
		return nil
	}
	return m.rest
}

// appendHeaders writes headers in the order of .NET: first those of the message, then those of its content, then the
// blank line. It sorts the names in each group, so that equal messages have equal bytes. A body without a content
// header gets a Content-Type, because .NET would not read it otherwise. appendHeaders leaves out headers without
// values, and names that are not tokens, because no message can hold them.
func appendHeaders(content []byte, header http.Header, hasBody bool) []byte {
	var last []string
	for _, name := range slices.Sorted(maps.Keys(header)) {
		switch {
		case len(header[name]) == 0 || !httpguts.ValidHeaderFieldName(name):
		case IsContentHeader(name):
			last = append(last, name)
		default:
			content = appendField(content, name, header[name])
		}
	}
	if hasBody && len(last) == 0 {
		content = appendLine(content, "Content-Type: application/octet-stream")
	}
	for _, name := range last {
		content = appendField(content, name, header[name])
	}
	return append(content, lineEnd...)
}

// appendField writes one header.
func appendField(content []byte, name string, values []string) []byte {
	for _, value := range joined(http.CanonicalHeaderKey(name), values) {
		content = appendLine(content, name+": "+value)
	}
	return content
}

// joined returns the values of a header, one per line, as HttpMessageContent writes them.
func joined(canonical string, values []string) []string {
	switch canonical {
	case "Cookie", "Set-Cookie", "X-Powered-By":
		return values
	case "User-Agent":
		return []string{strings.Join(values, " ")}
	}
	return []string{strings.Join(values, ", ")}
}

// appendLine writes a text as exactly one line. It replaces each control character by a space. No other byte changes,
// and the text need not be valid UTF-8.
func appendLine(content []byte, text string) []byte {
	for i := range len(text) {
		c := text[i]
		if (c < ' ' && c != '\t') || c == 0x7f {
			c = ' '
		}
		content = append(content, c)
	}
	return append(content, lineEnd...)
}

// Bounds of DateTimeOffset. Its year has four digits, in UTC too.
const (
	earliest = "0001-01-01T00:00:00+00:00"         // DateTimeOffset.MinValue, its default
	latest   = "9999-12-31T23:59:59.9999999+00:00" // DateTimeOffset.MaxValue
	maxYear  = 9999
)

// tooFarAhead matches an offset of more than 14 hours, after a time.
var tooFarAhead = regexp.MustCompile(`:.*[+-](?:1[5-9]|2|14:?(?:0[1-9]|[1-5]))`)

var errTime = errors.New("not a date as .NET writes it, like 2021-01-28T14:34:50.1234567+01:00")

// ParseTime reads a time in ISO 8601 as .NET does, and returns it in UTC. It accepts what [bounds.ParseTime] accepts,
// and no offset, which means UTC, because the clocks of Azure's servers are in UTC.
func ParseTime(text string) (time.Time, error) {
	t, err := bounds.ParseTime(text)
	if err != nil {
		t, err = bounds.ParseTime(text + "Z")
	}
	if err != nil || tooFarAhead.MatchString(text) {
		return time.Time{}, errTime
	}
	return t.UTC(), nil
}

// FormatTime writes a time in UTC as Newtonsoft.Json writes a DateTimeOffset: cut to 100 ns, without trailing zeros. A
// time that .NET cannot represent becomes the nearest one that it can. The year 1 means "never", as in
// [bounds.ParseTime].
func FormatTime(t time.Time) string {
	t = t.UTC()
	switch {
	case t.Year() <= 1:
		return earliest
	case t.Year() > maxYear:
		return latest
	}
	return t.Format("2006-01-02T15:04:05.9999999") + "+00:00"
}
