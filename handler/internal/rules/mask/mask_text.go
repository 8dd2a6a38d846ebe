package mask

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/secret"
)

// text returns a text within something that parses, such as the string of a JSON member, with its secrets masked: JSON,
// XML and URLs in it by their parts, and credentials after their scheme. It hides a text that seems to be JSON or XML
// and does not parse, and a text that names a secret, because it is unknown where the value ends.
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
		return m.url(where, m.credentials(where, text))
	case strings.Contains(text, `:\/`), namesSecret(text): // URLs in JSON in a text have escaped slashes
		return m.hide(where, text)
	}
	text = m.credentials(where, text)
	return links.ReplaceAllStringFunc(text, func(link string) string { return m.url(where, link) })
}

// credentials returns a text with the words masked that follow the name of an authorization scheme and look like a
// credential.
func (m *masker) credentials(where, text string) string {
	scheme := ""
	return textWords.ReplaceAllStringFunc(text, func(piece string) string {
		word := strings.Trim(piece, punctuation)
		before := scheme
		scheme = strings.ToLower(word[strings.LastIndexAny(word, "="+punctuation)+1:])
		if before == "bearer" && scheme == "token" {
			scheme = "basic" // after "bearer token" comes a credential, or plain language
		}
		if isCredential(before, word) {
			return strings.Replace(piece, word, m.hide(where, word), 1)
		}
		return piece
	})
}

// isCredential reports whether a word is probably a credential, because of the word before it, in lower case. "Bearer"
// is hardly ever followed by anything else; the other schemes are words of plain language.
func isCredential(scheme, word string) bool {
	const shortestOther = 16
	switch {
	case word == "" || !slices.Contains(schemes, scheme):
		return false
	case scheme == "bearer":
		return !afterBearer.MatchString(word)
	}
	return (scheme == "basic" || len(word) >= shortestOther) && !plainWord.MatchString(word)
}

var (
	// links matches the URLs in a text. Quotes, brackets and backslashes may be part of them.
	links = regexp.MustCompile(`[0-9A-Za-z_.-]+://[^ \t\r\n"<>]*`)
	// assignment matches what is between a name and a value in JSON, forms, headers, connection strings and XML. In
	// JSON within JSON, backslashes come before the quote that ends the name.
	assignment = regexp.MustCompile(`^\\*["']?[ \t\r\n]*[:=][ \t\r\n]*[^ \t\r\n]`)
	textWords  = regexp.MustCompile(`[^\s\p{Z}]+`)
	// afterBearer matches the words that follow "bearer" in messages about it.
	afterBearer = regexp.MustCompile(`^(?i:tokens?|auth|authenticat(?:ed|ion)|authori[sz]ation|schemes?|realm|format|` +
		`headers?|credentials?|challenge|types?|prefix|value|method|security|error|is|was|are|has|or|and|not|for|` +
		`from|with|in|of|to|only|must|missing|required|expected|invalid|expired|but|found|given|provided)$`)
	// plainWord matches a short number, and a word in which only the first letter is a capital.
	plainWord = regexp.MustCompile(`^(?:[A-Za-z][a-z]{0,19}|[0-9]{1,3}|(?i:auth|authentication))$`)
)

// punctuation can come before or after a credential.
const punctuation = "\"'`()[]{}<>.,;:!?|\\"

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

// nameChars are the characters of names.
const nameChars = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_."

// span returns how many bytes at the beginning of a text are in a set.
func span(text, set string) int { return len(text) - len(strings.TrimLeft(text, set)) }

// untilAny returns the length of a text up to the first of some characters.
func untilAny(text, ends string) int {
	if end := strings.IndexAny(text, ends); end >= 0 {
		return end
	}
	return len(text)
}
