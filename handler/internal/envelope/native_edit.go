package envelope

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"asynccaller/handler/internal/strictjson"
)

func (*native) names() strictjson.Names { return strictjson.ExactNames }

func (*native) deadlineName() string { return "deadline" }

func (*native) unpack(content []byte) ([]byte, error) { return content, nil }

func (*native) repack(_, edited []byte) ([]byte, error) { return edited, nil }

// bodyMembers are the members of a call that are its body. A call has at most one of them.
var bodyMembers = []string{"body", "bodyBase64", "json"}

// nativeStrings are the members that can only be strings.
var nativeStrings = []string{
	"requestId", "call.url", "call.method", "callback.url", "callback.method", "notBefore", "deadline", "giveUp",
	"createdAt", "latestAttemptAt", "nextAttemptAt",
}

func (n *native) setPath(content []byte, path []string, text string) ([]byte, error) {
	of := part(path[0])
	switch {
	case len(path) == 3 && path[1] == "headers" && (of == partCall || of == partCallback):
		return n.changeHeader(content, of, path[2], &text)
	case len(path) == 2 && of == partCall && slices.Contains(bodyMembers, path[1]):
		return n.setBody(content, path[1], text)
	case slices.Contains(nativeStrings, strings.Join(path, ".")):
		return n.names().Set(content, path, asString(text))
	}
	return n.names().Set(content, path, asJSON(text))
}

// setBody replaces the body. The member json implies a Content-Type: another kind of body gets it as a header, so that
// the target can still read it.
func (n *native) setBody(content []byte, kind, text string) (_ []byte, err error) {
	values := map[string]json.RawMessage{kind: quote(text)}
	switch kind {
	case "json":
		values[kind] = asJSON(text)
	case "bodyBase64":
		values[kind] = asString(text)
	}
	wasJSON := n.names().Get(content, string(partCall), "json") != nil
	for _, member := range append([]string{kind}, bodyMembers...) {
		if content, err = n.names().Set(content, []string{string(partCall), member}, values[member]); err != nil {
			return nil, err
		}
	}
	headers := n.names().Get(content, string(partCall), "headers")
	if !wasJSON || kind == "json" || strictjson.FoldNames.Get(headers, "Content-Type") != nil {
		return content, nil
	}
	contentType := "application/json"
	return n.changeHeader(content, partCall, "Content-Type", &contentType)
}

func (n *native) changeHeader(content []byte, of part, name string, value *string) ([]byte, error) {
	return n.names().Change(content, []string{string(of), "headers"}, func(old json.RawMessage) (json.RawMessage, error) {
		current := old
		if old == nil || strictjson.IsNull(old) {
			current = json.RawMessage("{}")
		}
		headers, err := strictjson.Object(current)
		if err != nil {
			return nil, err
		}
		before := strictjson.Pack('{', headers)
		if value != nil && indexHeader(headers, name) < 0 {
			headers = append(headers, strictjson.Member{Name: name})
		}
		for i := range headers {
			if strings.EqualFold(headers[i].Name, name) {
				headers[i].Value = nil
				if value != nil {
					headers[i].Value, value = quote(*value), nil
				}
			}
		}
		if after := strictjson.Pack('{', headers); !bytes.Equal(before, after) {
			return after, nil
		}
		return old, nil
	})
}

func indexHeader(headers []strictjson.Member, name string) int {
	return slices.IndexFunc(headers, func(m strictjson.Member) bool { return strings.EqualFold(m.Name, name) })
}

func (n *native) replaceHost(content []byte, of part, replace HostReplacer) ([]byte, error) {
	content, err := n.names().Change(content, []string{string(of), "url"}, func(old json.RawMessage) (json.RawMessage, error) {
		return mapStrings(old, func(text string) string { return replaceInURL(text, replace) }), nil
	})
	if err != nil {
		return nil, err
	}
	return n.names().Change(content, []string{string(of), "headers"}, func(old json.RawMessage) (json.RawMessage, error) {
		return strictjson.FoldNames.Change(old, []string{"Host"}, func(host json.RawMessage) (json.RawMessage, error) {
			return mapStrings(host, func(text string) string {
				_, text = replace("", text)
				return text
			}), nil
		})
	})
}

// urlHost matches the scheme and the host of a URL, with user info between them.
var urlHost = regexp.MustCompile(`^([^:]*)://(?:[^/?#]*@)?([^/?#]*)`)

// replaceInURL keeps everything but the scheme and the host byte for byte: the target may insist on an unusual spelling.
func replaceInURL(text string, replace HostReplacer) string {
	at := urlHost.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	scheme, host := replace(text[:at[3]], text[at[4]:at[5]])
	return scheme + text[at[3]:at[4]] + host + text[at[5]:]
}

// mapStrings changes a string, or the strings in an array. It returns any other value as it is.
func mapStrings(value json.RawMessage, change func(string) string) json.RawMessage {
	if text, err := strictjson.String(orNull(value)); err == nil {
		if changed := change(text); changed != text {
			return quote(changed)
		}
		return value
	}
	elements, err := strictjson.Elements(orNull(value))
	if err != nil {
		return value
	}
	before := strictjson.PackArray(elements)
	for i, element := range elements {
		elements[i] = mapStrings(element, change)
	}
	if after := strictjson.PackArray(elements); !bytes.Equal(before, after) {
		return after
	}
	return value
}
