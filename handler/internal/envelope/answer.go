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

// Answer is what the target answered to a call.
type Answer struct {
	Status int
	Header http.Header
	// Body is the beginning of the body; Truncated says that there was more.
	Body      []byte
	Truncated bool
}

// MediaType is the answer's Content-Type without parameters, or empty when it has none that can be read.
func (a *Answer) MediaType() string {
	mediaType, _ := a.contentType()
	return mediaType
}

// Text is the body as text: in the charset that the Content-Type names or the body begins with, else in
// UTF-8. A charset that nobody knows counts as none. This is what .NET's ReadAsStringAsync does, which
// gives Nexus's callbacks their payload, but that it fails for an unknown charset.
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

// encoding is nil for UTF-8.
func (a *Answer) encoding(charset string) encoding.Encoding {
	switch strings.ToLower(charset) {
	case "":
		// The four bytes of UTF-32's mark begin with UTF-16's; nobody sends UTF-32.
		if bytes.HasPrefix(a.Body, []byte("\xff\xfe")) || bytes.HasPrefix(a.Body, []byte("\xfe\xff")) {
			return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM)
		}
		return nil
	case "utf-8", "us-ascii":
		return nil
	case "utf-16", "unicode":
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM) // as .NET; RFC 2781 would have big-endian
	}
	known, err := ianaindex.IANA.Encoding(charset)
	if err != nil {
		return nil
	}
	return known // nil for one that is registered but not supported
}

func (a *Answer) contentType() (mediaType, charset string) {
	mediaType, parameters, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", ""
	}
	return mediaType, parameters["charset"]
}
