package dotnet

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// Request is an HTTP request message. The URL to call is a scheme, which the message does not hold, "://", Host and
// Target. Request does not keep the version, because it has no meaning for the call.
type Request struct {
	Method   string      // in the sender's letter case
	Target   string      // path and query, exactly as in the request line; begins with "/"
	Host     string      // value of the one Host header
	Header   http.Header // canonical names, without Host; each line is one value, joined values stay joined
	Spelling Spelling    // of the names in Header
	Body     []byte      // all bytes after the blank line, nil without a content header; shares memory with the message
}

// ParseRequest reads a request message. It refuses what .NET refuses, and any target or Host that would lead to a host
// other than the one that the message names.
func ParseRequest(content []byte) (Request, error) {
	m, err := parseMessage(content, "request line", checkRequestLine)
	if err != nil {
		return Request{}, err
	}
	return m.request()
}

// request checks the parts of a request.
func (m *message) request() (Request, error) {
	if err := checkRequestLine(m.line); err != nil {
		return Request{}, fmt.Errorf("request line: %w", err)
	}
	line := strings.Split(m.line, " ")
	header, spelling := m.header()
	hosts := header["Host"]
	switch {
	case len(hosts) == 0:
		return Request{}, errors.New("header Host: missing")
	case len(hosts) > 1:
		return Request{}, errors.New("header Host: appears more than once")
	case !isAuthority(hosts[0]):
		return Request{}, errors.New("header Host: not one host with at most a port")
	}
	delete(header, "Host")
	delete(spelling, "Host")
	return Request{
		Method: line[0], Target: line[1], Host: hosts[0],
		Header: header, Spelling: spelling, Body: m.body(),
	}, nil
}

func checkRequestLine(line string) error {
	parts := strings.SplitN(line, " ", 4) // a fourth part makes the line invalid
	if len(parts) != 3 {
		return errors.New("not a method, a target and a version with one space between them")
	}
	method, target, version := parts[0], parts[1], parts[2]
	switch {
	case !httpguts.ValidHeaderFieldName(method): // a method is a token, like a header name
		return errors.New("the method is not a token")
	case !strings.HasPrefix(target, "/"):
		// After a host, "@evil/" or ":81/" would lead to another one.
		return errors.New("the target does not begin with a slash")
	case !httpguts.ValidHeaderFieldValue(target) || strings.Contains(target, "\t"):
		return errors.New("the target holds a control character")
	case !httpVersion.MatchString(version):
		return errors.New("the version is not like HTTP/1.1")
	}
	return nil
}

// isAuthority reports whether a text inside a URL would be its host and nothing else. ValidHostHeader refuses the
// characters that end a host in a URL, but accepts two hosts joined by a comma. International names are in Unicode.
func isAuthority(text string) bool {
	ascii, err := httpguts.PunycodeHostPort(text)
	if err != nil || !utf8.ValidString(text) || !httpguts.ValidHostHeader(ascii) || strings.Contains(ascii, ",") {
		return false
	}
	parsed, err := url.Parse("http://" + text)
	return err == nil && parsed.Host == text && parsed.Hostname() != ""
}

// The functions below change one part of a request. All other bytes stay. Their errors are those of
// [ParseRequest], about the request before or after the change.

// ReplaceURL changes the host, which may have a port, and the target, the path and query.
func ReplaceURL(request []byte, host, target string) ([]byte, error) {
	return edit(request, func(m *message) error {
		parts := strings.Split(m.line, " ")
		parts[1] = target
		m.line = strings.Join(parts, " ")
		return m.set("Host", host)
	})
}

// ReplaceHeader replaces all headers of a name, in any letter case, by one. The new header is at the place of the first
// one, or after the last header of its kind: of the request, or of its content. If there is a header with this value,
// its line stays. Adding the first content header makes the bytes after the blank line the body. ReplaceHeader also
// returns an error if a message cannot hold the header.
func ReplaceHeader(request []byte, name, value string) ([]byte, error) {
	return edit(request, func(m *message) error { return m.set(name, value) })
}

// RemoveHeader removes all headers of a name, in any letter case. If no content header is left, a body gets a
// Content-Length, because .NET would not read it otherwise.
func RemoveHeader(request []byte, name string) ([]byte, error) {
	return edit(request, func(m *message) error {
		hadBody := len(m.body()) > 0
		m.fields = slices.DeleteFunc(m.fields, named(name))
		if hadBody && m.body() == nil {
			return m.set("Content-Length", strconv.Itoa(len(m.rest)))
		}
		return nil
	})
}

// ReplaceBody changes the body, and corrects Content-Length. A request without content headers gets a Content-Type,
// because .NET would not read its body otherwise.
func ReplaceBody(request, body []byte, contentType string) ([]byte, error) {
	return edit(request, func(m *message) error {
		m.rest = body
		if !slices.ContainsFunc(m.fields, field.isContent) {
			return m.set("Content-Type", contentType)
		}
		return m.correctLength()
	})
}

// CorrectLength corrects a Content-Length. It refuses a body that .NET would not read, because there is no content
// header.
func CorrectLength(request []byte) ([]byte, error) {
	return edit(request, func(m *message) error {
		if len(m.rest) > 0 && m.body() == nil {
			return errors.New("headers: a body needs one such as Content-Type, or .NET does not read it")
		}
		return m.correctLength()
	})
}

func (m *message) correctLength() error {
	if !slices.ContainsFunc(m.fields, named("Content-Length")) {
		return nil
	}
	return m.set("Content-Length", strconv.Itoa(len(m.rest)))
}

// ReplaceContent changes the body, and replaces all content headers by a Content-Type.
func ReplaceContent(request []byte, contentType string, body []byte) ([]byte, error) {
	return edit(request, func(m *message) error {
		m.fields = slices.DeleteFunc(m.fields, field.isContent)
		m.rest = body
		return m.set("Content-Type", contentType)
	})
}

// edit applies a change to a request, and checks that the result is a request again.
func edit(request []byte, change func(*message) error) ([]byte, error) {
	m, err := parseMessage(request, "request line", checkRequestLine)
	if err == nil {
		_, err = m.request()
	}
	if err == nil {
		err = change(&m)
	}
	if err == nil {
		_, err = m.request()
	}
	if err != nil {
		return nil, err
	}
	edited := []byte(m.line + lineEnd)
	for _, f := range m.fields {
		edited = append(edited, f.raw...)
	}
	return append(append(edited, lineEnd...), m.rest...), nil
}

// set replaces all headers of a name by one.
func (m *message) set(name, value string) error {
	value = strings.Trim(value, space)
	if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return errors.New("headers: the name is not a token, or the value holds a control character")
	}
	f := field{name: name, value: value, raw: []byte(name + ": " + value + lineEnd)}
	first := slices.IndexFunc(m.fields, named(name))
	if first < 0 {
		at := slices.IndexFunc(m.fields, field.isContent)
		if at < 0 || f.isContent() {
			at = len(m.fields) // .NET writes content headers last
		}
		m.fields = slices.Insert(m.fields, at, f)
		return nil
	}
	if m.fields[first].value != value {
		m.fields[first] = f
	}
	others := slices.DeleteFunc(m.fields[first+1:], named(name))
	m.fields = m.fields[:first+1+len(others)]
	return nil
}

func named(name string) func(field) bool {
	return func(f field) bool { return strings.EqualFold(f.name, name) }
}

var statusCode = regexp.MustCompile(`^[1-9]\d\d$`)

// Response is an HTTP response message. It does not keep the version and the reason phrase.
type Response struct {
	Status int         // 100 to 999
	Header http.Header // canonical names; each line is one value, joined values stay joined
	Body   []byte      // all bytes after the blank line, nil without a content header; shares memory with the message
}

// ParseResponse reads a response message. It accepts any text as the value of a header, because targets send values
// such as "Expires: -1".
func ParseResponse(content []byte) (Response, error) {
	m, err := parseMessage(content, "status line", checkStatusLine)
	if err != nil {
		return Response{}, err
	}
	status, _ := strconv.Atoi(strings.Fields(m.line)[1]) // it has three digits
	header, _ := m.header()
	return Response{Status: status, Header: header, Body: m.body()}, nil
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

func checkStatusLine(line string) error {
	version, rest, _ := strings.Cut(line, " ")
	status, reason, _ := strings.Cut(rest, " ")
	switch {
	case !httpVersion.MatchString(version):
		return errors.New("the version is not like HTTP/1.1")
	case !statusCode.MatchString(status):
		return errors.New("the status is not a number from 100 to 999")
	case strings.ContainsAny(reason, lineEnd):
		// Without this check, headers with other line ends would be part of the reason phrase.
		return errors.New("the reason phrase holds a lone CR or LF")
	}
	return nil
}

// Parts of the values that .NET accepts.
const (
	word    = "[A-Za-z0-9!#$%&'*+.^_|~-]+"
	quoted  = `"[ !#-\[\]-~]*"`
	label   = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
	product = word + "(/" + word + ")?"
	media   = word + "/" + word + "( ?; ?" + word + "=(" + word + "|" + quoted + "))*"
	tag     = "(W/)?" + quoted
)

var (
	number      = whole("[0-9]{1,9}")
	tokens      = list(word)
	products    = whole(product + "( " + product + ")*")
	agents      = whole(product + "( (" + product + `|\([ !#-'*-~]*\)))*`)
	mediaTypes  = whole(media)
	mediaRanges = list(media)
	qualities   = list(word + `(; ?q=(0(\.[0-9]{1,3})?|1(\.0{1,3})?))?`)
	directives  = list("no-cache|no-store|no-transform|public|private|must-revalidate|only-if-cached|" +
		"(max-age|s-maxage|min-fresh)=[0-9]{1,9}")
	credentials = whole(word + `( [!#-+\--~]+)?`)
	entityTag   = whole(tag)
	entityTags  = list(tag + "|[*]")
	byteRange   = whole("bytes=([0-9]{1,9}-[0-9]{0,9}|-[0-9]{1,9})")
	// references are absolute paths, and URLs whose host is a name or an IPv4 address.
	references = whole("(/|https?://" + label + `(\.` + label + `)*(:[1-5]?[0-9]{1,4})?(/|$))` +
		`([A-Za-z0-9.\-_~:?#@!$&'()*+,;=%][A-Za-z0-9.\-_~:/?#@!$&'()*+,;=%]*)?`)
)

// whole returns a function that reports whether a text matches an expression.
func whole(expression string) func(string) bool {
	return regexp.MustCompile("^(" + expression + ")$").MatchString
}

// list returns a function that reports whether each element of a list matches an expression.
func list(element string) func(string) bool {
	return whole("(" + element + ")(, ?(" + element + "))*")
}

func isAny(value string) bool { return value != "" }

func isWait(value string) bool { return number(value) || isDate(value) }

// parsed lists the headers whose values .NET parses when it reads a message (System.Net.Http, KnownHeaders). One value
// that it cannot parse makes the whole message unreadable. Each function reports values that every version of .NET
// accepts; nil means that no value is worth the effort. Expires is not in the list: .NET accepts any value.
var parsed = map[string]func(value string) bool{
	"Accept": mediaRanges, "Accept-Charset": qualities, "Accept-Encoding": qualities, "Accept-Language": qualities,
	"Accept-Ranges": tokens, "Age": number, "Allow": tokens, "Alt-Svc": nil, "Authorization": credentials,
	"Cache-Control": directives, "Connection": tokens, "Content-Disposition": nil, "Content-Encoding": tokens,
	"Content-Language": tokens, "Content-Length": number, "Content-Location": references, "Content-Md5": nil,
	"Content-Range": nil, "Content-Type": mediaTypes, "Cookie": isAny, "Date": isDate, "Etag": entityTag,
	"Expect": tokens, "From": nil, "Host": nil, "If-Match": entityTags, "If-Modified-Since": isDate,
	"If-None-Match": entityTags, "If-Range": entityTag, "If-Unmodified-Since": isDate, "Last-Modified": isDate,
	"Location": references, "Max-Forwards": number, "Pragma": tokens, "Proxy-Authenticate": nil,
	"Proxy-Authorization": credentials, "Range": byteRange, "Referer": references, "Retry-After": isWait,
	"Server": products, "Te": qualities, "Trailer": tokens, "Transfer-Encoding": tokens, "Upgrade": tokens,
	"User-Agent": agents, "Vary": tokens, "Via": nil, "Warning": nil, "Www-Authenticate": nil,
}

// IsMediaType reports whether .NET can parse a media type, with or without parameters, for certain.
func IsMediaType(text string) bool { return mediaTypes(text) }

// IsReadable reports whether .NET accepts a header for certain when it reads it in a message. The name is canonical.
// .NET refuses a whole message if one value does not fit the definition of its header, for example a comma in Server.
func IsReadable(name string, values []string) bool {
	accepts, isParsed := parsed[name]
	switch {
	case !isParsed:
		return true
	case accepts == nil:
		return false
	}
	return !slices.ContainsFunc(joined(name, values), func(value string) bool { return !accepts(value) })
}

var (
	// spaced matches what .NET spaces anew in a value, and quoted texts, which it keeps.
	spaced  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[ \t]*[,;=][ \t]*|[ \t]+`)
	quality = regexp.MustCompile(`(?i); q=([0-9.]+)`)
)

// Rewritten returns a header, one value per line, in a form that stays the same when .NET reads it and writes it again.
// The name is canonical. .NET joins lines and, in headers whose values it parses, writes spaces, qualities and the
// directives of Cache-Control anew.
func Rewritten(name string, values []string) []string {
	lines := slices.Clone(joined(name, values))
	if _, isParsed := parsed[name]; !isParsed {
		return lines
	}
	for i, line := range lines {
		line = spaced.ReplaceAllStringFunc(line, func(part string) string {
			switch trimmed := strings.Trim(part, space); trimmed {
			case ",", ";", "":
				return trimmed + " "
			default:
				return trimmed
			}
		})
		line = quality.ReplaceAllStringFunc(line, func(part string) string {
			n, _ := strconv.ParseFloat(part[len("; q="):], 64) // .NET refuses what is no number
			return "; q=" + strconv.FormatFloat(n, 'f', -1, 64)
		})
		if name == "Cache-Control" {
			directives := strings.Split(strings.ToLower(line), ", ")
			slices.Sort(directives)
			line = strings.Join(directives, ", ")
		}
		lines[i] = line
	}
	return lines
}

// isDate accepts the only form that a sender may generate (RFC 9110, 5.6.7). The comparison finds a wrong weekday,
// which http.ParseTime does not see.
func isDate(value string) bool {
	date, err := time.Parse(http.TimeFormat, value)
	return err == nil && date.Format(http.TimeFormat) == value && date.Year() > 0
}
