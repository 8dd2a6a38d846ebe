package invoke

import (
	"bytes"
	"encoding/base64"

	"asynccaller/handler/strictjson"
)

// placeholder stands for the content while the rest of an invocation is read.
const placeholder = `"~"`

// liftContent takes the long string, which is the message, out of an invocation, so that only what is short
// goes through encoding/json: that reads a text three times. The rest has the placeholder in its place.
//
// It goes by the first member that has the binding's name, wherever that is. Whoever parses the rest sees
// whether it was the right one: then the placeholder, which stands nowhere else, is Data's member.
func liftContent(body []byte, binding string) (content, rest []byte, ok bool) {
	name := `"` + binding + `"`
	at := bytes.Index(body, []byte(name))
	if at < 0 {
		return nil, nil, false
	}
	at = strictjson.SkipSpace(body, at+len(name))
	if at == len(body) || body[at] != ':' {
		return nil, nil, false
	}
	start := strictjson.SkipSpace(body, at+1)
	end := strictjson.StringEnd(body, start)
	if end < 0 {
		return nil, nil, false
	}
	before, after := body[:start], body[end:]
	if bytes.Contains(before, []byte(placeholder)) || bytes.Contains(after, []byte(placeholder)) {
		return nil, nil, false
	}
	rest = make([]byte, 0, len(before)+len(placeholder)+len(after))
	rest = append(append(append(rest, before...), placeholder...), after...)
	return body[start:end], rest, true
}

// plainBase64 decodes a JSON string that is base64 and has no escapes, as the host writes it.
func plainBase64(literal []byte) (content []byte, ok bool) {
	if len(literal) < 2 || literal[0] != '"' {
		return nil, false
	}
	encoded := literal[1 : len(literal)-1]
	if bytes.IndexByte(encoded, '\n') >= 0 || bytes.IndexByte(encoded, '\r') >= 0 { // which the decoder would skip
		return nil, false
	}
	content = make([]byte, base64.StdEncoding.DecodedLen(len(encoded)))
	n, err := base64.StdEncoding.Decode(content, encoded)
	if err != nil {
		return nil, false
	}
	return content[:n], true
}

// plainText decodes a JSON string in a JSON string, as the host writes text.
func plainText(literal []byte) (content []byte, ok bool) {
	text, ok := strictjson.Unquote(literal)
	if !ok || len(text) == 0 || text[0] != '"' {
		return nil, false
	}
	return strictjson.Unquote(text)
}
