package queue

import (
	"fmt"
	"strings"

	"github.com/segmentio/asm/base64"
)

// Encoding is how a message's content stands on the queue: host.json `extensions.queues.messageEncoding`.
type Encoding string

// The encodings that the Functions host knows.
const (
	Base64 Encoding = "base64"
	None   Encoding = "none"
)

// Encode returns the text that holds the content.
func (e Encoding) Encode(content []byte) string {
	if e == None {
		return string(content)
	}
	return base64.StdEncoding.EncodeToString(content)
}

// Decode returns the content that the text holds. Like .NET's decoder, which the host uses, it skips
// white space and insists on padding.
func (e Encoding) Decode(text string) ([]byte, error) {
	if e == None {
		return []byte(text), nil
	}
	content, err := base64.StdEncoding.DecodeString(strings.Map(dropSpace, text))
	if err != nil {
		return nil, fmt.Errorf("not base64: %w", err)
	}
	return content, nil
}

// MaxContentBytes is the size of the largest content whose text a queue takes.
func (e Encoding) MaxContentBytes() int {
	if e == None {
		return MaxTextBytes
	}
	return MaxTextBytes / 4 * 3
}

func dropSpace(r rune) rune {
	switch r {
	case ' ', '\t', '\r', '\n':
		return -1
	}
	return r
}
