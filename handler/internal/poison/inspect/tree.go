package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"asynccaller/handler/internal/secret"
)

// node is a JSON value. Unlike what encoding/json makes of it, it keeps the order of members, those that
// come twice, and the spelling of numbers.
type node struct {
	kind kind
	// value is a string as it is meant, or any other scalar as it is spelled.
	value string
	// names are an object's, one for each item.
	names []string
	items []*node
	// masked says that nothing in it has to be masked any more.
	masked bool
}

type kind int

const (
	scalar kind = iota
	text
	object
	array
)

// maxDepth is deeper than anybody nests who wants to be read. It bounds the indentation.
const maxDepth = 100

// parse reads JSON; it reports false for what is none.
func parse(content []byte) (*node, bool) {
	if !json.Valid(content) { // it also bounds the depth, and so the recursion
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	root, err := read(decoder, 0)
	return root, err == nil
}

func read(decoder *json.Decoder, depth int) (*node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		return readAll(decoder, t, depth)
	case string:
		return &node{kind: text, value: t}, nil
	case json.Number:
		return &node{value: t.String()}, nil
	case nil:
		return &node{value: "null"}, nil
	default:
		return &node{value: fmt.Sprint(t)}, nil
	}
}

// readAll reads the rest of an object or array.
func readAll(decoder *json.Decoder, open json.Delim, depth int) (*node, error) {
	n := &node{kind: array}
	if open == '{' {
		n.kind = object
	}
	for decoder.More() {
		if n.kind == object {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			n.names = append(n.names, fmt.Sprint(name))
		}
		item, err := read(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	if depth >= maxDepth && len(n.items) > 0 {
		return &node{kind: text, value: "… (nested deeper)", masked: true}, nil
	}
	return n, nil
}

// member returns a member by its name, whose letter case does not count; nil when there is none.
func (n *node) member(name string) *node {
	if n == nil {
		return nil
	}
	for i := range n.names {
		if strings.EqualFold(n.names[i], name) {
			return n.items[i]
		}
	}
	return nil
}

// mask hides what is secret in a value.
func (m *masker) mask(where string, n *node) {
	if m.secrets == Revealed || n.masked {
		return
	}
	switch n.kind {
	case text:
		n.value = m.text(where, n.value)
	case array:
		for i, item := range n.items {
			m.mask(where+"["+strconv.Itoa(i)+"]", item)
		}
	case object:
		m.maskObject(where, n)
	case scalar:
	}
}

func (m *masker) maskObject(where string, n *node) {
	if value := n.member("value"); value != nil { // a list of names and values
		for _, teller := range []*node{n.member("name"), n.member("key")} {
			if teller != nil && teller.kind == text && secret.Is(teller.value) {
				m.maskMember(where+".value", teller.value, value)
			}
		}
	}
	for i, name := range n.names {
		m.maskMember(where+"."+name, name, n.items[i])
		n.names[i] = m.text(where+".", name) // "Authorization: Bearer ..." was meant to be a name and a value
	}
}

func (m *masker) maskMember(where, name string, n *node) {
	switch {
	case n.masked:
	case !secret.Is(name):
		m.mask(where, n)
	case n.kind == text:
		n.value, n.masked = m.secret(where, n.value), true
	case n.kind != scalar && len(n.items) == 0, n.value == "null", n.value == "true", n.value == "false":
		// There is nothing to hide, and that is worth knowing.
	default:
		*n = node{kind: text, value: m.hide(where, n.compact()), masked: true}
	}
}

// text lays a value out in lines. It stops soon after the limit, in bytes.
func (n *node) text(limit int) string {
	p := &printer{limit: limit, indent: "  "}
	p.print(n, "\n")
	return p.String()
}

// compact writes a value in one line.
func (n *node) compact() string {
	p := &printer{limit: maxContent}
	p.print(n, "")
	return p.String()
}

type printer struct {
	strings.Builder
	limit  int
	indent string
}

// print writes a value whose lines begin with newline.
func (p *printer) print(n *node, newline string) {
	switch n.kind {
	case scalar:
		p.WriteString(n.value)
	case text:
		p.quote(n.value)
	case object:
		p.list(n, "{", "}", newline)
	case array:
		p.list(n, "[", "]", newline)
	}
}

func (p *printer) list(n *node, open, end, newline string) {
	p.WriteString(open)
	inner := newline + p.indent
	for i, item := range n.items {
		if p.Len() > p.limit {
			return
		}
		if i > 0 {
			p.WriteByte(',')
		}
		p.WriteString(inner)
		if n.kind == object {
			p.quote(n.names[i])
			p.WriteByte(':')
			if p.indent != "" {
				p.WriteByte(' ')
			}
		}
		p.print(item, inner)
	}
	if len(n.items) > 0 {
		p.WriteString(newline)
	}
	p.WriteString(end)
}

// quote writes a string with an escape for everything that cannot be printed, and for nothing else.
func (p *printer) quote(value string) {
	p.WriteByte('"')
	for _, r := range value {
		switch {
		case r == '"' || r == '\\':
			p.WriteByte('\\')
			p.WriteRune(r)
		case r == '\n':
			p.WriteString(`\n`)
		case r == '\r':
			p.WriteString(`\r`)
		case r == '\t':
			p.WriteString(`\t`)
		case unicode.IsPrint(r):
			p.WriteRune(r)
		case r > 0xFFFF:
			const surrogates = 0x10000
			fmt.Fprintf(p, `\u%04x\u%04x`, 0xD800+(r-surrogates)>>10, 0xDC00+(r-surrogates)&0x3FF)
		default:
			fmt.Fprintf(p, `\u%04x`, r)
		}
	}
	p.WriteByte('"')
}
