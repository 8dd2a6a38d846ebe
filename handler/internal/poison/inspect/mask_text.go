package inspect

import (
	"encoding/json"
	"slices"
	"strings"

	"asynccaller/handler/internal/secret"
)

// text returns what may be shown of any text: JSON within it is masked as JSON, and so are URLs and values
// behind telling names. What is hidden ends where it surely ends, so it is sometimes too much.
func (m *masker) text(where, text string) string {
	if m.secrets == Revealed {
		return text
	}
	if looksLikeJSON([]byte(text)) {
		if json.Valid([]byte(text)) {
			before := m.count
			if compact := m.compact(where, []byte(text)); m.count > before {
				return compact
			}
			return text
		}
		text = m.broken(where, text)
	}
	if urlStart(text) > 0 && !strings.Contains(text, "\n") || strings.HasPrefix(text, "/") && !strings.ContainsAny(text, " \n") {
		return m.url(where, text)
	}
	return m.scan(where, text, true)
}

// pairs hides values behind telling names.
func (m *masker) pairs(where, text string) string { return m.scan(where, text, false) }

// scan looks at each name in a text: it may be a scheme, or tell of a secret.
func (m *masker) scan(where, text string, urls bool) string {
	var b strings.Builder
	for at := 0; at < len(text); {
		end := at + spanOf(text[at:], inName)
		if end == at {
			b.WriteByte(text[at])
			at++
			continue
		}
		name := text[at:end]
		if urls && urlStart(text[at:]) > 0 {
			end = at + untilAny(text[at:], " \t\r\n\"<>") // quotes, brackets and backslashes may be part of it
			b.WriteString(m.url(where, text[at:end]))
			at = end
			continue
		}
		if secret.Is(name) || m.isOpaque(name) {
			from, to := valueOf(text, at, end)
			if from < to && (secret.Is(name) || quoteLength(text[from:]) > 0) {
				// Between them stand punctuation and, in XML, attributes.
				b.WriteString(name + m.scan(where, text[end:from], urls) + m.hide(where+"."+name, text[from:to]))
				at = to
				continue
			}
		}
		b.WriteString(name)
		at = end
	}
	return b.String()
}

func inName(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_' || c == '.'
}

// valueOf finds the value that belongs to the name at text[start:end]; from and to are equal when there is
// none. It knows what JSON, forms, headers, connection strings and XML look like, whole or broken.
func valueOf(text string, start, end int) (from, to int) {
	if element(text, start) {
		open := strings.IndexAny(text[end:], "<>")
		if open < 0 || text[end+open] == '<' {
			return end, end
		}
		from = end + open + 1
		if inner := strings.Index(text[from:], "</"); inner >= 0 {
			return from, from + inner
		}
		return from, len(text)
	}
	at := end
	for at < len(text) && text[at] == '\\' {
		at++
	}
	quoted := at < len(text) && (text[at] == '"' || text[at] == '\'')
	if quoted {
		at++
	}
	at = skipSpace(text, at)
	if at == len(text) || text[at] != ':' && text[at] != '=' {
		return end, end
	}
	assigned := text[at] == '='
	from = skipSpace(text, at+1)
	switch rest := text[from:]; {
	case rest == "":
		return end, end
	case quoteLength(rest) > 0:
		return from, from + quotedLength(rest)
	case rest[0] == '{' || rest[0] == '[':
		return from, from + bracketLength(rest)
	case assigned:
		return from, from + wordLength(rest)
	case quoted:
		return from, from + untilAny(rest, "\n,}]")
	default:
		return from, from + untilAny(rest, "\n")
	}
}

// element reports whether the name that begins at start is the name of an XML element, with or without a
// prefix, where the element begins.
func element(text string, start int) bool {
	const longest = 64
	for at := start - 1; at >= 0 && at > start-longest; at-- {
		if text[at] == '<' {
			return true
		}
		if text[at] != ':' && !inName(text[at]) {
			return false
		}
	}
	return false
}

func skipSpace(text string, at int) int {
	for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
		at++
	}
	return at
}

// untilAny is the length of a text up to the first of some characters.
func untilAny(text, ends string) int {
	if end := strings.IndexAny(text, ends); end >= 0 {
		return end
	}
	return len(text)
}

// quoteLength is the length of the quote that a text begins with, and of the backslashes that JSON within
// JSON puts before it; 0 for none.
func quoteLength(text string) int {
	slashes := 0
	for slashes < len(text) && text[slashes] == '\\' {
		slashes++
	}
	if slashes < len(text) && (text[slashes] == '"' || text[slashes] == '\'') {
		return slashes + 1
	}
	return 0
}

// quotedLength is the length of the quoted text that a text begins with: up to a quote with as few
// backslashes before it as the first.
func quotedLength(text string) int {
	open := quoteLength(text)
	slashes := 0
	for at := open; at < len(text); at++ {
		switch {
		case text[at] == '\\':
			slashes++
			continue
		case text[at] == text[open-1] && slashes < open:
			return at + 1
		}
		slashes = 0
	}
	return len(text)
}

// bracketLength is the length of the object or array that a text begins with, or of all of it.
func bracketLength(text string) int {
	depth := 0
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at += quotedLength(text[at:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
	return len(text)
}

// wordLength is the length of a value in a form or a connection string, or of a scheme and what follows it.
func wordLength(text string) int {
	const ends = " \t\r\n&;\"'<>"
	length := untilAny(text, ends)
	if strings.Contains(text[:length], `\`) { // what follows a line's end in a string of broken JSON cannot be told
		length = untilAny(text, "\n\"")
	}
	if slices.Contains(schemes, strings.ToLower(text[:length])) {
		next := skipSpace(text, length)
		length = next + untilAny(text[next:], ends)
	}
	return length
}
