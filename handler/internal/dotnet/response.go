package dotnet

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
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

var (
	number   = regexp.MustCompile(`^[0-9]{1,9}$`)
	tokens   = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+(, ?[A-Za-z0-9!#$%&'*+.^_|~-]+)*$`)
	products = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+(/[A-Za-z0-9!#$%&'*+.^_|~-]+)?( [A-Za-z0-9!#$%&'*+.^_|~-]+(/[A-Za-z0-9!#$%&'*+.^_|~-]+)?)*$`)
)

// parsed lists the headers whose values .NET parses when it reads a message (System.Net.Http, KnownHeaders). One value
// that it cannot parse makes the whole message unreadable. Each function reports values that .NET accepts for certain; nil
// stands for none.
var parsed = map[string]func(value string) bool{
	"Accept": nil, "Accept-Charset": nil, "Accept-Encoding": nil, "Accept-Language": nil,
	"Accept-Ranges": tokens.MatchString, "Age": number.MatchString, "Allow": tokens.MatchString, "Authorization": nil,
	"Cache-Control": nil, "Connection": nil, "Content-Disposition": nil, "Content-Encoding": tokens.MatchString,
	"Content-Language": tokens.MatchString, "Content-Length": number.MatchString, "Content-Location": isURI,
	"Content-Md5": nil, "Content-Range": nil, "Content-Type": isMediaType, "Date": isDate, "Expect": nil, "From": nil,
	"Host": nil, "If-Match": nil, "If-Modified-Since": nil, "If-None-Match": nil, "If-Range": nil,
	"If-Unmodified-Since": nil, "Last-Modified": isDate, "Location": isURI, "Max-Forwards": nil, "Pragma": nil,
	"Proxy-Authenticate": nil, "Proxy-Authorization": nil, "Range": nil, "Referer": nil,
	"Retry-After": func(value string) bool { return number.MatchString(value) || isDate(value) },
	"Server":      products.MatchString, "Te": nil, "Trailer": nil, "Transfer-Encoding": nil, "Upgrade": nil,
	"User-Agent": nil, "Vary": tokens.MatchString, "Via": nil, "Warning": nil, "Www-Authenticate": nil,
}

// Readable returns the headers that .NET accepts for certain when it reads them in a message. .NET refuses a whole
// message if one value does not fit the definition of its header, for example a comma in Server.
func Readable(header http.Header) http.Header {
	readable := make(http.Header, len(header))
	for name, values := range header {
		accepts, isParsed := parsed[name]
		if !isParsed || (accepts != nil && len(values) == 1 && accepts(values[0])) {
			readable[name] = values
		}
	}
	return readable
}

func isDate(value string) bool {
	_, err := http.ParseTime(value)
	return err == nil
}

func isURI(value string) bool {
	_, err := url.Parse(value)
	return err == nil && !strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isMediaType(value string) bool {
	mediaType, _, err := mime.ParseMediaType(value)
	return err == nil && strings.Contains(mediaType, "/")
}
