package edit

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"asynccaller/handler/internal/strictjson"
)

// merge makes edited JSON of the original's bytes wherever the edit left a value as it was: what rewrites
// a whole envelope must not rewrite a body that the target insists on byte for byte.
type merge struct {
	// same says whether the edit left a value as it was.
	same func(original, edited json.RawMessage) bool
	// keepOrder keeps members where the original has them, for edits that know no order.
	keepOrder bool
}

// deepest is how deep merge looks for what was left as it was. An envelope's own members are no deeper, and
// a hostile sender could make every level cost the whole message.
const deepest = 16

func (m merge) values(original, edited json.RawMessage, depth int) (json.RawMessage, error) {
	original, edited = bytes.TrimSpace(original), bytes.TrimSpace(edited)
	switch {
	case m.same(original, edited):
		return original, nil
	case depth == deepest:
	case original[0] == '{' && edited[0] == '{':
		return m.objects(original, edited, depth)
	case original[0] == '[' && edited[0] == '[':
		return m.arrays(original, edited, depth)
	}
	return compact(edited), nil
}

func (m merge) objects(original, edited json.RawMessage, depth int) (json.RawMessage, error) {
	before, err := strictjson.Members(original)
	if err != nil {
		return compact(edited), nil //nolint:nilerr // an object with a name twice: nothing to go by
	}
	after, err := strictjson.Members(edited)
	if err != nil {
		return nil, err
	}
	places := make(map[string]int, len(before))
	for i, member := range before {
		places[member.Name] = i
	}
	for i, member := range after {
		place, found := places[member.Name]
		if !found {
			after[i].Value = compact(member.Value)
			continue
		}
		if after[i].Value, err = m.values(before[place].Value, member.Value, depth+1); err != nil {
			return nil, strictjson.In(member.Name, err)
		}
	}
	if m.keepOrder {
		place := func(name string) int {
			if i, found := places[name]; found {
				return i
			}
			return len(before)
		}
		slices.SortStableFunc(after, func(a, b strictjson.Member) int { return place(a.Name) - place(b.Name) })
	}
	return object(after), nil
}

func (m merge) arrays(original, edited json.RawMessage, depth int) (json.RawMessage, error) {
	before, err := strictjson.Elements(original)
	if err != nil {
		return nil, err
	}
	after, err := strictjson.Elements(edited)
	if err != nil {
		return nil, err
	}
	for i := range after {
		if i >= len(before) {
			after[i] = compact(after[i])
			continue
		}
		if after[i], err = m.values(before[i], after[i], depth+1); err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
	}
	return array(after), nil
}

// sameMeaning compares values that were read and written by a program, which spells strings in its own way
// but leaves numbers alone.
func sameMeaning(a, b json.RawMessage) bool {
	first, err := decodeNumbers(a)
	if err != nil {
		return false
	}
	second, err := decodeNumbers(b)
	return err == nil && reflect.DeepEqual(first, second)
}

// compact is JSON without the white space around its values.
func compact(value json.RawMessage) json.RawMessage {
	var w bytes.Buffer
	if err := json.Compact(&w, value); err != nil {
		return value
	}
	return w.Bytes()
}
