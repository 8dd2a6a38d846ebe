package dotnet

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

var statusCode = regexp.MustCompile(`^[1-9]\d\d$`)

// Response is an HTTP response message. It does not keep the version and the reason phrase.
type Response struct {
	Status int         // 100 to 999
	Header http.Header // canonical names; each line is one value, joined values stay joined
	Body   []byte      // everything after the blank line, nil without a content header; shares memory with the message
}

// ParseResponse reads a response message. It accepts any text as the value of a header, because targets send values such
// as "Expires: -1".
func ParseResponse(content []byte) (Response, error) {
	var status int
	m, err := parseMessage(content, "status line", func(line string) (err error) {
		status, err = parseStatusLine(line)
		return err
	})
	if err != nil {
		return Response{}, err
	}
	return Response{Status: status, Header: m.header(), Body: m.body()}, nil
}

// FormatResponse writes a response as HttpMessageContent does: the headers of the response, then those of its content.
// [ParseResponse] reads the result if the status is from 100 to 999. A body that is not empty but has no content header
// gets "Content-Type: application/octet-stream", because .NET would not read it otherwise.
func FormatResponse(r Response) []byte {
	// .NET wants the space after the status even without a reason phrase.
	content := appendLine(nil, "HTTP/1.1 "+strconv.Itoa(r.Status)+" "+http.StatusText(r.Status))
	content = appendHeaders(content, r.Header, len(r.Body) > 0)
	return append(content, r.Body...)
}

func parseStatusLine(line string) (int, error) {
	version, rest, _ := strings.Cut(line, " ")
	status, reason, _ := strings.Cut(rest, " ")
	switch {
	case !httpVersion.MatchString(version):
		return 0, errors.New("the version is not like HTTP/1.1")
	case !statusCode.MatchString(status):
		return 0, errors.New("the status is not a number from 100 to 999")
	case strings.ContainsAny(reason, lineEnd):
		// Without this check, headers with other line ends would be part of the reason phrase.
		return 0, errors.New("the reason phrase holds a lone CR or LF")
	}
	return strconv.Atoi(status)
}
