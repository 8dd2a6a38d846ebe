package dotnet

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Response is an HTTP response message. The version and the reason phrase are not kept.
type Response struct {
	Status int         // 100 to 999
	Header http.Header // canonical names; each line is one value, joined values stay joined
	Body   []byte      // everything behind the blank line, nil without a content header; shares memory with the message
}

// ParseResponse reads a response message. It takes header values for text, whatever they should be: an
// answer like "Expires: -1" was sent by a target and kept as it was.
func ParseResponse(message []byte) (Response, error) {
	line, rest, found := bytes.Cut(message, []byte(lineEnd))
	if !found {
		return Response{}, errors.New("status line: no line end (CR LF)")
	}
	status, err := parseStatusLine(string(line))
	if err != nil {
		return Response{}, err
	}
	fields, body, err := parseFields(rest)
	if err != nil {
		return Response{}, err
	}
	response := Response{Status: status, Header: headerOf(fields)}
	if slices.ContainsFunc(fields, field.isContent) {
		response.Body = body
	}
	return response, nil
}

// FormatResponse writes a response as HttpMessageContent does: the headers of the response, then those of
// its content. [ParseResponse] reads it again if the status is from 100 to 999. A body that is not empty
// but has no content header gets "Content-Type: application/octet-stream", or it would not be read.
func FormatResponse(r Response) []byte {
	// The space behind the status stays without a reason phrase: .NET looks for it.
	message := appendLine(nil, "HTTP/1.1 "+strconv.Itoa(r.Status)+" "+http.StatusText(r.Status))
	message = appendHeaders(message, r.Header, len(r.Body) > 0)
	return append(message, r.Body...)
}

func parseStatusLine(line string) (int, error) {
	version, rest, _ := strings.Cut(line, " ")
	status, reason, _ := strings.Cut(rest, " ")
	switch {
	case !isVersion(version):
		return 0, errors.New("status line: the version is not like HTTP/1.1")
	case len(status) != 3 || status[0] == '0' || !isDigit(status[0]) || !isDigit(status[1]) || !isDigit(status[2]):
		return 0, errors.New("status line: the status is not a number from 100 to 999")
	case strings.ContainsAny(reason, lineEnd):
		// Headers whose lines end otherwise would pass for a reason phrase.
		return 0, errors.New("status line: the reason phrase holds a lone CR or LF")
	}
	return strconv.Atoi(status)
}
