package mask

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	maxRead    = 64 << 10  // of a body, because laying out nested JSON takes a thousand times its size
	maxContent = 256 << 10 // usually enough for the largest message
	maxLine    = 1 << 10
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
	Body
	// Callback is the URL of the callback, or empty.
	Callback string `json:"callback,omitempty"`
	// Context is the sender's JSON in lines, of at most 16 KiB, or empty.
	Context string `json:"context,omitempty"`
}

// Body is the part of a body that may be shown.
type Body struct {
	// Text has at most 16 KiB. It is empty if the body is binary, unless secrets are revealed: then it is a dump of the
	// first 512 bytes.
	Text string   `json:"body,omitempty"`
	Kind BodyKind `json:"bodyKind"`
	// Bytes is the size of the body itself.
	Bytes int `json:"bodyBytes"`
	// Partial says that more of the body is shown if secrets are revealed, beside what is masked. Truncated says that
	// there is more in any case.
	Partial   bool `json:"partial,omitempty"`
	Truncated bool `json:"truncated,omitempty"`
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
		Method: text.Lines(e.Call.Method), URL: text.Lines(m.url("url", e.Call.URL)),
		Body: m.wholeBody("body", e.Call.Header.Get("Content-Type"), e.Call.Body.Bytes()),
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
	if e.Callback != nil {
		call.Callback = text.Lines(m.url("callback", e.Callback.URL))
	}
	if e.Context != nil {
		call.Context = text.Clip(m.shownBody("context", "application/json", e.Context), maxBody)
	}
	return call
}

// Answer is the part of a target's latest answer that may be shown.
type Answer struct {
	Status    int    `json:"status"`
	MediaType string `json:"mediaType,omitempty"`
	// Body is the beginning of the body, as text.
	Body
}

// ShowAnswer returns the part of the target's latest answer that may be shown, or nil if the envelope holds none.
func ShowAnswer(e *envelope.Envelope, secrets Secrets) *Answer {
	x := e.LatestAnswer()
	if x == nil {
		return nil
	}
	body := newMasker(secrets).wholeBody("answer", x.MediaType, []byte(x.Text))
	body.Truncated = body.Truncated || x.Truncated
	return &Answer{Status: x.Status, MediaType: text.Line(x.MediaType, maxMediaType), Body: body}
}

// What [AnswerLine] returns for an answer without a line of text. Groups of messages have these texts as their keys, so
// they must not change from version to version.
const (
	emptyAnswer  = "(empty answer)"
	binaryAnswer = "(binary answer)"
	// unreadableAnswer is for an answer of which nothing is kept, or may be shown: it broke off, its coding cannot be
	// decoded, or it is no more than the beginning of a secret.
	unreadableAnswer = "(unreadable answer)"
)

// AnswerLine returns what an answer says in one printable line: JSON, a form or, of any other text, its title or first
// line. Its secrets are masked. It is empty if there is no answer.
func AnswerLine(x *envelope.Excerpt) string {
	if x == nil {
		return ""
	}
	const longest = 4 << 10 // exceeds the excerpts that the handler writes
	beginning := text.Clip(x.Text, longest)
	m := newMasker(Hidden)
	shown, kind := m.body("answer", x.MediaType, []byte(beginning))
	switch {
	case kind == BodyBinary:
		return binaryAnswer
	case x.Text == "" && x.Truncated, shown == "***":
		return unreadableAnswer
	case kind == BodyJSON || looksLikeJSON(beginning):
		shown = newMasker(Hidden).compact("answer", beginning)
	default:
		shown = strings.Join(strings.Fields(shown), " ")
	}
	return cmp.Or(text.Printable(strings.TrimSuffix(shown, " …")), emptyAnswer)
}

// ShowContent returns a whole message in lines for a person to read, not for a program to parse. JSON has its embedded
// content decoded (the calls, the context and the latest answer of a Nexus envelope, a native body), with one string
// for each line, and a note where it is cut, at 256 KiB. Other content is shown as a body. The result ends with a line
// feed unless the content is empty.
func ShowContent(content []byte, secrets Secrets) []byte {
	return newMasker(secrets).content(content)
}

func (m *masker) content(content []byte) []byte {
	if len(content) == 0 {
		return nil
	}
	m.root = content
	shown, _ := m.body("", "application/json", content) // of no JSON, the type says nothing
	shown, cut := clip(shown, maxContent)
	if cut {
		shown += "\n… (cut)"
	}
	return []byte(strings.TrimSuffix(shown, "\n") + "\n")
}

// wholeBody returns a body with what is known about it.
func (m *masker) wholeBody(where, contentType string, body []byte) Body {
	m.isPart = false
	shown, kind := m.body(where, contentType, body)
	b := Body{Kind: kind, Bytes: len(body), Partial: m.isPart}
	if kind != BodyBinary || m.secrets == Revealed {
		b.Text, b.Truncated = clip(shown, maxBody)
		b.Truncated = b.Truncated || len(body) > maxRead
	}
	return b
}

// body returns what may be shown of a body in lines, and its kind. Of a binary body that is a note if secrets are
// masked.
func (m *masker) body(where, contentType string, body []byte) (string, BodyKind) {
	if len(body) == 0 {
		return "", BodyNone
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType = strings.ToLower(contentType)
	}
	length, isValid := len(body), json.Valid(body)
	body = body[:min(length, maxRead)]
	isCut := len(body) < length
	plain := string(body)
	isMarkup := strings.Contains(mediaType, "html") || strings.Contains(mediaType, "xml")
	switch {
	case isValid && (!isCut || m.secrets != Revealed) && (strings.Contains(mediaType, "json") || looksLikeJSON(plain)):
		return m.layOut(where, plain), BodyJSON
	case isBinary(body) && m.secrets == Revealed:
		return dump(body), BodyBinary
	case isBinary(body):
		note := fmt.Sprintf("(not shown without --reveal: binary, %d bytes)", length)
		return m.mark(where, note, plain), BodyBinary
	case m.secrets == Revealed:
		return text.Lines(plain), BodyText
	case strings.Contains(mediaType, "form-urlencoded"):
		return text.Lines(m.form(where, plain)), BodyText
	case looksLikeJSON(plain):
		return m.layOut(where, plain), BodyText
	case isMarkup:
		return text.Lines(m.hideOpaque(where, m.markup(where, plain))), BodyText
	}
	return text.Lines(m.hideOpaque(where, m.text(where, strings.TrimSpace(plain)))), BodyText
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
