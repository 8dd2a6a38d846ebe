package emulator

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"
)

// filter reports whether a query selects an entity.
type filter func(storage.Entity) bool

// parseFilter reads a $filter: comparisons of a property with a constant, joined by and, or, not and parentheses. An
// empty text selects all.
func parseFilter(text string) (filter, error) {
	if strings.TrimSpace(text) == "" {
		return func(storage.Entity) bool { return true }, nil
	}
	p := parser{rest: text}
	p.next()
	f := p.or()
	if p.isBad || p.token != "" {
		return nil, invalid("The $filter has a part that the emulator does not understand.")
	}
	return f, nil
}

// parser reads a filter. The header of a request limits its depth.
type parser struct {
	rest, token string
	isBad       bool
}

// token matches a constant with a type, a word, a number or a parenthesis.
var token = regexp.MustCompile(`^(?:[A-Za-z]*'(?:[^']|'')*'|[A-Za-z_][A-Za-z0-9_]*|[-+.0-9eE]+L?|[()])`)

// next reads the next token, which is empty at the end.
func (p *parser) next() {
	p.rest = strings.TrimLeft(p.rest, " ")
	p.token = token.FindString(p.rest)
	p.isBad = p.isBad || p.token == "" && p.rest != ""
	p.rest = p.rest[len(p.token):]
}

// take reads a token if it is this one.
func (p *parser) take(text string) bool {
	isIt := p.token == text
	if isIt {
		p.next()
	}
	return isIt
}

func (p *parser) or() filter {
	f := p.and()
	for p.take("or") {
		a, b := f, p.and()
		f = func(e storage.Entity) bool { return a(e) || b(e) }
	}
	return f
}

func (p *parser) and() filter {
	f := p.not()
	for p.take("and") {
		a, b := f, p.not()
		f = func(e storage.Entity) bool { return a(e) && b(e) }
	}
	return f
}

func (p *parser) not() filter {
	switch {
	case p.take("not"):
		f := p.not()
		return func(e storage.Entity) bool { return !f(e) }
	case p.take("("):
		f := p.or()
		p.isBad = !p.take(")") || p.isBad
		return f
	}
	name := p.token
	p.next()
	holds := operators[p.token]
	p.next()
	constant, ok := parseConstant(p.token)
	p.next()
	p.isBad = p.isBad || holds == nil || !ok
	return func(e storage.Entity) bool {
		order, isComparable := compare(property(e, name), constant)
		return isComparable && holds(order)
	}
}

var operators = map[string]func(order int) bool{
	"eq": func(order int) bool { return order == 0 },
	"ne": func(order int) bool { return order != 0 },
	"lt": func(order int) bool { return order < 0 },
	"le": func(order int) bool { return order <= 0 },
	"gt": func(order int) bool { return order > 0 },
	"ge": func(order int) bool { return order >= 0 },
}

func property(e storage.Entity, name string) any {
	switch name {
	case "PartitionKey":
		return e.Partition
	case "RowKey", "TableName":
		return e.ID
	case "Timestamp":
		return e.WrittenAt
	}
	return e.Values[name]
}

func parseConstant(text string) (any, bool) {
	if text == "true" || text == "false" {
		return text == "true", true
	}
	kind, quoted, isQuoted := strings.Cut(text, "'")
	if !isQuoted {
		x, err := strconv.ParseFloat(strings.TrimSuffix(text, "L"), 64)
		return x, err == nil
	}
	value := strings.ReplaceAll(strings.TrimSuffix(quoted, "'"), "''", "'")
	switch kind {
	case "":
		return value, true
	case "datetime":
		at, err := time.Parse(time.RFC3339, value)
		return at, err == nil
	case "guid":
		return guid(value), true
	case "X", "binary":
		content, err := hex.DecodeString(value)
		return content, err == nil
	}
	return nil, false
}

// compare compares two values. It reports false if they have different types.
func compare(value, constant any) (order int, ok bool) {
	switch v := value.(type) {
	case int32:
		value = float64(v)
	case int64:
		value = float64(v)
	}
	switch v := value.(type) {
	case string:
		c, ok := constant.(string)
		return cmp.Compare(v, c), ok
	case float64:
		c, ok := constant.(float64)
		return cmp.Compare(v, c), ok
	case bool:
		c, ok := constant.(bool)
		if v == c {
			return 0, ok
		}
		return 1, ok
	case time.Time:
		c, ok := constant.(time.Time)
		return v.Compare(c), ok
	case guid:
		c, ok := constant.(guid)
		return cmp.Compare(strings.ToLower(string(v)), strings.ToLower(string(c))), ok
	case []byte:
		c, ok := constant.([]byte)
		return bytes.Compare(v, c), ok
	}
	return 0, false
}
