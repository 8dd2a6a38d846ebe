package queue

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Encoding is how a queue stores a message's content as text: host.json `extensions.queues.messageEncoding`.
type Encoding string

// The encodings that the Functions host supports.
const (
	Base64 Encoding = "base64"
	None   Encoding = "none"
)

// Encode returns the text that stores the content.
func (e Encoding) Encode(content []byte) string {
	if e == None {
		return string(content)
	}
	return base64.StdEncoding.EncodeToString(content)
}

// skipSpace removes the white space that .NET's decoder ignores.
var skipSpace = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "")

// Decode returns the content that the text stores. Like .NET's decoder, which the host uses, it ignores
// white space and requires padding.
func (e Encoding) Decode(text string) ([]byte, error) {
	if e == None {
		return []byte(text), nil
	}
	content, err := base64.StdEncoding.DecodeString(skipSpace.Replace(text))
	if err != nil {
		return nil, fmt.Errorf("not base64: %w", err)
	}
	return content, nil
}

// MaxContentBytes returns the size of the largest content whose text fits into a message.
func (e Encoding) MaxContentBytes() int {
	if e == None {
		return MaxTextBytes
	}
	return MaxTextBytes / 4 * 3
}
