package dotnet

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The functions of this file change one part of a request. All other bytes stay. Their errors are those of
// [ParseRequest], about the request before or after the change.

// ReplaceMethod changes the method.
func ReplaceMethod(request []byte, method string) ([]byte, error) {
	return edit(request, func(m *message) error {
		_, rest, _ := strings.Cut(m.line, " ")
		m.line = method + " " + rest
		return nil
	})
}

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
// one, or after the last header of its kind: of the request, or of its content. If there is a header with this value, its
// line stays. Adding the first content header makes the bytes after the blank line the body. ReplaceHeader also returns
// an error if a message cannot hold the header.
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
		if slices.ContainsFunc(m.fields, named("Content-Length")) {
			return m.set("Content-Length", strconv.Itoa(len(body)))
		}
		if !slices.ContainsFunc(m.fields, field.isContent) {
			return m.set("Content-Type", contentType)
		}
		return nil
	})
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
	m, _, err := parseRequest(request)
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
		m.fields = slices.Insert(m.fields, m.placeFor(f), f)
		return nil
	}
	if m.fields[first].value != value {
		m.fields[first] = f
	}
	others := slices.DeleteFunc(m.fields[first+1:], named(name))
	m.fields = m.fields[:first+1+len(others)]
	return nil
}

// placeFor returns the index at which .NET would write a new header: content headers come last.
func (m *message) placeFor(f field) int {
	if content := slices.IndexFunc(m.fields, field.isContent); content >= 0 && !f.isContent() {
		return content
	}
	return len(m.fields)
}

func named(name string) func(field) bool {
	return func(f field) bool { return strings.EqualFold(f.name, name) }
}
