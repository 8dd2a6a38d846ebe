package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/secret"
	"asynccaller/handler/internal/strictjson"
)

// maxDepth is deeper than any JSON that people read. It limits the indentation.
const maxDepth = 100

// printer writes JSON with its secrets masked. It keeps the order of members, members that appear twice, and the
// spelling of numbers. It stops soon after the limit, in bytes.
type printer struct {
	strings.Builder
	*masker
	limit  int
	indent string // empty for one line
	root   json.RawMessage
}

// layOut returns valid JSON in lines, and compact returns it in one line.
func (m *masker) layOut(where string, value []byte, limit int) string {
	p := &printer{masker: m, limit: limit, indent: "  ", root: value}
	p.value(where, bytes.TrimSpace(value), 0)
	return p.String()
}

func (m *masker) compact(where string, value []byte) string {
	p := &printer{masker: m, limit: maxContent, root: value}
	p.value(where, bytes.TrimSpace(value), 0)
	return p.String()
}

func (p *printer) value(where string, value json.RawMessage, depth int) {
	switch value[0] {
	case '"':
		p.quote(p.text(where, unquote(string(value))))
	case '{', '[':
		p.members(where, value, depth)
	default:
		p.Write(value)
	}
}

func (p *printer) members(where string, value json.RawMessage, depth int) {
	members := membersOf(value)
	if depth >= maxDepth && len(members) > 0 {
		p.quote("… (nested deeper)")
		return
	}
	pair := pairName(members)
	p.list(string(value[0]), string(value[len(value)-1]), len(members), depth, func(i int) {
		member := members[i]
		if value[0] == '[' {
			p.value(where+"["+strconv.Itoa(i)+"]", member.Value, depth+1)
			return
		}
		p.quote(p.text(where+".", member.Name)) // a name such as "Authorization: Bearer ..." holds a secret by mistake
		p.WriteByte(':')
		if p.indent != "" {
			p.WriteByte(' ')
		}
		name := member.Name
		if strings.EqualFold(name, "value") && secret.Is(pair) {
			name = pair
		}
		p.member(where+"."+member.Name, name, member.Value, depth+1)
	})
}

// pairName returns the name that an object with the members "name" or "key", and "value", is about.
func pairName(members []strictjson.Member) string {
	for _, m := range members {
		if (strings.EqualFold(m.Name, "name") || strings.EqualFold(m.Name, "key")) && m.Value[0] == '"' {
			if name := unquote(string(m.Value)); secret.Is(name) {
				return name
			}
		}
	}
	return ""
}

// membersOf lists the members of an object or the elements of an array. Unlike strictjson, it accepts members that appear
// twice and text that is not UTF-8.
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

// member writes the value of a member, masked if the name is secret.
func (p *printer) member(where, name string, value json.RawMessage, depth int) {
	embedded, found := p.embedded[strings.ToLower(where)]
	switch {
	case found && value[0] == '"' && len(value) > len(`""`):
		p.decoded(where, embedded, unquote(string(value)), depth)
	case p.secrets == Revealed || !secret.Is(name):
		p.value(where, value, depth)
	case value[0] == '"':
		p.quote(p.credential(where, unquote(string(value))))
	default:
		compact := string(strictjson.Compact(value))
		if slices.Contains([]string{"null", "true", "false", "{}", "[]"}, compact) { // nothing to hide, and worth knowing
			p.WriteString(compact)
			return
		}
		p.quote(p.hide(where, compact))
	}
}

// decoded writes embedded content as one string for each line. It hides invalid base64, because a single wrong
// character may be all that is wrong with it.
func (p *printer) decoded(where string, e envelope.Embedded, text string, depth int) {
	content := []byte(text)
	if e.Base64 {
		var err error
		if content, err = base64.StdEncoding.DecodeString(text); err != nil {
			p.quote(p.hide(where, text))
			return
		}
	}
	var lines []string
	switch {
	case e.Kind == envelope.EmbeddedHTTP:
		lines = p.http(where, content)
	case e.Kind == envelope.EmbeddedJSON && json.Valid(content):
		p.value(where, bytes.TrimSpace(content), depth)
		return
	case e.Kind == envelope.EmbeddedJSON:
		lines = []string{p.shownBody(where, "", content)}
	default:
		contentType, _ := strictjson.String(strictjson.FoldNames.Get(p.root, e.ContentType...))
		lines = strings.Split(p.shownBody(where, contentType, content), "\n")
	}
	if len(lines) == 1 {
		p.quote(lines[0])
		return
	}
	p.list("[", "]", len(lines), depth, func(i int) { p.quote(lines[i]) })
}

// list writes n items between brackets.
func (p *printer) list(open, end string, n, depth int, item func(i int)) {
	newline := func(depth int) {
		if p.indent != "" {
			p.WriteString("\n" + strings.Repeat(p.indent, depth))
		}
	}
	p.WriteString(open)
	for i := range n {
		if p.Len() > p.limit {
			return
		}
		if i > 0 {
			p.WriteByte(',')
		}
		newline(depth + 1)
		item(i)
	}
	if n > 0 {
		newline(depth)
	}
	p.WriteString(end)
}

func (p *printer) quote(text string) { p.WriteString(quote(text)) }

// quote returns a JSON string with an escape for each character that cannot be printed, and for no other.
func quote(text string) string {
	return string(strictjson.EscapeUnprintable(strictjson.AppendString(nil, text)))
}

// unquote returns the text of a JSON string. It returns a string that has no end, or escapes that JSON does not know, as
// it is.
func unquote(literal string) string {
	var text string
	for _, candidate := range []string{literal, literal + `"`} {
		if json.Unmarshal([]byte(candidate), &text) == nil {
			return text
		}
	}
	return strings.Trim(literal, `"`)
}

// shownBody returns a body in lines or, if nothing of it is shown, a note that says so.
func (m *masker) shownBody(where, contentType string, body []byte) string {
	text, kind := m.body(where, contentType, body)
	if kind == BodyBinary && text == "" {
		return fmt.Sprintf("(binary, %d bytes)", len(body))
	}
	text, cut := clip(strings.TrimSuffix(text, "\n"), maxBody)
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
		case !ok || strings.TrimSpace(name) != name || name == "":
			line = m.hide(where+".line", line) // it may continue a header's value, or lack a colon
		default:
			if strings.EqualFold(name, "Content-Type") {
				contentType = value
			}
			line = name + ": " + m.header(where+"."+name, name, value)
		}
		lines = append(lines, printable(line))
	}
	if body == "" {
		return lines
	}
	return append(append(lines, ""), strings.Split(m.shownBody(where+".body", contentType, []byte(body)), "\n")...)
}

// startLine masks the target of a request line, and the reason phrase of a status line like any text.
func (m *masker) startLine(where, line string) string {
	method, rest, _ := strings.Cut(line, " ")
	end := strings.LastIndex(rest, " HTTP/")
	if strings.HasPrefix(line, "HTTP/") || end < 0 {
		return m.text(where, line)
	}
	return method + " " + m.url(where, rest[:end]) + rest[end:]
}
