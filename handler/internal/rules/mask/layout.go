package mask

import (
	"bytes"
	"encoding/json"
	"regexp"
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

// layOut returns JSON in lines with its secrets masked. It keeps the order of members, members that appear twice, and
// the spelling of numbers. Of JSON that is broken or cut off it returns the beginning, and a mark.
func (m *masker) layOut(where, text string) string {
	shown, mark := m.json(where, text)
	var w bytes.Buffer
	_ = json.Indent(&w, shown, "", "  ") // of valid JSON
	return w.String() + mark
}

// compact is layOut in one line.
func (m *masker) compact(where, text string) string {
	shown, mark := m.json(where, text)
	return string(shown) + mark
}

func (m *masker) json(where, text string) (shown []byte, mark string) {
	text = strings.TrimPrefix(text, byteOrderMark)
	if !json.Valid([]byte(text)) {
		beginning := completeJSON(text)
		if !json.Valid([]byte(beginning)) || strings.Trim(beginning, "[]{} \t\r\n") == "" {
			return nil, m.hide(where, text)
		}
		mark = m.rest(where, text)
		defer func(was bool) { m.isBeginning = was }(m.isBeginning)
		m.isBeginning = true
		text = beginning
	}
	return strictjson.EscapeUnprintable(m.value(where, []byte(strings.TrimSpace(text)), 0)), mark
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
		const ofPair = "secret"
		isPair := m.isBeginning || slices.ContainsFunc(members, namesPair)
		previous := ""
		for i, member := range members {
			at, name := where+"."+member.Name, member.Name
			switch {
			case value[0] == '[':
				at, name = where+"["+strconv.Itoa(i)+"]", previous
				previous = ""
				if wholeName.Match(member.Value) {
					previous = string(member.Value)
				}
			case isPair && valueNames.MatchString(name):
				name = ofPair
			}
			members[i].Name = m.text(where+".", member.Name) // "Authorization: Bearer ..." as a name is a mistake
			members[i].Value = m.member(at, name, member.Value, depth+1)
		}
		return strictjson.Pack(value[0], members)
	}
	return value
}

var (
	// pairNames and valueNames are the names of members that have the name of a field, and its value.
	pairNames  = regexp.MustCompile(`(?i)(?:name|key|field|property|path|param|loc)$`)
	valueNames = regexp.MustCompile(`(?i)value$|^input$`)
	// wholeName matches a JSON string that is one word.
	wholeName = regexp.MustCompile(`^"[\w.-]+"$`)
)

// namesPair reports whether a member has the name of a secret, as in {"field": "password", "value": "x"}.
func namesPair(m strictjson.Member) bool {
	return pairNames.MatchString(m.Name) && strings.ContainsRune(`"[`, rune(m.Value[0])) && secret.Is(string(m.Value))
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

// decoded returns embedded content as one string for each line. It hides invalid base64 and gzip, because a single
// wrong character may be all that is wrong with it.
func (m *masker) decoded(where string, e envelope.Embedded, text string, depth int) json.RawMessage {
	content, err := e.Decode(text)
	if err != nil {
		return quote(m.hide(where, text))
	}
	var lines []string
	switch {
	case e.Kind == envelope.EmbeddedHTTP:
		lines = m.http(where, content)
	case e.Kind == envelope.EmbeddedJSON && json.Valid(content):
		return m.value(where, bytes.TrimSpace(content), depth)
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

// shownBody returns what may be shown of a body in lines, at most maxBody bytes.
func (m *masker) shownBody(where, contentType string, body []byte) string {
	text, _ := m.body(where, contentType, body)
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
	contentType := ""
	var lines []string
	for i, line := range strings.Split(strings.TrimRight(head, "\r\n"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case i == 0 && startLine.MatchString(line):
			part := startLine.FindStringSubmatch(line)
			line = part[1] + m.url(where, part[2]) + part[3]
		case i == 0 && strings.HasPrefix(line, "HTTP/"):
			line = m.text(where, line)
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

// startLine matches the parts of a request line.
var startLine = regexp.MustCompile(`^([A-Za-z-]+ )([^ ]+)( HTTP/[0-9.]+)$`)
