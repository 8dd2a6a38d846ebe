package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// maxParseDepth is how deep the real host's JSON parser goes.
const maxParseDepth = 64

// metadata is the Metadata object of an invocation in the order of its members. Names are compared
// without regard to case.
type metadata []member

type member struct {
	name  string
	value []byte // JSON
}

// set gives the named member a value; a name that is there already keeps its spelling.
func (m *metadata) set(name string, value []byte) {
	for i := range *m {
		if strings.EqualFold((*m)[i].name, name) {
			(*m)[i].value = value
			return
		}
	}
	*m = append(*m, member{name, value})
}

// forge lets the content of a text mode message overwrite the metadata, as the real host does: section
// A.4 of the Functions host contract. Content that is no JSON object changes nothing.
//
// The real host's parser also takes comments, single quotes and the like; this one does not.
func (m *metadata) forge(content []byte) {
	trimmed := bytes.TrimSpace(content)
	if len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(trimmed) || depth(trimmed) > maxParseDepth {
		return
	}
	members, err := parseObject(trimmed)
	if err != nil {
		return
	}
	for _, property := range members {
		// The host leaves out what is called trigger when it writes the metadata.
		if strings.HasSuffix(strings.ToLower(property.name), "trigger") {
			continue
		}
		if value, ok := forgedValue(property.value); ok {
			m.set(property.name, value)
		}
	}
}

// forgedValue converts a property's value into a metadata value; nulls and arrays have none.
func forgedValue(value []byte) ([]byte, bool) {
	switch value[0] {
	case '{':
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			return nil, false
		}
		return compact.Bytes(), true
	case '[', 'n':
		return nil, false
	case 't':
		return doubleEncoded("True"), true
	case 'f':
		return doubleEncoded("False"), true
	case '"':
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			return nil, false
		}
		return doubleEncoded(dotNetString(s)), true
	default:
		return doubleEncoded(dotNetNumber(string(value))), true
	}
}

var errNotObject = errors.New("not a JSON object")

// parseObject returns an object's members in order. Of several with exactly the same name the last
// one's value stands in the first one's place.
func parseObject(object []byte) (metadata, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, errNotObject
	}
	var members metadata
	places := map[string]int{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, errNotObject
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		if place, again := places[name]; again {
			members[place].value = value
			continue
		}
		places[name] = len(members)
		members = append(members, member{name, value})
	}
	return members, nil
}

// depth tells how deep objects and arrays are nested in valid JSON.
func depth(text []byte) int {
	var level, deepest int
	inString, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}
