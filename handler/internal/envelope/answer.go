package envelope

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"

	"asynccaller/handler/internal/text"
)

// Answer is a target's answer to a call.
type Answer struct {
	Status int
	Header http.Header
	// Body is the beginning of the body; Truncated is set if there was more.
	Body      []byte
	Truncated bool
}

// MediaType returns the answer's Content-Type without parameters. It is empty if there is none, or if it is invalid.
func (a *Answer) MediaType() string {
	mediaType, _ := a.contentType()
	return mediaType
}

// maxText is the longest text of an answer in bytes before its charset is decoded: what a callback can carry.
const maxText = 64 << 10

// Text returns the body as text, and whether that is the whole body. It is empty for a body whose coding cannot be
// decoded; see [Decode]. The charset comes from the Content-Type, or else from the body's byte order mark; the default,
// also for an unknown charset, is UTF-8. .NET's ReadAsStringAsync, which gives Nexus's callbacks their payload, does
// the same, except that it decodes no Content-Encoding and fails for an unknown charset.
func (a *Answer) Text() (text string, whole bool) { return a.text(maxText) }

// text is Text for at most limit bytes of the decoded body.
func (a *Answer) text(limit int) (text string, whole bool) {
	content, whole := decoded(a.Header, a.Body, limit)
	whole = whole && !a.Truncated
	_, charset := a.contentType()
	if charset == "" || strings.EqualFold(charset, "utf-8") {
		content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	}
	if from := encodingOf(charset, content); from != nil {
		if text, err := from.NewDecoder().Bytes(content); err == nil {
			return string(text), whole
		}
	}
	return string(content), whole
}

// encodingOf returns the encoding of a charset, or nil for UTF-8. Without a charset a byte order mark decides.
func encodingOf(charset string, content []byte) encoding.Encoding {
	switch strings.ToLower(charset) {
	case "":
		// UTF-32's mark begins with UTF-16's, but targets do not send UTF-32.
		if bytes.HasPrefix(content, []byte("\xff\xfe")) || bytes.HasPrefix(content, []byte("\xfe\xff")) {
			return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM)
		}
		return nil
	case "utf-8", "us-ascii":
		return nil
	case "utf-16", "unicode":
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM) // as in .NET; RFC 2781 says big-endian
	}
	known, _ := ianaindex.IANA.Encoding(charset)
	if known != nil {
		return known
	}
	known, _ = htmlindex.Get(charset) // the labels of the WHATWG Encoding Standard, which servers use beside IANA's
	if known == encoding.Replacement {
		return nil // a charset that browsers refuse to decode; its ASCII is readable
	}
	return known
}

// Excerpt is the beginning of an answer, for a person to read.
type Excerpt struct {
	Status    int    `json:"status"`
	MediaType string `json:"mediaType"`
	// Text is the beginning of the body as text, at most 2 KiB. Truncated is set if there was more.
	Text      string `json:"text"`
	Truncated bool   `json:"truncated"`
}

const maxExcerpt = 2 << 10

// Excerpt returns the beginning of the answer, or nil if there is no answer.
func (a *Answer) Excerpt() *Excerpt { return a.excerpt(maxExcerpt) }

// excerpt returns an excerpt whose text has at most longest bytes.
func (a *Answer) excerpt(longest int) *Excerpt {
	if a == nil {
		return nil
	}
	const longestCharacter = 4 // bytes of any charset
	beginning, whole := a.text(longest * longestCharacter)
	x := &Excerpt{Status: a.Status, MediaType: text.Clip(a.MediaType(), maxMediaType), Truncated: !whole}
	body := queueSafe(beginning)
	if x.Truncated {
		body = strings.TrimRight(body, string(utf8.RuneError)) // the last character may be incomplete
	}
	x.Text = text.Clip(body, longest)
	x.Truncated = x.Truncated || len(x.Text) < len(body)
	return x
}

func (a *Answer) contentType() (mediaType, charset string) {
	mediaType, parameters, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", ""
	}
	return mediaType, parameters["charset"]
}
