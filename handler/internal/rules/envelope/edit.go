package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/strictjson"
)

// editor is the part of a format that changes an envelope as text. It works on any JSON object, because malformed
// envelopes are edited too. It does not change members that it has no reason to touch.
type editor interface {
	// names compares the names of members, and deadlineName is the name of the deadline.
	names() strictjson.Names
	deadlineName() string
	setPath(content []byte, path []string, text string) ([]byte, error)
	// changeHeader replaces all headers of a name by one with this value; nil removes them.
	changeHeader(content []byte, of part, name string, value *string) ([]byte, error)
	replaceHost(content []byte, of part, replace HostReplacer) ([]byte, error)
}

// part is one of the two calls of an envelope.
type part string

const (
	partCall     part = "call"
	partCallback part = "callback"
)

// HostReplacer returns the scheme and the host, with or without a port, to use instead of others. The scheme of a Host
// header is empty.
type HostReplacer func(scheme, host string) (newScheme, newHost string)

// Set gives a member a value. The path has the names of the enclosing objects and of the member.
//
// The value is JSON if it can be read as JSON, otherwise a string. Members that can only be strings (a URL, a method,
// an id, a time) take any text but null as a string, quoted or not; call.body and call.headers.NAME take the text
// itself. Null removes a member that can only be a string.
//
// Setting one kind of body removes the others. In a Nexus envelope only call.url, call.body, call.bodyBase64,
// call.json, requestId and deadline (RFC 3339) can be set, and its Title does not change with the call.
func Set(content []byte, path []string, text string) ([]byte, error) {
	return editorOf(content).setPath(content, path, text)
}

// SetHeader replaces all headers of the call that have this name, in any letter case, by one with this value; nil
// removes them.
func SetHeader(content []byte, name string, value *string) ([]byte, error) {
	return editorOf(content).changeHeader(content, partCall, name, value)
}

// ReplaceHost replaces the host of the URL and of the Host header, of the call and of the callback. It does not change
// anything else in the URL, and leaves calls that it cannot read as they are.
func ReplaceHost(content []byte, replace HostReplacer) ([]byte, error) {
	e := editorOf(content)
	content, err := e.replaceHost(content, partCall, replace)
	if err != nil {
		return nil, err
	}
	return e.replaceHost(content, partCallback, replace)
}

// RawDeadline returns the deadline as content has it, or nil. The content may be anything.
func RawDeadline(content []byte) json.RawMessage {
	e := editorOf(content)
	return e.names().Get(bytes.TrimSpace(content), e.deadlineName())
}

// IsNexus reports whether content is edited as a Nexus envelope.
func IsNexus(content []byte) bool {
	_, isNexus := editorOf(content).(*nexus)
	return isNexus
}

// editorOf returns the editor of the content's format. Content of neither format may be a native envelope that lacks
// the marker, so that Set can add it.
func editorOf(content []byte) editor {
	members, _ := strictjson.Object(content)
	isNative, isNexus := markers(members)
	if isNexus && !isNative {
		return &nexus{}
	}
	return &native{}
}

// asJSON returns the value for a member of any type: JSON if the text is JSON, otherwise a string.
func asJSON(text string) json.RawMessage {
	trimmed := json.RawMessage(strings.TrimSpace(text))
	if utf8.ValidString(text) && json.Valid(trimmed) {
		return trimmed
	}
	return quote(text)
}

// asString returns the value for a member that can only be a string: a JSON string as it is, nil for null, and any
// other text as a string.
func asString(text string) json.RawMessage {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "null":
		return nil
	case strings.HasPrefix(trimmed, `"`):
		return asJSON(text)
	}
	return quote(text)
}

func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return null
	}
	return value
}

// Embedded is a member that holds a message, a body or other JSON in a string, for people to see decoded.
type Embedded struct {
	Path []string
	Kind EmbeddedKind
	// Base64 says that the content is in base64, and Gzip that it is gzip in base64.
	Base64, Gzip bool
	// ContentType is the path of the header that gives the type of a body; nil if there is none.
	ContentType []string
}

// Decode returns the content that the member holds as this text.
func (e Embedded) Decode(text string) (content []byte, err error) {
	switch {
	case e.Base64:
		return base64.StdEncoding.DecodeString(text)
	case e.Gzip:
		body, err := parseGzip(quote(text))
		if err == nil {
			err = body.check()
		}
		if err != nil {
			return nil, err
		}
		return body.Bytes(), nil
	}
	return []byte(text), nil
}

// EmbeddedKind is the kind of embedded content.
type EmbeddedKind int

// The kinds of embedded content.
const (
	EmbeddedHTTP EmbeddedKind = iota // an HTTP message, as bytes
	EmbeddedBody
	EmbeddedJSON
)

// EmbeddedMembers lists the members of both formats that embed content. Malformed messages are displayed too, and their
// format may be unclear, so all of them apply to any message. Their names are compared without letter case.
func EmbeddedMembers() []Embedded {
	contentType := []string{string(partCall), "headers", "Content-Type"}
	return []Embedded{
		{Path: []string{string(partCall), "body"}, Kind: EmbeddedBody, ContentType: contentType},
		{Path: []string{string(partCall), "bodyBase64"}, Kind: EmbeddedBody, ContentType: contentType, Base64: true},
		{Path: []string{string(partCall), gzipBody}, Kind: EmbeddedBody, ContentType: contentType, Gzip: true},
		{Path: []string{nexusRawRequest, rawCallOut}, Kind: EmbeddedHTTP, Base64: true},
		{Path: []string{nexusRawRequest, rawCallBack}, Kind: EmbeddedHTTP, Base64: true},
		{Path: []string{nexusRawRequest, rawContext}, Kind: EmbeddedJSON, Base64: true},
		{Path: []string{nexusLatestResponse}, Kind: EmbeddedHTTP, Base64: true},
		{
			Path: []string{nexusDeadLetter, "answer", "text"}, Kind: EmbeddedBody,
			ContentType: []string{nexusDeadLetter, "answer", "mediaType"},
		},
	}
}
