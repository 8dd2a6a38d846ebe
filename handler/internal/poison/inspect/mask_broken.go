package inspect

import (
	"encoding/json"
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
		name := meant(literal)
		b.WriteString(m.literal(where, literal))
		value := skipSpace(text, at)
		if value == len(text) || text[value] != ':' || !secret.Is(name) && !isOpaque(name) {
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

// literal masks a string as it stands in JSON. It stays as it is spelled if there is nothing to hide.
func (m *masker) literal(where, literal string) string {
	plain := meant(literal)
	shown := m.text(where, plain)
	if shown == plain {
		return literal
	}
	p := &printer{limit: maxContent}
	p.quote(shown)
	return p.String()
}

// meant is the text that a string stands for. One that has no end, or escapes that JSON does not know, is
// taken as it is.
func meant(literal string) string {
	var text string
	for _, candidate := range []string{literal, literal + `"`} {
		if json.Unmarshal([]byte(candidate), &text) == nil {
			return text
		}
	}
	return strings.Trim(literal, `"`)
}
