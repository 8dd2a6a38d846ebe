package envelope

import (
	"bytes"
	"cmp"
	"errors"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/text"
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

// maxText is the longest text of an answer in bytes: what a callback can carry.
const maxText = 64 << 10

// Text returns the body as text, and whether that is the whole body; see [Answer.Readable].
func (a *Answer) Text() (text string, whole bool) {
	readable := a.readable(maxText, nil)
	return string(readable.Body), !readable.Truncated
}

// Readable returns the answer as it is kept: its body as text of at most 64 KiB, with *** in place of secrets, which
// are removed from the headers, too. Of a body that cannot be decoded to its end (see [Decode]), the text is what was
// decoded. The charset comes from the Content-Type, or else from the body's byte order mark; the default, also for an
// unknown charset, is UTF-8. .NET's ReadAsStringAsync, which gives Nexus's callbacks their payload, does the same,
// except that it decodes no Content-Encoding and fails for an unknown charset. A body that is no text keeps its bytes.
func (a *Answer) Readable(secrets []secret.Text) Answer { return a.readable(maxText, secrets) }

// readable is Readable for a text of at most limit bytes. It hides secrets in the decoded body before and after the
// charset is decoded, because an answer may state one that it does not have.
func (a *Answer) readable(limit int, secrets []secret.Text) Answer {
	r := Answer{Status: a.Status, Header: a.Header.Clone()}
	for _, values := range r.Header {
		for i, value := range values {
			values[i] = string(secret.Hide([]byte(value), false, secrets))
		}
	}
	content, whole := decoded(a.Header, a.Body, limit)
	r.Truncated = a.Truncated || !whole
	r.Header.Del("Content-Encoding")
	r.Body = secret.Hide(content, r.Truncated, secrets)
	mediaType, parameters := r.contentType()
	charset := parameters["charset"]
	if charset == "" || strings.EqualFold(charset, "utf-8") {
		r.Body = bytes.TrimPrefix(r.Body, []byte("\xef\xbb\xbf"))
	}
	from := encodingOf(charset, r.Body)
	if from == nil {
		return r
	}
	converted, err := from.NewDecoder().Bytes(r.Body)
	if err != nil {
		return r
	}
	if charset != "" {
		parameters["charset"] = "utf-8"
		r.Header.Set("Content-Type", cmp.Or(mime.FormatMediaType(mediaType, parameters), mediaType))
	}
	if r.Truncated { // the last character may be incomplete
		converted = bytes.TrimRight(converted, string(utf8.RuneError))
	}
	all := string(secret.Hide(converted, r.Truncated, secrets))
	r.Body = []byte(text.Clip(all, limit))
	r.Truncated = r.Truncated || len(r.Body) < len(all)
	return r
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
	beginning := a.readable(longest*longestCharacter, nil)
	x := &Excerpt{Status: a.Status, MediaType: text.Clip(a.MediaType(), maxMediaType), Truncated: beginning.Truncated}
	body := queueSafe(string(beginning.Body))
	if x.Truncated {
		body = strings.TrimRight(body, string(utf8.RuneError)) // the last character may be incomplete
	}
	x.Text = text.Clip(body, longest)
	x.Truncated = x.Truncated || len(x.Text) < len(body)
	return x
}

func (a *Answer) contentType() (mediaType string, parameters map[string]string) {
	mediaType, parameters, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", nil
	}
	return mediaType, parameters
}
