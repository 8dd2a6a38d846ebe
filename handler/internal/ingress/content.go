package ingress

import (
	"bytes"

	"github.com/segmentio/asm/base64"

	"asynccaller/handler/internal/strictjson"
)

// plainBase64 decodes a JSON string that is base64 and has no escapes, as the host writes it.
func plainBase64(literal []byte) (content []byte, ok bool) {
	if len(literal) < len(`""`) || literal[0] != '"' || literal[1] == '\\' { // which is how text begins
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
	buffer := takeBuffer()
	defer giveBack(buffer)
	buffer.Grow(len(literal))
	text, ok := strictjson.AppendUnquoted(buffer.AvailableBuffer(), literal)
	if !ok || len(text) == 0 || text[0] != '"' {
		return nil, false
	}
	return strictjson.AppendUnquoted(nil, text)
}
