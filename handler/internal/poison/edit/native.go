package edit

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"asynccaller/handler/internal/strictjson"
)

// native edits envelopes in our own format.
type native struct{}

// bodies are the members of a call that are its body. Only one of them may be there.
var bodies = []string{"body", "bodyBase64", "json"}

// nativeStrings are the members that only a string can be. Others that are strings, like retry, may also be
// something else, or any string is one of theirs.
var nativeStrings = []string{
	"requestId", "call.url", "call.method", "callback.url", "callback.method", "notBefore", "deadline", "giveUp",
	"createdAt", "latestAttemptAt", "nextAttemptAt",
}

func (n native) set(content []byte, path []string, text string) ([]byte, error) {
	if of := part(path[0]); len(path) == 3 && path[1] == "headers" && (of == calls || of == callbacks) {
		return n.changeHeader(content, of, HeaderChange{name: path[2], value: text})
	}
	joined := strings.Join(path, ".")
	if len(path) == 2 && path[0] == string(calls) && slices.Contains(bodies, path[1]) {
		return setNativeBody(content, path[1], text)
	}
	value := asJSON(text)
	if slices.Contains(nativeStrings, joined) {
		value = asString(text)
	}
	return names(sameName).at(content, path, become(value))
}

// setNativeBody gives the call one of the bodies instead of the one that it has. A json body says what it is
// without a header; what takes its place must go on saying it, or the target could not read it any more.
func setNativeBody(content []byte, kind, text string) ([]byte, error) {
	value := quote(text)
	switch kind {
	case "json":
		value = asJSON(text)
	case "bodyBase64":
		value = asString(text)
	}
	wasJSON := names(sameName).get(content, string(calls), "json") != nil
	content, err := names(sameName).at(content, []string{string(calls), kind}, become(value))
	if err != nil {
		return nil, err
	}
	for _, other := range bodies {
		if other == kind {
			continue
		}
		if content, err = names(sameName).at(content, []string{string(calls), other}, become(nil)); err != nil {
			return nil, err
		}
	}
	if !wasJSON || kind == "json" {
		return content, nil
	}
	return changeNativeHeaders(content, calls, func(headers []strictjson.Member) []strictjson.Member {
		if indexHeader(headers, "Content-Type") >= 0 {
			return headers
		}
		return append(headers, strictjson.Member{Name: "Content-Type", Value: quote("application/json")})
	})
}

func (native) changeHeader(content []byte, of part, change HeaderChange) ([]byte, error) {
	return changeNativeHeaders(content, of, func(headers []strictjson.Member) []strictjson.Member {
		first := indexHeader(headers, change.name)
		if !change.remove {
			if first < 0 {
				return append(headers, strictjson.Member{Name: change.name, Value: quote(change.value)})
			}
			headers[first].Value = quote(change.value)
			first++
		}
		if first < 0 {
			return headers
		}
		others := slices.DeleteFunc(headers[first:], func(m strictjson.Member) bool { return strings.EqualFold(m.Name, change.name) })
		return headers[:first+len(others)]
	})
}

// changeNativeHeaders changes the members of a call's headers.
func changeNativeHeaders(content []byte, of part, to func([]strictjson.Member) []strictjson.Member) ([]byte, error) {
	return names(sameName).at(content, []string{string(of), "headers"}, func(old json.RawMessage) (json.RawMessage, error) {
		var headers []strictjson.Member
		if old != nil && !strictjson.IsNull(old) {
			var err error
			if headers, err = strictjson.Members(old); err != nil {
				return nil, err
			}
		}
		before := slices.Clone(headers)
		after := to(headers)
		if slices.EqualFunc(before, after, sameMember) {
			return old, nil
		}
		return object(after), nil
	})
}

func sameMember(a, b strictjson.Member) bool {
	return a.Name == b.Name && string(a.Value) == string(b.Value)
}

func indexHeader(headers []strictjson.Member, name string) int {
	return slices.IndexFunc(headers, func(m strictjson.Member) bool { return strings.EqualFold(m.Name, name) })
}

func (native) replaceHost(content []byte, change HostChange) ([]byte, error) {
	var err error
	for _, of := range []part{calls, callbacks} {
		if content, err = names(sameName).at(content, []string{string(of), "url"}, whereString(change.inURL)); err != nil {
			return nil, err
		}
		content, err = changeNativeHeaders(content, of, func(headers []strictjson.Member) []strictjson.Member {
			if i := indexHeader(headers, "Host"); i >= 0 {
				headers[i].Value = oneOrMany(headers[i].Value, whereString(change.inHost))
			}
			return headers
		})
		if err != nil {
			return nil, err
		}
	}
	return content, nil
}

// whereString changes strings and leaves all else, which the handler will find fault with, as it is.
func whereString(to func(string) string) change {
	return func(old json.RawMessage) (json.RawMessage, error) {
		if old == nil {
			return nil, nil
		}
		text, err := strictjson.String(old)
		if err != nil {
			return old, nil //nolint:nilerr // see above
		}
		if changed := to(text); changed != text {
			return quote(changed), nil
		}
		return old, nil
	}
}

// oneOrMany changes a header's value, which may be an array.
func oneOrMany(value json.RawMessage, to change) json.RawMessage {
	elements, err := strictjson.Elements(value)
	if err != nil {
		changed, _ := to(value)
		return changed
	}
	before := slices.Clone(elements)
	for i := range elements {
		elements[i], _ = to(elements[i])
	}
	if slices.EqualFunc(before, elements, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
		return value
	}
	return array(elements)
}

// methodOfCallback is what a callback is made with unless it says otherwise.
const methodOfCallback = http.MethodPost
