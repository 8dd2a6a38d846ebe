package message

import (
	"encoding/json"
	"regexp"
	"strings"

	"asynccaller/handler/internal/secret"
)

// text returns a text within something that parses, such as the string of a JSON member, with its secrets masked: JSON,
// XML and URLs in it by their parts. It hides a text that seems to be JSON or XML and does not parse, and a text that
// names a secret, because it is unknown where the value ends.
func (m *masker) text(where, text string) string {
	if m.secrets == Revealed {
		return text
	}
	switch {
	case looksLikeJSON(text):
		if !json.Valid([]byte(text)) {
			return m.hide(where, text)
		}
		before := m.count
		if compact := m.compact(where, []byte(text)); m.count > before {
			return compact
		}
		return text
	case looksLikeXML(text):
		if masked, ok := m.xml(where, text); ok {
			return masked
		}
		return m.hide(where, text)
	case schemeLength(text) > 0, strings.HasPrefix(text, "/") && !strings.ContainsAny(text, " \n"):
		return m.url(where, text)
	case strings.Contains(text, `:\/`), namesSecret(text): // URLs in JSON in a text have escaped slashes
		return m.hide(where, text)
	}
	return links.ReplaceAllStringFunc(text, func(link string) string { return m.url(where, link) })
}

var (
	// links matches the URLs in a text. Quotes, brackets and backslashes may be part of them.
	links = regexp.MustCompile(`[0-9A-Za-z_.-]+://[^ \t\r\n"<>]*`)
	// assignment matches what is between a name and a value in JSON, forms, headers, connection strings and XML. In
	// JSON within JSON, backslashes come before the quote that ends the name.
	assignment = regexp.MustCompile(`^\\*["']?[ \t\r\n]*[:=][ \t\r\n]*[^ \t\r\n]`)
)

// namesSecret reports whether a text has the name of a secret, and a value for it.
func namesSecret(text string) bool {
	for at := 0; at < len(text); {
		end := at + span(text[at:], nameChars)
		if end == at {
			at++
			continue
		}
		isName := isElement(text[:at]) || assignment.MatchString(text[end:]) && schemeLength(text[at:]) == 0
		if isName && secret.Is(text[at:end]) {
			return true
		}
		at = end
	}
	return false
}

// isElement reports whether a text ends where the name of an XML element begins, after its prefix.
func isElement(text string) bool {
	const longestPrefix = 64
	beginning := strings.TrimRight(text[max(0, len(text)-longestPrefix):], nameChars+":")
	return strings.HasSuffix(beginning, "<")
}

var (
	jsonStart = regexp.MustCompile(`^\x{FEFF}?\s*(?:\{\s*(?:["}]|$)|\[\s*(?:["{}\[\]0-9-]|true|false|null|$))`)
	xmlStart  = regexp.MustCompile(`^\x{FEFF}?\s*<(?:[?!/]|[A-Za-z_][\w.-]*(?::[\w.-]+)?(?:[\s/>]|$))`)
)

// looksLikeJSON reports whether a text begins like an object or an array, and not like a text in brackets.
func looksLikeJSON(text string) bool { return jsonStart.MatchString(text) }

// looksLikeXML reports whether a text begins like XML or HTML.
func looksLikeXML(text string) bool { return xmlStart.MatchString(text) }

// untilAny returns the length of a text up to the first of some characters.
func untilAny(text, ends string) int {
	if end := strings.IndexAny(text, ends); end >= 0 {
		return end
	}
	return len(text)
}
