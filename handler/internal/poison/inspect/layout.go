package inspect

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// layOut replaces what an envelope of either format has in base64 or in a string by what that means, as far
// as there is such a thing. It does not matter whether the envelope is malformed: just then it is looked at.
func (m *masker) layOut(root *node) {
	for _, name := range []string{"CallOut", "CallBack"} {
		m.decode(name, root.member("RawRequest").member(name), m.http)
	}
	m.decode("LatestResponse", root.member("LatestResponse"), m.http)
	if context := root.member("RawRequest").member("Context"); context != nil && context.kind == text {
		if content, err := base64.StdEncoding.DecodeString(context.value); err == nil && len(content) > 0 {
			if decoded, ok := parse(content); ok {
				*context = *decoded
			} else {
				context.setLines([]string{m.binaryOr("Context", "", content)})
			}
		}
	}
	call := root.member("call")
	contentType := ""
	if header := call.member("headers").member("Content-Type"); header != nil {
		contentType = header.value
	}
	if body := call.member("body"); body != nil && body.kind == text && body.value != "" {
		body.setLines(strings.Split(m.binaryOr("call.body", contentType, []byte(body.value)), "\n"))
	}
	m.decode("bodyBase64", call.member("bodyBase64"), func(where string, content []byte) []string {
		return strings.Split(m.binaryOr(where, contentType, content), "\n")
	})
}

// decode replaces base64 by lines. What is no base64 is not shown: it was meant to be, and may be but a
// character from it.
func (m *masker) decode(where string, n *node, lines func(where string, content []byte) []string) {
	if n == nil || n.kind != text || n.value == "" {
		return
	}
	content, err := base64.StdEncoding.DecodeString(n.value)
	if err != nil {
		n.value, n.masked = m.hide(where, n.value), true
		return
	}
	n.setLines(lines(where, content))
}

// setLines makes a value one string for each line, or a string where there is but one.
func (n *node) setLines(lines []string) {
	if len(lines) == 1 {
		*n = node{kind: text, value: lines[0], masked: true}
		return
	}
	*n = node{kind: array, masked: true}
	for _, line := range lines {
		n.items = append(n.items, &node{kind: text, value: line, masked: true})
	}
}

// binaryOr is a body laid out or, where nothing of it is shown, a few words that say so.
func (m *masker) binaryOr(where, contentType string, body []byte) string {
	laidOut, kind := m.body(where, contentType, body)
	if kind == BodyBinary && laidOut == "" {
		return fmt.Sprintf("(binary, %d bytes)", len(body))
	}
	laidOut, cut := clip(strings.TrimSuffix(laidOut, "\n"), maxBody)
	if cut {
		laidOut += "\n… (cut)"
	}
	return laidOut
}

// http lays an HTTP message out in lines. It reads it by itself, because one that is malformed is the one
// that a person wants to see.
func (m *masker) http(where string, message []byte) []string {
	head, body := string(message), ""
	for _, end := range []string{"\r\n\r\n", "\n\n"} {
		if before, after, ok := strings.Cut(head, end); ok {
			head, body = before, after
			break
		}
	}
	if isBinary([]byte(head)) {
		return []string{m.binaryOr(where, "", message)}
	}
	contentType := ""
	var lines []string
	for i, line := range strings.Split(strings.TrimRight(head, "\r\n"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		name, value, ok := strings.Cut(line, ":")
		switch {
		case i == 0 && (strings.HasPrefix(line, "HTTP/") || strings.Contains(line, " HTTP/")):
			line = m.startLine(where, line)
		case !ok || strings.TrimSpace(name) != name || name == "":
			line = m.hide(where+".line", line) // it may go on with a header's value, or lack a colon
		default:
			if strings.EqualFold(name, "Content-Type") {
				contentType = strings.TrimSpace(value)
			}
			line = name + ": " + m.header(where+"."+name, name, strings.TrimSpace(value))
		}
		lines = append(lines, printable(line))
	}
	if body == "" {
		return lines
	}
	return append(append(lines, ""), strings.Split(m.binaryOr(where+".body", contentType, []byte(body)), "\n")...)
}

// startLine masks the target of a request line, and the reason phrase of a status line as any text.
func (m *masker) startLine(where, line string) string {
	method, rest, _ := strings.Cut(line, " ")
	end := strings.LastIndex(rest, " HTTP/")
	if strings.HasPrefix(line, "HTTP/") || end < 0 {
		return m.text(where, line)
	}
	return method + " " + m.url(where, rest[:end]) + rest[end:]
}
