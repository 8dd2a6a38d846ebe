package mask

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
)

// The limits of the results, in bytes.
const (
	maxBody    = 16 << 10
	maxContent = 256 << 10 // usually enough for the largest message
	maxDump    = 512
	// maxMediaType limits the media type of an answer.
	maxMediaType = 300
)

// Call is the part of an envelope's call that may be shown.
type Call struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// Headers are sorted by name. A header with several values appears several times.
	Headers []Header `json:"headers,omitempty"`
	// Body has at most 16 KiB; Truncated says that there is more. It is empty unless the body is JSON, well-formed XML
	// or a form, or secrets are revealed. A revealed binary body is a dump of its first 512 bytes. BodyBytes is the
	// size of the body itself.
	Body      string   `json:"body,omitempty"`
	BodyKind  BodyKind `json:"bodyKind"`
	BodyBytes int      `json:"bodyBytes"`
	Truncated bool     `json:"truncated,omitempty"`
	// Callback is the URL of the callback, or empty.
	Callback string `json:"callback,omitempty"`
	// Context is the sender's JSON in lines, of at most 16 KiB, or empty. If it is not JSON, a note takes its place.
	Context string `json:"context,omitempty"`
}

// Header is one value of a header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Masked says that Value is hidden, at least in part.
	Masked bool `json:"masked,omitempty"`
}

// BodyKind is the kind of a body. It is a closed set.
type BodyKind string

// The kinds of bodies.
const (
	BodyJSON   BodyKind = "json" // shown in lines, with the original order of members and spelling of numbers
	BodyText   BodyKind = "text"
	BodyBinary BodyKind = "binary"
	BodyNone   BodyKind = "none" // also an empty body
)

// ShowCall returns the part of an envelope's call that may be shown.
func ShowCall(e *envelope.Envelope, secrets Secrets) Call {
	m := newMasker(secrets)
	call := Call{
		Method: text.Lines(e.Call.Method), URL: text.Lines(m.url("url", e.Call.URL)), BodyBytes: len(e.Call.Body),
	}
	add := func(name, value string) {
		shown := m.header("header."+name, name, value)
		header := Header{Name: text.Lines(name), Value: text.Lines(shown), Masked: shown != value}
		call.Headers = append(call.Headers, header)
	}
	if e.Call.Host != "" {
		add("Host", e.Call.Host)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Call.Header)) {
		for _, value := range e.Call.Header[name] {
			add(e.Call.Spelling.Of(name), value)
		}
	}
	body, kind := m.body("body", e.Call.Header.Get("Content-Type"), e.Call.Body)
	call.Body, call.Truncated = clip(body, maxBody)
	call.BodyKind = kind
	if e.Callback != nil {
		call.Callback = text.Lines(m.url("callback", e.Callback.URL))
	}
	if e.Context != nil {
		call.Context = text.Clip(m.bodyOrNote("context", "application/json", e.Context), maxBody)
	}
	return call
}

// ShowContent returns a whole message in lines for a person to read, not for a program to parse. JSON has its embedded
// content decoded (the calls, the context and the latest answer of a Nexus envelope, a native body), with one string
// for each line, and a note where it is cut, at 256 KiB. Well-formed XML is shown as text. Other content is shown if
// secrets are revealed, binary content as a dump of its first 512 bytes; otherwise a note says its kind and length. The
// result ends with a line feed unless the content is empty.
func ShowContent(content []byte, secrets Secrets) []byte {
	return newMasker(secrets).content(content)
}

func (m *masker) content(content []byte) []byte {
	if len(content) == 0 {
		return nil
	}
	m.root = content
	text := ""
	if json.Valid(content) {
		text = m.layOut("", content)
	} else {
		text = m.bodyOrNote("", "", content)
	}
	text, cut := clip(text, maxContent)
	if cut {
		text += "\n… (cut)"
	}
	return []byte(strings.TrimSuffix(text, "\n") + "\n")
}

// body returns a body in lines, and its kind. It is empty if secrets are masked and the body is neither JSON nor XML
// nor a form, because it is unknown where it holds some.
func (m *masker) body(where, contentType string, body []byte) (string, BodyKind) {
	if len(body) == 0 {
		return "", BodyNone
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType = strings.ToLower(contentType)
	}
	plain := string(body)
	claimsJSON := strings.Contains(mediaType, "json") || looksLikeJSON(plain)
	if claimsJSON && json.Valid(body) {
		return m.layOut(where, body), BodyJSON
	}
	switch {
	case isBinary(body) && m.secrets == Revealed:
		return dump(body), BodyBinary
	case isBinary(body):
		return "", BodyBinary
	case m.secrets == Revealed:
		return text.Lines(plain), BodyText
	case strings.Contains(mediaType, "form-urlencoded"):
		masked, _ := m.form(where, plain)
		return text.Lines(masked), BodyText
	case looksLikeXML(plain):
		masked, _ := m.xml(where, plain)
		return text.Lines(masked), BodyText
	}
	return "", BodyText
}

// isBinary reports whether more than a tenth of the content is not text. A few bad bytes are an error in a text.
func isBinary(content []byte) bool {
	bad := 0
	for _, r := range string(content) {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' {
			bad++
		}
	}
	return bad*10 > len(content)
}

func dump(content []byte) string { return hex.Dump(content[:min(maxDump, len(content))]) }

// clip is [text.Clip], and reports whether it has shortened the text.
func clip(s string, limit int) (clipped string, cut bool) {
	clipped = text.Clip(s, limit)
	return clipped, len(clipped) < len(s)
}

// Diff compares two contents as [ShowContent] shows them, line by line in the unified format. It is empty if they are
// equal. A secret that differs becomes "*** (changed)". If the contents differ only in spacing or beyond the limits,
// Diff returns one line that says so.
func Diff(before, after []byte, secrets Secrets) []byte {
	if bytes.Equal(before, after) {
		return nil
	}
	was, is := newMasker(secrets), newMasker(secrets)
	old := was.content(before)
	is.before = was.hidden
	changes := diff.Diff("before", old, "after", is.content(after))
	if changes == nil {
		return []byte("(the differences are not shown without --reveal: they are spacing, or beyond the limit)\n")
	}
	_, changes, _ = bytes.Cut(changes, []byte("\n")) // the first line names a command
	return changes
}
