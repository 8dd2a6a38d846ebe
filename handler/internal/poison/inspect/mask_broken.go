package inspect

import (
	"strings"

	"asynccaller/handler/internal/secret"
	"asynccaller/handler/internal/strictjson"
)

// broken masks text that begins like JSON and is not. Its strings are still strings, and are masked without their
// escapes. The caller masks the rest as text, and with it strings that lost a quote.
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
		if shown := m.text(where, name); shown != name {
			literal = string(strictjson.EscapeUnprintable(quote(shown))) // otherwise the string keeps its spelling
		}
		b.WriteString(literal)
		colon := skipSpace(text, at)
		if strings.HasPrefix(text[colon:], ":") && (secret.Is(name) || m.isOpaque(name)) {
			value := skipSpace(text, colon+1)
			end := value + brokenLength(text[value:])
			b.WriteString(text[at:value] + m.hide(where+"."+name, text[value:end]))
			at = end
		}
	}
	return b.String()
}

// brokenLength returns the length of the value that a text begins with.
func brokenLength(text string) int {
	switch {
	case strings.HasPrefix(text, `"`):
		return quotedLength(text)
	case strings.HasPrefix(text, "{") || strings.HasPrefix(text, "["):
		return bracketLength(text)
	}
	return untilAny(text, "\n,}]")
}
