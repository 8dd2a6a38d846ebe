package dotnet

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// Request is an HTTP request message. The URL to call is a scheme, which stands outside the message,
// "://", Host and Target. The version is not kept: it says nothing about the call to be made.
type Request struct {
	Method string      // as it came
	Target string      // path and query, exactly as they stand in the request line; begins with "/"
	Host   string      // value of the one Host header
	Header http.Header // canonical names, without Host; each line is one value, joined values stay joined
	Body   []byte      // everything behind the blank line, nil without a content header; shares memory with the message
}

// ParseRequest reads a request message. It refuses what .NET refuses for its form, and also a target or
// a Host that would call another host than the message names.
func ParseRequest(message []byte) (Request, error) {
	request, _, err := parseRequest(message)
	return request, err
}

// ReplaceContent makes the same request with other content: the request line and all headers that are no
// content headers stay byte for byte and in order; then come Content-Type and the body. Its errors are
// those of [ParseRequest].
func ReplaceContent(message []byte, contentType string, body []byte) ([]byte, error) {
	_, fields, err := parseRequest(message)
	if err != nil {
		return nil, err
	}
	requestLine := bytes.Index(message, []byte(lineEnd)) + len(lineEnd)
	replaced := slices.Clone(message[:requestLine])
	for _, f := range fields {
		if !f.isContent() {
			replaced = append(replaced, f.raw...)
		}
	}
	replaced = appendLine(replaced, "Content-Type: "+contentType)
	replaced = append(replaced, lineEnd...)
	return append(replaced, body...), nil
}

// FormatRequest writes a request as HttpMessageContent does: Host first, then the headers of the request,
// then those of its content. [ParseRequest] reads it again if Method, Target and Host are as it returns
// them; whatever they are, none of them becomes more than its part of one line. A body that is not nil
// but has no content header gets "Content-Type: application/octet-stream", or it would not be read.
func FormatRequest(r Request) []byte {
	message := appendLine(nil, r.Method+" "+r.Target+" HTTP/1.1")
	message = appendLine(message, "Host: "+r.Host)
	header := maps.Clone(r.Header)
	maps.DeleteFunc(header, func(name string, _ []string) bool { return isHost(name) })
	message = appendHeaders(message, header, r.Body != nil)
	return append(message, r.Body...)
}

func parseRequest(message []byte) (Request, []field, error) {
	line, rest, found := bytes.Cut(message, []byte(lineEnd))
	if !found {
		return Request{}, nil, errors.New("request line: no line end (CR LF)")
	}
	method, target, err := parseRequestLine(string(line))
	if err != nil {
		return Request{}, nil, err
	}
	fields, body, err := parseFields(rest)
	if err != nil {
		return Request{}, nil, err
	}
	host, err := hostOf(fields)
	if err != nil {
		return Request{}, nil, err
	}
	request := Request{Method: method, Target: target, Host: host, Header: headerOf(fields)}
	request.Header.Del("Host")
	if slices.ContainsFunc(fields, field.isContent) {
		request.Body = body
	}
	return request, fields, nil
}

func parseRequestLine(line string) (method, target string, err error) {
	parts := strings.SplitN(line, " ", 4) // a fourth part is one too many
	if len(parts) != 3 {
		return "", "", errors.New("request line: not a method, a target and a version with one space between them")
	}
	method, target = parts[0], parts[1]
	switch {
	case !httpguts.ValidHeaderFieldName(method): // methods are tokens as header names are
		return "", "", errors.New("request line: the method is not a token")
	case !strings.HasPrefix(target, "/"):
		// Behind a host, "@evil/" or ":81/" would call another one.
		return "", "", errors.New("request line: the target does not begin with a slash")
	case !httpguts.ValidHeaderFieldValue(target) || strings.Contains(target, "\t"):
		return "", "", errors.New("request line: the target holds a control character")
	case !isVersion(parts[2]):
		return "", "", errors.New("request line: the version is not like HTTP/1.1")
	}
	return method, target, nil
}

// hostOf is the value of the one Host header.
func hostOf(fields []field) (string, error) {
	var hosts []string
	for _, f := range fields {
		if isHost(f.name) {
			hosts = append(hosts, f.value)
		}
	}
	switch {
	case len(hosts) == 0:
		return "", errors.New("header Host: missing")
	case len(hosts) > 1:
		return "", errors.New("header Host: appears more than once")
	case !isAuthority(hosts[0]):
		return "", errors.New("header Host: not one host with at most a port")
	}
	return hosts[0], nil
}

func isHost(name string) bool { return strings.EqualFold(name, "Host") }

// isAuthority reports whether a text, put into a URL, is its host and nothing else. ValidHostHeader keeps
// out what ends a host in a URL, but lets two hosts pass that were joined by a comma. An international
// name stands there as people write it.
func isAuthority(text string) bool {
	ascii, err := httpguts.PunycodeHostPort(text)
	if err != nil || !utf8.ValidString(text) || !httpguts.ValidHostHeader(ascii) || strings.Contains(ascii, ",") {
		return false
	}
	parsed, err := url.Parse("http://" + text)
	return err == nil && parsed.Host == text && parsed.Hostname() != ""
}
