package inspect

import (
	"strings"

	"asynccaller/handler/internal/secret"
)

// broken masks what begins like JSON and is none. Its strings are still strings: what is in them is masked
// as it is meant, without its escapes. The rest is left to be looked at as text, and so is what stands
// outside of strings because a quote is missing.
func (m *masker) broken(where, text string) string {
	var b strings.Builder
	for at := 0; at < len(text); {
		if text[at] != '"' {
			b.WriteByte(text[at])
			at++
			continue
		}
		literal := text[at : at+quotedLength(text[at:])]
		at += len(literal)
		name := unquote(literal)
		b.WriteString(m.literal(where, literal))
		value := skipSpace(text, at)
		if value == len(text) || text[value] != ':' || !secret.Is(name) && !m.isOpaque(name) {
			continue
		}
		value = skipSpace(text, value+1)
		end := value + brokenLength(text[value:])
		b.WriteString(text[at:value] + m.hide(where+"."+name, text[value:end]))
		at = end
	}
	return b.String()
}

// brokenLength is the length of the value that a text begins with.
func brokenLength(text string) int {
	switch {
	case text == "":
		return 0
	case text[0] == '"':
		return quotedLength(text)
	case text[0] == '{' || text[0] == '[':
		return bracketLength(text)
	}
	return untilAny(text, "\n,}]")
}

// literal masks a string in JSON. It keeps the spelling if there is nothing to hide.
func (m *masker) literal(where, literal string) string {
	plain := unquote(literal)
	if shown := m.text(where, plain); shown != plain {
		return quote(shown)
	}
	return literal
}
