// Package bom reads texts that editors, shells and exports write: some begin with a byte order mark, and some are not
// UTF-8. JSON has neither (RFC 8259, 8.1).
package bom

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

const (
	// mark is the byte order mark in UTF-8.
	mark = "\xef\xbb\xbf"
	// headBytes is how many bytes show the encoding.
	headBytes = 4
)

// Text returns a text without its byte order mark. The error names the encoding of a text in UTF-16 or UTF-32, with or
// without a byte order mark, and what to do. The result shares the memory of content.
func Text(content []byte) ([]byte, error) {
	if encoding := wide(content); encoding != "" {
		return nil, fmt.Errorf("the text is %s: save it as UTF-8", encoding)
	}
	return bytes.TrimPrefix(content, []byte(mark)), nil
}

// wide returns the encoding of a text whose characters have more than one byte, or "".
func wide(content []byte) string {
	switch {
	case begins(content, "\xff\xfe\x00\x00", "a000"), begins(content, "\x00\x00\xfe\xff", "000a"):
		return "UTF-32"
	case begins(content, "\xff\xfe", "a0"), begins(content, "\xfe\xff", "0a"):
		return "UTF-16"
	}
	return ""
}

// begins reports whether a content begins with a byte order mark, or with a first character of ASCII, as JSON has it
// (RFC 4627, 3), in the same encoding. In the pattern of its bytes, a is the character.
func begins(content []byte, mark, pattern string) bool {
	if len(content) < len(mark) {
		return false
	}
	head := content[:len(mark)]
	if string(head) == mark {
		return true
	}
	for i, b := range head {
		isASCII := ' ' <= b && b <= '~' || b == '\t' || b == '\n' || b == '\r'
		isZero := b == 0
		wantsZero := pattern[i] == '0'
		if wantsZero && !isZero || !wantsZero && !isASCII {
			return false
		}
	}
	return true
}

// NewReader returns a reader of a text without its byte order mark. Its error is that of [Text]. It reads only as much
// ahead as it needs for that, and no more than one read returns.
func NewReader(text io.Reader) io.Reader { return &reader{text: bufio.NewReader(text)} }

type reader struct {
	text  *bufio.Reader
	begun bool
}

func (r *reader) Read(p []byte) (int, error) {
	if !r.begun {
		head, _ := r.text.Peek(headBytes) // a shorter text has its error at the read below
		rest, err := Text(head)
		if err != nil {
			return 0, err
		}
		_, _ = r.text.Discard(len(head) - len(rest))
		r.begun = true
	}
	return r.text.Read(p)
}
