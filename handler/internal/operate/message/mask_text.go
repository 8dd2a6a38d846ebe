package message

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"asynccaller/handler/internal/secret"
	"asynccaller/handler/internal/strictjson"
)

// text returns a text with its secrets masked. It masks JSON in it as JSON, URLs, and the values of secret names. It
// hides a value up to where it certainly ends, and so sometimes too much.
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
	if urlStart(text) > 0 && !strings.Contains(text, "\n") || strings.HasPrefix(text, "/") &&
		!strings.ContainsAny(text, " \n") {
		return m.url(where, text)
	}
	return m.scan(where, text, true)
}

// pairs hides the values of secret names.
func (m *masker) pairs(where, text string) string { return m.scan(where, text, false) }

// scan looks at each name in a text. It may be the scheme of a URL, or the name of a secret.
func (m *masker) scan(where, text string, urls bool) string {
	var b strings.Builder
	for at := 0; at < len(text); {
		end := at + span(text[at:], nameChars)
		if end == at {
			b.WriteByte(text[at])
			at++
			continue
		}
		name := text[at:end]
		b.WriteString(name)
		if urls && urlStart(text[at:]) > 0 {
			end = at + untilAny(text[at:], " \t\r\n\"<>") // quotes, brackets and backslashes may be part of it
			b.WriteString(m.url(where, text[at:end])[len(name):])
		} else if isSecret := secret.Is(name); isSecret || m.isOpaque(name) {
			if from, to := valueOf(text, at, end); from < to && (isSecret || quotedLength(text[from:]) > 0) {
				// Between the name and the value are punctuation and, in XML, attributes.
				b.WriteString(m.scan(where, text[end:from], urls) + m.hide(where+"."+name, text[from:to]))
				end = to
			}
		}
		at = end
	}
	return b.String()
}

var (
	// assignment matches the text between a name and a value. In JSON within JSON, backslashes come before the quote
	// that ends the name.
	assignment = regexp.MustCompile(`^\\*(["']?)[ \t\r\n]*([:=])[ \t\r\n]*`)
	openQuote  = regexp.MustCompile(`^\\*["']`)
)

// valueOf finds the value of the name at text[start:end]. From and to are equal if there is none. It knows JSON, forms,
// headers, connection strings and XML, complete or broken.
func valueOf(text string, start, end int) (from, to int) {
	const longestPrefix = 63
	prefix := strings.TrimRight(text[max(0, start-longestPrefix):start], nameChars+":")
	if strings.HasSuffix(prefix, "<") { // the name of an XML element
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
	match := assignment.FindStringSubmatch(text[end:])
	if match == nil {
		return end, end
	}
	from = end + len(match[0])
	rest := text[from:]
	switch enclosed := enclosedLength(rest); {
	case enclosed > 0:
		return from, from + enclosed
	case match[2] == "=":
		return from, from + wordLength(rest)
	case match[1] != "":
		return from, from + untilAny(rest, "\n,}]")
	}
	return from, from + untilAny(rest, "\n")
}

// untilAny returns the length of a text up to the first of some characters.
func untilAny(text, ends string) int {
	if end := strings.IndexAny(text, ends); end >= 0 {
		return end
	}
	return len(text)
}

// quotedLength returns the length of the quoted text that a text begins with, 0 for none. The quote that ends it has no
// more backslashes before it than the first, as in JSON within JSON.
func quotedLength(text string) int {
	open := len(openQuote.FindString(text))
	if open == 0 {
		return 0
	}
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

// enclosedLength returns the length of the object, array or quoted text that a text begins with, 0 for none.
func enclosedLength(text string) int {
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		return bracketLength(text)
	}
	return quotedLength(text)
}

// bracketLength returns the length of the object or array that a text begins with, or of all of it.
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

// wordLength returns the length of a value in a form or a connection string, or of an authorization scheme and the
// credential after it.
func wordLength(text string) int {
	const ends = " \t\r\n&;\"'<>"
	length := untilAny(text, ends)
	if strings.Contains(text[:length], `\`) { // in a string of broken JSON it is unknown what follows a line's end
		length = untilAny(text, "\n\"")
	}
	if slices.Contains(schemes, strings.ToLower(text[:length])) {
		next := length + span(text[length:], spaces)
		length = next + untilAny(text[next:], ends)
	}
	return length
}

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
		colon := at + span(text[at:], spaces)
		if strings.HasPrefix(text[colon:], ":") && (secret.Is(name) || m.isOpaque(name)) {
			value := colon + 1 + span(text[colon+1:], spaces)
			end := value + cmp.Or(enclosedLength(text[value:]), untilAny(text[value:], "\n,}]"))
			b.WriteString(text[at:value] + m.hide(where+"."+name, text[value:end]))
			at = end
		}
	}
	return b.String()
}
