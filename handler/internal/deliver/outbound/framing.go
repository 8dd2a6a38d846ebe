package outbound

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"asynccaller/handler/internal/plain/socket"
)

// framingError says why nobody knows where the body of an answer ends. Reading the body returns it. Its text goes into
// the detail of an outcome, behind "answered 200, but".
type framingError string

func (e framingError) Error() string { return string(e) }

const (
	errChunkedNotLast framingError = "chunked is not its last transfer coding"
	errUnknownCoding  framingError = "it has an unknown transfer coding"
	errInvalidLength  framingError = "its Content-Length is invalid"
	errTwoLengths     framingError = "it has two different lengths"
)

// frame returns the header lines that make net/http read the body of an answer up to its end (RFC 9112, 6.3), given the
// values of Transfer-Encoding and Content-Length, one for each line. If these are not in the only form that net/http
// accepts, the lines close the connection after the answer. Without an end that is certain, frame returns an error, and
// lines for a body up to the close of the connection.
func frame(http10 bool, encodings, lengths []string) (lines string, err error) {
	chunked, codings, err := readCodings(encodings)
	length := "" // also beside a coding other than chunked: a server that keeps the connection does not end it
	if err == nil && !chunked {
		length, err = readLength(lengths)
	}
	var plain []string
	switch {
	case chunked:
		plain = []string{"chunked"}
		lines = "Transfer-Encoding: chunked\r\n"
	case length != "":
		plain = []string{length}
		lines = "Content-Length: " + length + "\r\n"
	}
	if len(codings) > 0 {
		lines += "Content-Encoding: " + strings.Join(codings, ", ") + "\r\n"
	}
	isPlain := !http10 && slices.EqualFunc(slices.Concat(encodings, lengths), plain, strings.EqualFold)
	if !isPlain {
		lines += "Connection: close\r\n"
	}
	return lines, err
}

// readCodings reads the values of Transfer-Encoding. Codings are those besides chunked, which we read as if they were
// content codings. Some servers name chunked twice but apply it once, or name identity, which is no coding.
func readCodings(values []string) (chunked bool, codings []string, err error) {
	for element := range elements(values) {
		coding, _, _ := strings.Cut(element, ";")
		coding = strings.ToLower(strings.TrimRight(coding, " \t"))
		switch coding {
		case "identity":
		case "chunked":
			chunked = true
		case "gzip", "x-gzip", "deflate", "compress", "x-compress":
			if chunked {
				return false, nil, errChunkedNotLast
			}
			codings = append(codings, strings.TrimPrefix(coding, "x-"))
		default:
			return false, nil, errUnknownCoding
		}
	}
	return chunked, codings, nil
}

// readLength reads the values of Content-Length, which may repeat a length (RFC 9110, 8.6). It returns an empty length
// for no values.
func readLength(values []string) (length string, err error) {
	for element := range elements(values) {
		n, err := strconv.ParseUint(element, 10, 63)
		if err != nil {
			return "", errInvalidLength
		}
		text := strconv.FormatUint(n, 10)
		if length != "" && text != length {
			return "", errTwoLengths
		}
		length = text
	}
	if length == "" && len(values) > 0 {
		return "", errInvalidLength
	}
	return length, nil
}

// elements yields the elements of a list that is the value of a header, without empty ones (RFC 9110, 5.6.1.2).
func elements(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, value := range values {
			for element := range strings.SplitSeq(value, ",") {
				element = strings.Trim(element, " \t")
				if element != "" && !yield(element) {
					return
				}
			}
		}
	}
}

// whyCut returns why the body of a response has no end, in words that follow "answered 200, but". Err is what reading
// the body has returned.
func whyCut(ctx context.Context, response *http.Response, err error) string {
	framing, isFraming := errors.AsType[framingError](err)
	isChunked := slices.Contains(response.TransferEncoding, "chunked")
	switch {
	case isFraming:
		return framing.Error()
	case ctx.Err() != nil:
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection closed before the end of its body"
	case socket.IsReset(err):
		return "the connection was reset before the end of its body"
	case isChunked && !is[net.Error](err): // package net/http has no type for it
		return "its chunks are broken"
	}
	return "the body did not end"
}
