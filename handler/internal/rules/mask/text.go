package mask

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/html"

	"asynccaller/handler/internal/plain/secret"
)

// text returns what may be shown of a text, such as the string of a JSON member: JSON and URLs by their parts, of any
// other text the first line, cut after the name of a secret.
func (m *masker) text(where, text string) string {
	if m.secrets == Revealed {
		return text
	}
	link := urlStart.FindString(text)
	isPath := strings.HasPrefix(text, "/") && !strings.ContainsAny(text, " \t\r\n")
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
	case text == link, isPath:
		return m.url(where, text)
	case link != "": // what follows may belong to its query
		return m.url(where, link) + " " + m.hide(where, text[len(link)+1:])
	case !strings.ContainsFunc(text, isWord):
		return text
	}
	line := firstLine(text)
	switch line {
	case "":
		return m.hide(where, text)
	case strings.TrimSpace(text):
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
	pieces   = regexp.MustCompile(`[0-9A-Za-z_.-]+:\\*/\\*/[^ \t\r\n"<>]*|[0-9A-Za-z_.-]+`)
	urlStart = regexp.MustCompile(`^[0-9A-Za-z_.-]+://[^ \t\r\n]*`)
	// harmless matches what may follow the name of a secret: words that are no secret, the end of the text, or what
	// stands before a value.
	harmless = regexp.MustCompile(`^(?:[.,;]? (?i:` + harmlessWords + `)\b)*` +
		`(?:[.,;:!?"')\]>]*$|["'\\\x00]*\s*(?:=>|[:=])?\s*["'\\]*)`)
	// userInfo matches a user and a password before a host.
	userInfo = regexp.MustCompile(`[^\s:/@]*:[^\s/@]*@`)
	// opaque matches long words. Those with a digit and a letter may be keys, tokens or base64.
	opaque = regexp.MustCompile(`[0-9A-Za-z_+]{20,}=*`)
)

const harmlessWords = `is|are|was|were|has|have|had|been|be|do|does|did|not|no|and|or|but|for|from|in|into|of|` +
	`on|to|by|at|as|with|without|only|must|may|can|cannot|could|should|too|out|already|missing|required|expected|` +
	`invalid|valid|expired|incorrect|wrong|unknown|failed|failure|errors?|exception|denied|rejected|` +
	`revoked|refused|given|provided|supplied|found|present|malformed|mismatch|exists?|constraint|fails|` +
	`value|violates|unique|unexpected|unavailable|unreachable|gone|timed|timeout|headers?|tokens?|keys?|` +
	`cookies?|credentials?|signature|auth|authentication|authorization|schemes?|realm|format|type|method|` +
	`server|service|session|request|user|client|account`

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

// firstLine returns the first line of a text that has a letter or a digit, without the spaces around it. Of a longer
// line it returns the words within maxLine bytes.
func firstLine(s string) string {
	isEnd := func(r rune) bool { return strings.ContainsRune("\n\v\f\r\u0085\u2028\u2029", r) }
	for line := range strings.FieldsFuncSeq(s, isEnd) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.ContainsFunc(line, isWord):
		case len(line) > maxLine: // a part of a word can be a part of a secret
			return strings.TrimSpace(line[:strings.LastIndexByte(line[:maxLine], ' ')+1])
		default:
			return line
		}
	}
	return ""
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// The elements of HTML and XML that matter here, by their names in lower case without a prefix.
var (
	// titles say what is wrong, such as the faultstring of SOAP 1.1 and the reason of SOAP 1.2.
	titles = []string{"title", "faultstring", "message", "error", "reason"}
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

// headline returns the title of HTML or XML or, if it has none that says something, the first line of its text before
// an element with the name of a secret. It has [inlineTag] for the tags in the line.
func headline(markup string) string {
	var p page
	tokens := html.NewTokenizer(strings.NewReader(strings.TrimPrefix(markup, byteOrderMark)))
	tokens.AllowCDATA(true)
	for kind := tokens.Next(); kind != html.ErrorToken; kind = tokens.Next() {
		written := string(tokens.Raw())
		token := tokens.Token()
		switch {
		case kind == html.TextToken:
			words := strings.Join(strings.Fields(token.Data), " ")
			if p.isTitle(words) {
				return firstLine(words)
			}
			p.addText(token.Data)
		case hasOwnEnd(written):
			return firstLine(p.lines.String())
		case kind != html.CommentToken:
			p.addTag(token)
		}
	}
	return firstLine(p.lines.String())
}

// hasOwnEnd reports whether it is unknown where a tag, comment or declaration ends: it has another one in it, or is a
// program.
func hasOwnEnd(tag string) bool {
	switch {
	case strings.HasPrefix(tag, "<!--"):
		return false
	case strings.HasPrefix(tag, "<?") && !strings.HasPrefix(tag, "<?xml"):
		return true
	}
	return strings.LastIndexByte(tag, '<') > 0 || strings.HasPrefix(tag, "<!") && strings.Contains(tag, "[")
}

// page is what is known of HTML or XML, up to a token.
type page struct {
	lines strings.Builder
	// element is the latest that has begun, unless it has ended.
	element string
	// secret is the outermost open element that has the name of a secret, and depth how many of that name are open.
	secret string
	depth  int
	// hadSecret says that there was such an element: what follows can belong to it.
	hadSecret bool
}

func (p *page) isTitle(words string) bool {
	return words != "" && p.secret == "" && slices.Contains(titles, p.element) && !slices.Contains(generic, words)
}

func (p *page) addText(text string) {
	if !p.hadSecret && p.element != "title" && !slices.Contains(raw, p.element) {
		p.lines.WriteString(text)
	}
}

func (p *page) addTag(token html.Token) {
	name := token.Data[strings.LastIndexByte(token.Data, ':')+1:]
	separator := "\n"
	if slices.Contains(inline, name) {
		separator = inlineTag
	}
	p.lines.WriteString(separator)
	isStart, isEnd := token.Type == html.StartTagToken, token.Type == html.EndTagToken
	switch {
	case isStart && p.secret == "" && !slices.Contains(void, name) && isSecret(name, token.Attr):
		p.secret, p.depth, p.hadSecret = token.Data, 1, true
	case isStart && p.secret == token.Data:
		p.depth++
	case isEnd && p.secret == token.Data:
		p.depth--
	}
	if p.depth == 0 {
		p.secret = ""
	}
	switch {
	case !isStart:
		p.element = ""
	case name != "text" || p.element != "reason": // of SOAP 1.2
		p.element = name
	}
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
