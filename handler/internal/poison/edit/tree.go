package edit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"asynccaller/handler/internal/strictjson"
)

// change makes a member's new value of its old one. nil is a member that is not there.
type change func(old json.RawMessage) (json.RawMessage, error)

// names says whether two names mean the same member.
type names func(a, b string) bool

func sameName(a, b string) bool { return a == b }

// at changes the value at a path below another value. Objects on the way that are missing or null are made.
// Where nothing changes, value is returned as it came, with its white space.
func (n names) at(value json.RawMessage, path []string, to change) (json.RawMessage, error) {
	if len(path) == 0 {
		return to(value)
	}
	if value == nil || strictjson.IsNull(value) {
		inner, err := n.at(nil, path[1:], to)
		if err != nil || inner == nil {
			return value, strictjson.In(path[0], err)
		}
		return object([]strictjson.Member{{Name: path[0], Value: inner}}), nil
	}
	switch value[0] {
	case '{':
		return n.atMember(value, path, to)
	case '[':
		return n.atElement(value, path, to)
	}
	return nil, strictjson.In(path[0], errors.New("stands in what is neither an object nor an array"))
}

func (n names) atMember(value json.RawMessage, path []string, to change) (json.RawMessage, error) {
	members, err := strictjson.Members(value)
	if err != nil {
		return nil, err
	}
	i := 0
	for i < len(members) && !n(members[i].Name, path[0]) {
		i++
	}
	if i == len(members) {
		members = append(members, strictjson.Member{Name: path[0]})
	}
	old := members[i].Value
	changed, err := n.at(old, path[1:], to)
	switch {
	case err != nil:
		return nil, strictjson.In(path[0], err)
	case bytes.Equal(changed, old):
		return value, nil
	}
	members[i].Value = changed
	return object(members), nil
}

func (n names) atElement(value json.RawMessage, path []string, to change) (json.RawMessage, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	i, err := strconv.Atoi(path[0])
	if err != nil || i < 0 || i > len(elements) {
		return nil, strictjson.In(path[0], fmt.Errorf("want the number of an element: the array has %d, counted from 0", len(elements)))
	}
	if i == len(elements) {
		elements = append(elements, nil)
	}
	old := elements[i]
	changed, err := n.at(old, path[1:], to)
	switch {
	case err != nil:
		return nil, strictjson.In(path[0], err)
	case bytes.Equal(changed, old):
		return value, nil
	}
	elements[i] = changed
	return array(elements), nil
}

// get is the value at a path of members, or nil.
func (n names) get(value json.RawMessage, path ...string) json.RawMessage {
	var found json.RawMessage
	_, err := n.at(value, path, func(old json.RawMessage) (json.RawMessage, error) {
		found = old
		return old, nil
	})
	if err != nil {
		return nil
	}
	return found
}

// object writes an object. Members without a value are left out.
func object(members []strictjson.Member) json.RawMessage {
	w := bytes.NewBufferString("{")
	for _, m := range members {
		if m.Value == nil {
			continue
		}
		if w.Len() > 1 {
			w.WriteByte(',')
		}
		w.Write(quote(m.Name))
		w.WriteByte(':')
		w.Write(m.Value)
	}
	w.WriteByte('}')
	return w.Bytes()
}

// array writes an array. Elements without a value are left out.
func array(elements []json.RawMessage) json.RawMessage {
	w := bytes.NewBufferString("[")
	for _, element := range elements {
		if element == nil {
			continue
		}
		if w.Len() > 1 {
			w.WriteByte(',')
		}
		w.Write(element)
	}
	w.WriteByte(']')
	return w.Bytes()
}

// quote writes a text as JSON, without the escapes that only HTML needs.
func quote(text string) json.RawMessage { return strictjson.AppendString(nil, text) }

// asJSON is a value as --set takes it: JSON if it is, else a string.
func asJSON(text string) json.RawMessage {
	if trimmed := strings.TrimSpace(text); utf8.ValidString(text) && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	return quote(text)
}

// asString is a value where only a string can stand: a JSON string as it is written, nil for null, and
// else the text.
func asString(text string) json.RawMessage {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "null":
		return nil
	case strings.HasPrefix(trimmed, `"`) && json.Valid([]byte(trimmed)):
		return json.RawMessage(trimmed)
	}
	return quote(text)
}

// become is a change to this value, whatever was there.
func become(value json.RawMessage) change {
	return func(json.RawMessage) (json.RawMessage, error) { return value, nil }
}
