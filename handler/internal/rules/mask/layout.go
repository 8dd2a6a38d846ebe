package mask

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
)

// maxDepth is deeper than any JSON that people read. It limits the indentation.
const maxDepth = 100

// layOut returns valid JSON in lines with its secrets masked. It keeps the order of members, members that appear twice,
// and the spelling of numbers.
func (m *masker) layOut(where string, value []byte) string {
	var w bytes.Buffer
	_ = json.Indent(&w, []byte(m.compact(where, value)), "", "  ") // of valid JSON
	return w.String()
}

// compact is layOut in one line.
func (m *masker) compact(where string, value []byte) string {
	return string(strictjson.EscapeUnprintable(m.value(where, bytes.TrimSpace(value), 0)))
}

func (m *masker) value(where string, value json.RawMessage, depth int) json.RawMessage {
	switch value[0] {
	case '"':
		return quote(m.text(where, unquote(string(value))))
	case '{', '[':
		members := membersOf(value)
		if depth >= maxDepth && len(members) > 0 {
			return quote("… (nested deeper)")
		}
		pair := pairName(members)
		for i, member := range members {
			if value[0] == '[' {
				members[i].Value = m.value(where+"["+strconv.Itoa(i)+"]", member.Value, depth+1)
				continue
			}
			name := member.Name
			if strings.EqualFold(name, "value") && pair != "" {
				name = pair
			}
			members[i].Name = m.text(where+".", member.Name) // "Authorization: Bearer ..." as a name is a mistake
			members[i].Value = m.member(where+"."+member.Name, name, member.Value, depth+1)
		}
		return strictjson.Pack(value[0], members)
	}
	return value
}

// pairName returns the secret name in an object with the members "name" or "key", and "value".
func pairName(members []strictjson.Member) string {
	for _, m := range members {
		isName := strings.EqualFold(m.Name, "name") || strings.EqualFold(m.Name, "key")
		if !isName || m.Value[0] != '"' {
			continue
		}
		if name := unquote(string(m.Value)); secret.Is(name) {
			return name
		}
	}
	return ""
}

// membersOf lists the members of an object or the elements of an array. Unlike strictjson, it accepts members that
// appear twice and text that is not UTF-8.
func membersOf(value json.RawMessage) (members []strictjson.Member) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	_, _ = decoder.Token()
	for decoder.More() {
		var m strictjson.Member
		if value[0] == '{' {
			name, _ := decoder.Token()
			m.Name, _ = name.(string)
		}
		_ = decoder.Decode(&m.Value)
		members = append(members, m)
	}
	return members
}

// member returns the value of a member, masked if the name is secret.
func (m *masker) member(where, name string, value json.RawMessage, depth int) json.RawMessage {
	embedded, found := m.embedded[strings.ToLower(where)]
	switch {
	case found && value[0] == '"' && len(value) > len(`""`):
		return m.decoded(where, embedded, unquote(string(value)), depth)
	case m.secrets == Revealed || !secret.Is(name):
		return m.value(where, value, depth)
	case value[0] == '"':
		return quote(m.credential(where, unquote(string(value))))
	}
	compact := strictjson.Compact(value)
	// nothing to hide, and worth knowing
	if slices.Contains([]string{"null", "true", "false", "{}", "[]"}, string(compact)) {
		return compact
	}
	return quote(m.hide(where, string(compact)))
}

// decoded returns embedded content as one string for each line. It hides invalid base64, because a single wrong
// character may be all that is wrong with it.
func (m *masker) decoded(where string, e envelope.Embedded, text string, depth int) json.RawMessage {
	content := []byte(text)
	if e.Base64 {
		var err error
		content, err = base64.StdEncoding.DecodeString(text)
		if err != nil {
			return quote(m.hide(where, text))
		}
	}
	var lines []string
	switch {
	case e.Kind == envelope.EmbeddedHTTP:
		lines = m.http(where, content)
	case e.Kind == envelope.EmbeddedJSON && json.Valid(content):
		return m.value(where, bytes.TrimSpace(content), depth)
	case e.Kind == envelope.EmbeddedJSON:
		lines = strings.Split(m.shownBody(where, "", content), "\n")
	default:
		contentType, _ := strictjson.String(strictjson.FoldNames.Get(m.root, e.ContentType...))
		lines = strings.Split(m.shownBody(where, contentType, content), "\n")
	}
	if len(lines) == 1 {
		return quote(lines[0])
	}
	quoted := make([]json.RawMessage, len(lines))
	for i, line := range lines {
		quoted[i] = quote(line)
	}
	return strictjson.PackArray(quoted)
}

func quote(text string) json.RawMessage { return strictjson.AppendString(nil, text) }

// unquote returns the text of a JSON string.
func unquote(literal string) (text string) {
	_ = json.Unmarshal([]byte(literal), &text) // of valid JSON
	return text
}

// bodyOrNote returns a body in lines or, if nothing of it may be shown, a note that says so.
func (m *masker) bodyOrNote(where, contentType string, body []byte) string {
	text, kind := m.body(where, contentType, body)
	if text == "" && kind != BodyNone {
		return m.conceal(where, kind, body)
	}
	return text
}

// shownBody is bodyOrNote, limited to maxBody.
func (m *masker) shownBody(where, contentType string, body []byte) string {
	text, cut := clip(strings.TrimSuffix(m.bodyOrNote(where, contentType, body), "\n"), maxBody)
	if cut {
		text += "\n… (cut)"
	}
	return text
}

// http returns an HTTP message in lines. It does not use a parser, because people look at malformed messages.
func (m *masker) http(where string, message []byte) []string {
	head, body, ok := strings.Cut(string(message), "\r\n\r\n")
	if !ok {
		head, body, _ = strings.Cut(head, "\n\n")
	}
	if isBinary([]byte(head)) {
		return []string{m.shownBody(where, "", message)}
	}
	contentType := ""
	var lines []string
	for i, line := range strings.Split(strings.TrimRight(head, "\r\n"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case i == 0 && (strings.HasPrefix(line, "HTTP/") || strings.Contains(line, " HTTP/")):
			line = m.startLine(where, line)
		case !ok || !httpguts.ValidHeaderFieldName(name):
			line = m.hide(where+".line", line) // it may continue a header's value, or lack a colon
		default:
			if strings.EqualFold(name, "Content-Type") {
				contentType = value
			}
			line = name + ": " + m.header(where+"."+name, name, value)
		}
		lines = append(lines, text.Lines(line))
	}
	if body == "" {
		return lines
	}
	return append(append(lines, ""), strings.Split(m.shownBody(where+".body", contentType, []byte(body)), "\n")...)
}

// startLine masks the target of a request line, and the reason phrase of a status line like any text.
func (m *masker) startLine(where, line string) string {
	first, rest, _ := strings.Cut(line, " ")
	if strings.HasPrefix(line, "HTTP/") {
		status, phrase, _ := strings.Cut(rest, " ")
		return strings.TrimSpace(first + " " + m.text(where, status) + " " + m.text(where, phrase))
	}
	end := strings.LastIndex(rest, " HTTP/")
	if end < 0 {
		return m.hide(where, line)
	}
	return m.text(where, first) + " " + m.url(where, rest[:end]) + " " + m.text(where, rest[end+1:])
}
