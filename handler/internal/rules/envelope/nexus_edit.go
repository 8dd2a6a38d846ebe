package envelope

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/dotnet"
)

func (*nexus) names() strictjson.Names { return strictjson.FoldNames }

func (*nexus) deadlineName() string { return nexusDeadlineAt }

// errUserInfo and errUseEditor say why a flag cannot edit a Nexus envelope.
var (
	errUserInfo  = errors.New("the Nexus format has no place for user information")
	errUseEditor = errors.New("the message is a Nexus message, of which --set changes only call.url, call.body, " +
		"call.bodyBase64, call.json, requestId and deadline: use --edit")
)

func (n *nexus) setPath(content []byte, path []string, text string) ([]byte, error) {
	switch name := strings.Join(path, "."); name {
	case "call.url":
		return n.setURL(content, text)
	case "call.body", "call.bodyBase64", "call.json":
		return n.setBody(content, path[1], text)
	case "deadline":
		return n.setDeadline(content, text)
	case "requestId":
		return n.names().Set(content, []string{nexusRawRequest, rawID}, orNull(asString(text)))
	}
	return nil, errUseEditor
}

// setDeadline writes a time the way .NET does. Null means no deadline.
func (n *nexus) setDeadline(content []byte, text string) ([]byte, error) {
	var deadline time.Time
	if value := asString(text); value != nil {
		var err error
		deadline, err = parseDate(value)
		if err != nil {
			return nil, errors.New(`want a time such as "2026-01-31T12:00:00Z"`)
		}
	}
	return n.names().Set(content, []string{nexusDeadlineAt}, quote(dotnet.FormatTime(deadline)))
}

func (n *nexus) setBody(content []byte, kind, text string) ([]byte, error) {
	body, contentType := []byte(text), "application/octet-stream"
	switch kind {
	case "json":
		body, contentType = asJSON(text), jsonMediaType
	case "bodyBase64":
		var err error
		body, err = parseBase64(orNull(asString(text)))
		if err != nil {
			return nil, err
		}
	}
	return n.changeMessage(content, partCall, func(message []byte) ([]byte, error) {
		return dotnet.ReplaceBody(message, body, contentType)
	})
}

func (n *nexus) setURL(content []byte, text string) ([]byte, error) {
	address, err := strictjson.String(orNull(asString(text)))
	if err != nil {
		return nil, err
	}
	u, err := ParseURL(address)
	switch {
	case err != nil:
		return nil, err
	case u.User != nil:
		return nil, errUserInfo
	}
	return n.setTarget(content, partCall, strings.ToLower(u.Scheme), u.Host, u.RequestURI())
}

// setTarget sets the parts of the URL of a call.
func (n *nexus) setTarget(content []byte, of part, scheme, host, target string) ([]byte, error) {
	_, path := n.paths(of)
	content, err := n.names().Change(content, path, func(old json.RawMessage) (json.RawMessage, error) {
		if schemeOf(old) == scheme {
			return old, nil
		}
		return quote(scheme), nil
	})
	if err != nil {
		return nil, err
	}
	return n.changeMessage(content, of, func(message []byte) ([]byte, error) {
		return dotnet.ReplaceURL(message, host, target)
	})
}

// paths returns the paths of the HTTP request of a call and of its scheme.
func (*nexus) paths(of part) (message, scheme []string) {
	if of == partCallback {
		return []string{nexusRawRequest, rawCallBack}, []string{nexusRawRequest, rawCallBackURIScheme}
	}
	return []string{nexusRawRequest, rawCallOut}, []string{nexusRawRequest, rawCallOutURIScheme}
}

// schemeOf returns the scheme that a member means, or "" for an invalid one. A missing scheme means http.
func schemeOf(value json.RawMessage) string {
	if value == nil || strictjson.IsNull(value) {
		return defaultScheme
	}
	scheme, err := parseScheme(value)
	if err != nil {
		return ""
	}
	return cmp.Or(scheme, defaultScheme)
}

// changeMessage changes the HTTP request of a call; nil means that there is none.
func (n *nexus) changeMessage(content []byte, of part, change func(message []byte) ([]byte, error)) ([]byte, error) {
	path, _ := n.paths(of)
	return n.names().Change(content, path, func(old json.RawMessage) (json.RawMessage, error) {
		var message []byte
		if old != nil && !strictjson.IsNull(old) {
			var err error
			message, err = parseBase64(old)
			if err != nil {
				return nil, err
			}
		}
		changed, err := change(message)
		switch {
		case err != nil && message == nil:
			return nil, errors.New("missing: there is no request to change")
		case err != nil:
			return nil, err
		case bytes.Equal(changed, message):
			return old, nil // base64 has more than one way to write the same bytes
		}
		return inBase64(changed), nil
	})
}

func (n *nexus) changeHeader(content []byte, of part, name string, value *string) ([]byte, error) {
	return n.changeMessage(content, of, func(message []byte) ([]byte, error) {
		if value == nil {
			return dotnet.RemoveHeader(message, name)
		}
		return dotnet.ReplaceHeader(message, name, *value)
	})
}

func (n *nexus) replaceHost(content []byte, of part, replace HostReplacer) ([]byte, error) {
	path, schemePath := n.paths(of)
	message, _ := parseBase64(orNull(n.names().Get(content, path...)))
	request, err := dotnet.ParseRequest(message)
	if err != nil {
		return content, nil //nolint:nilerr // it calls no host; parsing the envelope reports it
	}
	scheme := schemeOf(n.names().Get(content, schemePath...))
	newScheme, host := replace(scheme, request.Host)
	if newScheme == scheme && host == request.Host {
		return content, nil
	}
	return n.setTarget(content, of, newScheme, host, request.Target)
}

// inBase64 returns null for nil.
func inBase64(content []byte) json.RawMessage {
	if content == nil {
		return null
	}
	return quote(base64.StdEncoding.EncodeToString(content))
}

// textMembers are the members of a RawRequest that hold text in base64.
var textMembers = []string{rawCallOut, rawCallBack, rawContext}

// DecodeTexts returns an envelope for a person to edit. Each text that a Nexus envelope has in base64, such as a call,
// is an array of its lines. The content may be any JSON object, and need not be a valid envelope.
func DecodeTexts(content []byte) []byte {
	if !IsNexus(content) {
		return content
	}
	for _, name := range textMembers {
		decoded, err := strictjson.FoldNames.Change(content, []string{nexusRawRequest, name}, asLines)
		if err == nil {
			content = decoded
		}
	}
	return content
}

// asLines returns the lines of a text in base64. It returns any other value as it is.
func asLines(value json.RawMessage) (json.RawMessage, error) {
	text, err := parseBase64(orNull(value))
	if err != nil || !utf8.Valid(text) {
		return value, nil //nolint:nilerr // a person edits what it is
	}
	var lines []json.RawMessage
	for line := range strings.SplitSeq(string(text), lineEnd) {
		lines = append(lines, quote(line))
	}
	return strictjson.PackArray(lines), nil
}

// EncodeTexts is the inverse of [DecodeTexts]. A text that is the same as in the original keeps its bytes, and the
// Content-Length of an edited call is corrected. The error names a text that .NET could not read.
func EncodeTexts(original, edited []byte) (encoded []byte, err error) {
	if !IsNexus(original) {
		return edited, nil
	}
	encoded = edited
	for _, name := range textMembers {
		path := []string{nexusRawRequest, name}
		old := strictjson.FoldNames.Get(original, path...)
		encoded, err = strictjson.FoldNames.Change(encoded, path, func(value json.RawMessage) (json.RawMessage, error) {
			text, err := joinLines(orNull(value))
			before, oldErr := parseBase64(orNull(old))
			switch {
			case err != nil || text == nil:
				return value, err
			case oldErr == nil && bytes.Equal(text, before):
				return old, nil // base64 has more than one way to write the same bytes
			case name != rawContext:
				text, err = dotnet.CorrectLength(text)
			case len(text) > 0 && !json.Valid(text):
				err = errors.New("want lines of JSON")
			}
			return inBase64(text), err
		})
		if err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// joinLines returns the text of an array of lines, or nil for any other value.
func joinLines(value json.RawMessage) ([]byte, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, nil //nolint:nilerr // it stays as it is
	}
	lines := make([]string, len(elements))
	for i, element := range elements {
		lines[i], err = strictjson.String(element)
		if err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
	}
	return append([]byte{}, strings.Join(lines, lineEnd)...), nil
}

// lineEnd is that of the lines of a text in base64.
const lineEnd = "\r\n"
