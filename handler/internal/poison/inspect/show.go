// Package inspect says what may be shown of one message's content. Unless the caller reveals them, it masks
// secrets: values of headers, of members of JSON and of forms whose names say that they are secret, user info
// and the values of queries in URLs. It finds them wherever they stand, also in JSON within a string, in XML,
// and in what is no JSON any more, where it rather hides too much. What has no telling name, such as a
// password in a sentence or an id in a path, is shown. It is pure.
//
// All that it returns is printable: what is not becomes U+FFFD, in JSON an escape. Line feeds and tabs stay
// where they are layout.
package inspect

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/envelope"
)

// How much is shown, in bytes.
const (
	maxBody    = 16 << 10
	maxContent = 256 << 10 // the largest message, laid out, as a rule
	maxDump    = 512
	// maxSafeDump tells what kind of file it is, and too little to be a secret.
	maxSafeDump = 8
)

// Call is what may be shown of an envelope's call.
type Call struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// Headers are sorted by name; one that has several values comes several times.
	Headers []Header `json:"headers,omitempty"`
	// Body is at most 16 KiB; Truncated says that there is more. It is empty for a binary body, unless that
	// is revealed: then it is a dump of the first 512 bytes. BodyBytes is the size of the body itself.
	Body      string   `json:"body,omitempty"`
	BodyKind  BodyKind `json:"bodyKind"`
	BodyBytes int      `json:"bodyBytes"`
	Truncated bool     `json:"truncated,omitempty"`
	// Callback is the URL that the outcome is reported to, empty when nobody wants to know.
	Callback string `json:"callback,omitempty"`
	// Context is the sender's JSON, laid out, of at most 16 KiB, or empty.
	Context string `json:"context,omitempty"`
}

// Header is one value of a header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Masked says that Value is not all of it.
	Masked bool `json:"masked,omitempty"`
}

// BodyKind is what a body is taken for. It is a closed set.
type BodyKind string

// The kinds of bodies.
const (
	BodyJSON   BodyKind = "json" // laid out, with the members in their order and numbers as they were spelled
	BodyText   BodyKind = "text"
	BodyBinary BodyKind = "binary"
	BodyNone   BodyKind = "none" // none, or an empty one
)

// ShowCall returns what may be shown of an envelope's call.
func ShowCall(e *envelope.Envelope, secrets Secrets) Call {
	m := newMasker(secrets)
	call := Call{
		Method: printable(e.Call.Method), URL: printable(m.url("url", e.Call.URL)), BodyBytes: len(e.Call.Body),
	}
	add := func(name, value string) {
		shown := m.header("header."+name, name, value)
		call.Headers = append(call.Headers, Header{Name: printable(name), Value: printable(shown), Masked: shown != value})
	}
	if e.Call.Host != "" {
		add("Host", e.Call.Host)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Call.Header)) {
		for _, value := range e.Call.Header[name] {
			add(name, value)
		}
	}
	body, kind := m.body("body", e.Call.Header.Get("Content-Type"), e.Call.Body)
	call.Body, call.Truncated = clip(body, maxBody)
	call.BodyKind = kind
	if e.Callback != nil {
		call.Callback = printable(m.url("callback", e.Callback.URL))
	}
	if e.Context != nil {
		context, _ := m.body("context", "application/json", e.Context)
		call.Context, _ = clip(context, maxBody)
	}
	return call
}

// ShowContent lays a whole message out, as JSON where it is JSON, for a person to read. It is not to be parsed:
// what the message has in base64 (the calls, the context and the latest answer of a Nexus envelope, a native
// body) stands there decoded, texts of several lines as one string for each line, and a comment where it is
// cut, which is at 256 KiB. What is no JSON is shown as text; what is no text either as a dump of its first
// 512 bytes, or of 8 unless it is revealed. Of what was to be base64 and has a mistake in it, which an
// undecodable message has, the first 8 bytes are shown, too. It ends with a line feed unless there is no
// content.
func ShowContent(content []byte, secrets Secrets) []byte {
	return newMasker(secrets).content(content)
}

func (m *masker) content(content []byte) []byte {
	if len(content) == 0 {
		return nil
	}
	var text string
	switch {
	case json.Valid(content):
		text = m.layOut("", content, maxContent)
	case isBinary(content):
		text = dump(content, m.secrets)
	case m.secrets == Masked && looksEncoded(content):
		text = fmt.Sprintf("%s… (base64 with a mistake in it, %d bytes)", printable(string(content[:maxSafeDump])), len(content))
	default:
		text = printable(m.text("", string(content)))
	}
	text, cut := clip(text, maxContent)
	if cut {
		text += "\n… (cut)"
	}
	return []byte(strings.TrimSuffix(text, "\n") + "\n")
}

// body lays out a body. A binary one is empty unless it is revealed: nothing is known of what is in it.
func (m *masker) body(where, contentType string, body []byte) (string, BodyKind) {
	if len(body) == 0 {
		return "", BodyNone
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType = strings.ToLower(contentType)
	}
	if (strings.Contains(mediaType, "json") || looksLikeJSON(body)) && json.Valid(body) {
		return m.layOut(where, body, maxBody+1), BodyJSON // one byte more shows that it was cut
	}
	switch {
	case isBinary(body) && m.secrets == Revealed:
		return dump(body, Revealed), BodyBinary
	case isBinary(body):
		return "", BodyBinary
	case strings.Contains(mediaType, "form-urlencoded"):
		return printable(m.form(where, string(body))), BodyText
	}
	return printable(m.text(where, string(body))), BodyText
}

func looksLikeJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// isBinary reports whether more than a tenth of the bytes cannot be shown as text. A few bad ones are a
// mistake in a text, and a text is what secrets are found in.
func isBinary(content []byte) bool {
	bad := 0
	for rest := content; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' {
			bad++
		}
		rest = rest[size:]
	}
	return bad*10 > len(content)
}

// looksEncoded reports whether a text is base64 but for a few bytes. It holds a message that nobody can read,
// with all its secrets.
func looksEncoded(text []byte) bool {
	const shortest = 64
	foreign := 0
	for _, c := range text {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', strings.IndexByte("+/-_=\r\n", c) >= 0:
		default:
			foreign++
		}
	}
	return len(text) >= shortest && foreign*50 <= len(text)
}

func dump(content []byte, secrets Secrets) string {
	limit := maxSafeDump
	if secrets == Revealed {
		limit = maxDump
	}
	return hex.Dump(content[:min(limit, len(content))])
}

// printable takes out what could do more to a terminal than be shown.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// clip cuts a text at a character's boundary.
func clip(text string, limit int) (string, bool) {
	if len(text) <= limit {
		return text, false
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit], true
}
