package strictjson

import "github.com/go-json-experiment/json/jsontext"

// AppendString appends a text as a JSON string, without the escapes that only HTML needs. It replaces each byte
// that is not UTF-8 by U+FFFD, as encoding/json does.
func AppendString(to []byte, text string) []byte {
	to, _ = jsontext.AppendQuote(to, text) // the error says that a byte was replaced
	return to
}
