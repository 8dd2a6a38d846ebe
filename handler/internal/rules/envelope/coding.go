package envelope

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxCodings is more than any answer has; each coding takes some 50 KiB of memory while it is decoded.
	maxCodings = 2
	// maxCodedBytes limits what each coding reads: what a bomb decodes to may be another one, which yields nothing.
	maxCodedBytes = 2 << 20
	// peekedBytes is how much of a body decides whether it is encoded at all.
	peekedBytes = 512
)

// errUnknownCoding ends a body that is not text, and whose Content-Encoding is none that Decode knows.
var errUnknownCoding = errors.New("the Content-Encoding is not supported")

// Decode returns a body without its codings: gzip and deflate of Content-Encoding (RFC 9110, 8.4.1). Reading it fails
// where the body breaks off, or is not what its coding says. Some servers state a coding that the body does not have,
// or a charset in its place: a body that begins as UTF-8 text is therefore never taken for encoded. Other codings, and
// more than two, cannot be decoded.
func Decode(header http.Header, body io.Reader) io.Reader {
	codings := contentCodings(header)
	for i, coding := range slices.Backward(codings) {
		peeked := bufio.NewReaderSize(io.LimitReader(body, maxCodedBytes), peekedBytes)
		beginning, _ := peeked.Peek(peekedBytes) // an error comes again
		if isText(beginning) {
			return peeked
		}
		tooMany := len(codings)-i > maxCodings
		if tooMany {
			coding = ""
		}
		body = &decodedBody{coding: coding, from: peeked}
	}
	return body
}

// contentCodings returns the codings of a body in the order in which they were applied, in lower case.
func contentCodings(header http.Header) (codings []string) {
	for _, value := range header.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(strings.ToLower(value), ",") {
			coding = strings.TrimSpace(coding)
			if coding != "" && coding != "identity" {
				codings = append(codings, coding)
			}
		}
	}
	return codings
}

// isText reports whether a beginning is UTF-8. Its last character may be incomplete.
func isText(beginning []byte) bool {
	for len(beginning) > 0 {
		r, size := utf8.DecodeRune(beginning)
		if r == utf8.RuneError && size == 1 {
			return !utf8.FullRune(beginning)
		}
		beginning = beginning[size:]
	}
	return true
}

// decodedBody decodes one coding. It opens its decoder at the first read.
type decodedBody struct {
	coding  string
	from    *bufio.Reader
	decoder io.Reader
}

func (d *decodedBody) Read(p []byte) (int, error) {
	if d.decoder == nil {
		decoder, err := d.open()
		if err != nil {
			return 0, err
		}
		d.decoder = decoder
	}
	return d.decoder.Read(p)
}

func (d *decodedBody) open() (io.Reader, error) {
	switch d.coding {
	case "gzip", "x-gzip":
		return gzip.NewReader(d.from)
	case "deflate":
		const header = 2
		beginning, _ := d.from.Peek(header)
		isZlib := len(beginning) == header && beginning[0]&0xf == 8 &&
			(int(beginning[0])<<8|int(beginning[1]))%31 == 0 // RFC 1950, 2.2
		if isZlib {
			return zlib.NewReader(d.from)
		}
		return flate.NewReader(d.from), nil // some servers leave out the header and the checksum of zlib
	}
	return nil, errUnknownCoding
}

// decoded returns at most limit bytes of a body without its codings, and whether that is the whole body.
func decoded(header http.Header, body []byte, limit int) (content []byte, whole bool) {
	if len(contentCodings(header)) == 0 {
		return body[:min(len(body), limit)], len(body) <= limit
	}
	content, err := io.ReadAll(io.LimitReader(Decode(header, bytes.NewReader(body)), int64(limit)+1))
	return content[:min(len(content), limit)], err == nil && len(content) <= limit
}
