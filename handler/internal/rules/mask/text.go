package mask

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/html"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/text"
)

// text returns what may be shown of a text, such as the string of a JSON member: JSON and URLs by their parts, of any
// other text the first line, cut after the name of a secret.
func (m *masker) text(where, text string) string {
	if m.secrets == Revealed {
		return text
	}
	end := untilAny(text, " \t\r\n")
	isURL := schemeLength(text) > 0
	switch {
	case looksLikeJSON(text):
		before := m.count
		shown := m.compact(where, text)
		if m.count == before {
			return text
		}
		return shown
	case looksLikeMarkup(text):
		return m.markup(where, text)
	case end == len(text) && (isURL || strings.HasPrefix(text, "/")):
		return m.url(where, text)
	case isURL: // what follows may belong to its query
		return m.url(where, text[:end]) + text[end:end+1] + m.hide(where, text[end+1:])
	case !strings.ContainsFunc(text, isWord):
		return text
	}
	line := firstLine(text)
	if line == strings.TrimSpace(text) {
		return m.line(where, text)
	}
	return m.line(where, line) + m.rest(where, text)
}

// markup returns the headline of HTML or XML.
func (m *masker) markup(where, text string) string {
	line := headline(text)
	if line == "" {
		return m.hide(where, text)
	}
	joined := strings.ReplaceAll(m.line(where, line), inlineTag, "") // a name may be in several elements
	return strings.Join(strings.Fields(m.line(where, joined)), " ") + m.rest(where, text)
}

var (
	// pieces matches the URLs and the names in a text, and where a URL begins in escaped JSON. Quotes and brackets may
	// be part of a URL.
	pieces = regexp.MustCompile(`[0-9A-Za-z_.-]+:\\*/\\*/[^ \t\r\n"<>]*|[0-9A-Za-z_.-]+`)
	// harmless matches what may follow the name of a secret: words that are no secret, the end of the text, or what
	// stands before a value.
	harmless = regexp.MustCompile(`^(?:[.,;]? (?i:` + harmlessWords + `)\b)*` +
		`(?:[.,;:!?"')\]>]*$|["'\\\x00]*\s*(?:=>|[:=])?\s*["'\\]*)`)
	// userInfo matches a user and a password before a host.
	userInfo = regexp.MustCompile(`[^\s:/@]*:[^\s/@]*@`)
	// opaque matches long words. Those with a digit and a letter may be keys, tokens or base64.
	opaque = regexp.MustCompile(`[0-9A-Za-z_]{20,}=*`)
)

const harmlessWords = `is|are|was|were|has|have|had|been|be|do|does|did|not|no|and|or|but|for|from|in|into|of|on|to|by|` +
	`at|as|with|without|only|must|may|can|cannot|could|should|too|out|already|missing|required|expected|invalid|valid|` +
	`expired|incorrect|wrong|unknown|failed|failure|errors?|exception|denied|rejected|revoked|refused|given|provided|` +
	`supplied|found|present|malformed|mismatch|exists?|constraint|fails|value|violates|unique|unexpected|unavailable|` +
	`unreachable|gone|timed|timeout|headers?|tokens?|keys?|cookies?|credentials?|signature|auth|authentication|` +
	`authorization|schemes?|realm|format|type|method|server|service|session|request|user|client|account`

// line returns a line with its URLs masked, cut after the first name of a secret that something other than harmless
// words follows.
func (m *masker) line(where, line string) string {
	line = userInfo.ReplaceAllStringFunc(line, func(user string) string {
		return m.hide(where+"@", strings.TrimSuffix(user, "@")) + "@"
	})
	var shown strings.Builder
	end := 0 // of what is shown, or hidden
	for _, at := range pieces.FindAllStringIndex(line, -1) {
		piece := line[at[0]:at[1]]
		switch {
		case strings.Contains(piece, "://"):
			shown.WriteString(line[end:at[0]] + m.url(where, piece))
			end = at[1]
		case strings.Contains(piece, `/`):
			return shown.String() + line[end:at[0]] + m.hide(where, line[at[0]:])
		case secret.Is(piece) || slices.Contains(schemes, strings.ToLower(piece)):
			value := at[1] + len(harmless.FindString(line[at[1]:]))
			return shown.String() + line[end:value] + m.hide(where, line[value:])
		}
	}
	return shown.String() + line[end:]
}

// hideOpaque returns a line without the long words that have a digit and a letter.
func (m *masker) hideOpaque(where, line string) string {
	return opaque.ReplaceAllStringFunc(line, func(word string) string {
		if strings.ContainsAny(word, "0123456789") && strings.ContainsFunc(word, unicode.IsLetter) {
			return m.hide(where, word)
		}
		return word
	})
}

// firstLine returns the first line of a text that has a letter or a digit, without the spaces around it. It has at most
// maxLine bytes.
func firstLine(s string) string {
	isEnd := func(r rune) bool { return strings.ContainsRune("\n\v\f\r\u0085\u2028\u2029", r) }
	for line := range strings.FieldsFuncSeq(s, isEnd) {
		if strings.ContainsFunc(line, isWord) {
			return text.Clip(strings.TrimSpace(line), maxLine)
		}
	}
	return ""
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// The elements of HTML and XML that matter here, by their names in lower case without a prefix.
var (
	// titles say what is wrong, such as the faultstring of SOAP 1.1, the Text of SOAP 1.2 and the Message of others.
	titles = []string{"title", "faultstring", "text", "message", "error", "reason"}
	// inline elements are within a line. All others end it.
	inline = []string{"a", "abbr", "b", "code", "em", "font", "i", "kbd", "small", "span", "strong", "tt", "u", "var"}
	// void elements have no content, and the content of raw ones is no text.
	void = []string{"base", "br", "col", "hr", "img", "input", "link", "meta", "param", "source", "wbr"}
	raw  = []string{
		"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "xmp",
	}
	// generic titles say nothing: those of Express and Rails.
	generic = []string{"Error", "Action Controller: Exception caught"}
)

// byteOrderMark can come before a text.
const byteOrderMark = "\ufeff"

// inlineTag stands for the tag of an inline element.
const inlineTag = "\x00"

// headline returns the title of HTML or XML or, if it has none that says something, the first line of its text. It
// leaves out elements with the name of a secret, and has [inlineTag] for the tags in the line.
func headline(markup string) string {
	var lines strings.Builder
	element, hidden := "", "" // the latest that has begun, and the outermost that is hidden
	depth := 0                // the open elements with the name of the hidden one
	tokens := html.NewTokenizer(strings.NewReader(strings.TrimPrefix(markup, byteOrderMark)))
	tokens.AllowCDATA(true)
	for kind := tokens.Next(); kind != html.ErrorToken; kind = tokens.Next() {
		token := tokens.Token()
		_, name, hasPrefix := strings.Cut(token.Data, ":")
		if !hasPrefix {
			name = token.Data
		}
		words := text.Clip(strings.Join(strings.Fields(token.Data), " "), maxLine)
		switch {
		case kind == html.DoctypeToken && strings.Contains(token.Data, "["),
			kind == html.CommentToken && strings.HasPrefix(token.Data, "?") && !strings.HasPrefix(token.Data, "?xml"):
			return firstLine(lines.String()) // declarations and programs can have an end of their own
		case kind == html.TextToken && hidden == "" && slices.Contains(titles, element) && words != "" &&
			!slices.Contains(generic, words):
			return words
		case kind == html.TextToken && hidden == "" && !slices.Contains(raw, element) && element != "title":
			lines.WriteString(token.Data)
		case kind == html.StartTagToken && token.Data == hidden:
			depth++
		case kind == html.EndTagToken && token.Data == hidden:
			depth--
			if depth == 0 {
				hidden = ""
			}
		case kind == html.StartTagToken && hidden == "" && !slices.Contains(void, name) && isSecret(name, token.Attr):
			hidden, depth = token.Data, 1
		}
		switch {
		case kind == html.TextToken, kind == html.CommentToken:
			continue
		case slices.Contains(inline, name):
			lines.WriteString(inlineTag)
		default:
			lines.WriteString("\n")
		}
		element = name
		if kind != html.StartTagToken {
			element = ""
		}
	}
	return firstLine(lines.String())
}

// isSecret reports whether an element has the name of a secret, also in an attribute as in <item name="password">.
func isSecret(name string, attributes []html.Attribute) bool {
	return secret.Is(name) || slices.ContainsFunc(attributes, func(a html.Attribute) bool {
		return (a.Key == "name" || a.Key == "key") && secret.Is(a.Val)
	})
}

var (
	jsonStart = regexp.MustCompile(`^\x{FEFF}?\s*(?:\{\s*(?:["}]|$)|\[\s*(?:["{}\[\]]|$|` +
		`(?:-?[0-9.eE+]+|true|false|null)\s*(?:,|\]?\s*$)))`)
	markupStart = regexp.MustCompile(`^\x{FEFF}?\s*<(?:[?!/]|[A-Za-z_][\w.-]*(?::[\w.-]+)?(?:[\s/>]|$))`)
)

// looksLikeJSON reports whether a text begins like an object or an array, and not like a text in brackets.
func looksLikeJSON(text string) bool { return jsonStart.MatchString(text) }

// looksLikeMarkup reports whether a text begins like XML or HTML.
func looksLikeMarkup(text string) bool { return markupStart.MatchString(text) }

// completeJSON returns the beginning of an object or an array that is broken or cut off, as an object or an array of
// its own. It leaves out the last value, unless that is a text of some words.
func completeJSON(text string) string {
	var ends []byte // of the containers that are open
	length := 0
	decoder := json.NewDecoder(strings.NewReader(text))
	for isFirst := true; isFirst || len(ends) > 0; isFirst = false {
		token, err := decoder.Token()
		rest := strings.TrimLeft(text[decoder.InputOffset():], " \t\r\n")
		if err != nil || rest == "" { // the last token may be cut off
			slices.Reverse(ends)
			beginning := strings.TrimRight(text, " \t\r\n")
			if !strings.HasSuffix(beginning, `"`) {
				beginning = text[:strings.LastIndexByte(text, ' ')+1] + `"`
			}
			beginning += string(ends)
			if json.Valid([]byte(beginning)) {
				return beginning
			}
			break
		}
		switch token {
		case json.Delim('{'):
			ends = append(ends, '}')
		case json.Delim('['):
			ends = append(ends, ']')
		case json.Delim('}'), json.Delim(']'):
			ends = ends[:len(ends)-1]
		}
		isName := strings.HasPrefix(rest, ":") // nothing without its value
		if !isName {
			length = int(decoder.InputOffset())
		}
	}
	return text[:length] + string(ends)
}

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
