package envelope

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
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

// Text returns the body as text. The charset comes from the Content-Type, or else from the body's byte order mark; the
// default, also for an unknown charset, is UTF-8. .NET's ReadAsStringAsync, which gives Nexus's callbacks their payload,
// does the same, except that it fails for an unknown charset.
func (a *Answer) Text() string {
	_, charset := a.contentType()
	if charset == "" || strings.EqualFold(charset, "utf-8") {
		if rest, ok := bytes.CutPrefix(a.Body, []byte("\xef\xbb\xbf")); ok {
			return string(rest)
		}
	}
	from := a.encoding(charset)
	if from == nil {
		return string(a.Body)
	}
	text, err := from.NewDecoder().Bytes(a.Body)
	if err != nil {
		return string(a.Body)
	}
	return string(text)
}

// encoding returns the encoding of a charset, or nil for UTF-8.
func (a *Answer) encoding(charset string) encoding.Encoding {
	switch strings.ToLower(charset) {
	case "":
		// UTF-32's mark begins with UTF-16's, but nobody sends UTF-32.
		if bytes.HasPrefix(a.Body, []byte("\xff\xfe")) || bytes.HasPrefix(a.Body, []byte("\xfe\xff")) {
			return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM)
		}
		return nil
	case "utf-8", "us-ascii":
		return nil
	case "utf-16", "unicode":
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM) // as in .NET; RFC 2781 says big-endian
	}
	known, err := ianaindex.IANA.Encoding(charset)
	if err != nil {
		return nil
	}
	return known // nil for a charset that is registered but not supported
}

func (a *Answer) contentType() (mediaType, charset string) {
	mediaType, parameters, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", ""
	}
	return mediaType, parameters["charset"]
}
