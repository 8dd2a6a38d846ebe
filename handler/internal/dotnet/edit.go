package dotnet

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ReplaceMethod makes the same request with another method. All other bytes stay. Its errors are those of
// [ParseRequest], about the request as it is or as it would be.
func ReplaceMethod(message []byte, method string) ([]byte, error) {
	p, err := takeApart(message)
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(p.line), " ")
	p.line = []byte(method + " " + rest)
	return p.join()
}

// ReplaceURL makes the same request to another host, with at most a port, and another target, the path and
// query. All other bytes stay. Its errors are those of [ParseRequest], about the request as it is or as it
// would be.
func ReplaceURL(message []byte, host, target string) ([]byte, error) {
	p, err := takeApart(message)
	if err != nil {
		return nil, err
	}
	if parts := strings.Split(string(p.line), " "); parts[1] != target {
		parts[1] = target
		p.line = []byte(strings.Join(parts, " "))
	}
	if err := p.set("Host", host); err != nil {
		return nil, err
	}
	return p.join()
}

// ReplaceHeader makes the same request with this header instead of all headers of its name, whatever their
// letter case: in the place of the first, or behind the headers of its kind, those of the request or those
// of its content. All other bytes stay. A header line of this value stays as well. With the first header of
// its content a request has a body, and be it what stood unread behind the blank line. Its errors are those
// of [ParseRequest], about the request as it is or as it would be, and that the header cannot stand in a
// message.
func ReplaceHeader(message []byte, name, value string) ([]byte, error) {
	p, err := takeApart(message)
	if err != nil {
		return nil, err
	}
	if err := p.set(name, value); err != nil {
		return nil, err
	}
	return p.join()
}

// RemoveHeader makes the same request without the headers of this name, whatever their letter case. All
// other bytes stay. A body whose last content header is removed gets a Content-Length, or it would not be
// read. Its errors are those of [ParseRequest], about the request as it is or as it would be.
func RemoveHeader(message []byte, name string) ([]byte, error) {
	p, err := takeApart(message)
	if err != nil {
		return nil, err
	}
	hadBody := p.hasContentHeader()
	p.fields = slices.DeleteFunc(p.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
	if hadBody && !p.hasContentHeader() && len(p.rest) > 0 {
		if err := p.set("Content-Length", strconv.Itoa(len(p.rest))); err != nil {
			return nil, err
		}
	}
	return p.join()
}

// ReplaceBody makes the same request with another body. All headers stay byte for byte but Content-Length,
// which is corrected; a request that has no content header gets this Content-Type, or its body would not be
// read. Its errors are those of [ParseRequest], about the request as it is or as it would be.
func ReplaceBody(message, body []byte, contentType string) ([]byte, error) {
	p, err := takeApart(message)
	if err != nil {
		return nil, err
	}
	p.rest = body
	if p.index("Content-Length") >= 0 {
		err = p.set("Content-Length", strconv.Itoa(len(body)))
	} else if !p.hasContentHeader() {
		err = p.set("Content-Type", contentType)
	}
	if err != nil {
		return nil, err
	}
	return p.join()
}

// parts are a request message taken apart, so that what is not edited stays byte for byte.
type parts struct {
	line   []byte // without its end
	fields []field
	rest   []byte // all behind the blank line, whether it is a body or not
}

func takeApart(message []byte) (*parts, error) {
	if _, _, err := parseRequest(message); err != nil {
		return nil, err
	}
	line, rest, _ := bytes.Cut(message, []byte(lineEnd))
	fields, rest, err := parseFields(rest)
	return &parts{line: line, fields: fields, rest: rest}, err
}

// join puts the parts together. That they are a request again is looked after here, once for all edits.
func (p *parts) join() ([]byte, error) {
	// By itself first: in the message, what is one line here could be read as two.
	if _, _, err := parseRequestLine(string(p.line)); err != nil {
		return nil, err
	}
	message := append(slices.Clone(p.line), lineEnd...)
	for _, f := range p.fields {
		message = append(message, f.raw...)
	}
	message = append(append(message, lineEnd...), p.rest...)
	if _, err := ParseRequest(message); err != nil {
		return nil, err
	}
	return message, nil
}

func (p *parts) set(name, value string) error {
	value = strings.Trim(value, space)
	if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return errors.New("headers: the name is not a token, or the value holds a control character")
	}
	f := field{name: name, value: value, raw: []byte(name + ": " + value + lineEnd)}
	first := p.index(name)
	if first < 0 {
		p.fields = slices.Insert(p.fields, p.placeFor(f), f)
		return nil
	}
	if p.fields[first].value != value {
		p.fields[first] = f
	}
	others := slices.DeleteFunc(p.fields[first+1:], func(f field) bool { return strings.EqualFold(f.name, name) })
	p.fields = p.fields[:first+1+len(others)]
	return nil
}

// placeFor is where .NET would write a new header: those of the content come last.
func (p *parts) placeFor(f field) int {
	if content := slices.IndexFunc(p.fields, field.isContent); content >= 0 && !f.isContent() {
		return content
	}
	return len(p.fields)
}

func (p *parts) index(name string) int {
	return slices.IndexFunc(p.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}

func (p *parts) hasContentHeader() bool { return slices.ContainsFunc(p.fields, field.isContent) }
