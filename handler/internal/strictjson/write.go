package strictjson

import (
	"bytes"
	"encoding/json"
)

// AppendString appends a text as a JSON string, without the escapes that only HTML needs. What is not UTF-8
// becomes U+FFFD, as encoding/json has it.
func AppendString(to []byte, text string) []byte {
	if needsNoEscape(text) { // nearly all do not
		return append(append(append(to, '"'), text...), '"')
	}
	b := bytes.NewBuffer(to)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // into memory
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func needsNoEscape(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
