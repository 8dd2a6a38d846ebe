package mask

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
)

// Answer is the part of a target's latest answer that may be shown.
type Answer struct {
	Status    int    `json:"status"`
	MediaType string `json:"mediaType,omitempty"`
	// Body is the beginning of the body; Truncated says that there was more. It is empty unless the beginning is JSON,
	// well-formed XML or a form, or secrets are revealed. BodyBytes is the size of the beginning, as text.
	Body      string   `json:"body,omitempty"`
	BodyKind  BodyKind `json:"bodyKind"`
	BodyBytes int      `json:"bodyBytes"`
	Truncated bool     `json:"truncated,omitempty"`
}

// ShowAnswer returns the part of the target's latest answer that may be shown, or nil if the envelope holds none.
func ShowAnswer(e *envelope.Envelope, secrets Secrets) *Answer {
	x := latestAnswer(e)
	if x == nil {
		return nil
	}
	whole, kind := newMasker(secrets).body("answer", x.MediaType, []byte(x.Text))
	body, cut := clip(whole, maxBody)
	return &Answer{
		Status: x.Status, MediaType: text.Line(x.MediaType, maxMediaType), Body: body, BodyKind: kind,
		BodyBytes: len(x.Text), Truncated: x.Truncated || cut,
	}
}

// latestAnswer returns the target's latest answer: that of the dead letter or, in a Nexus envelope, the latest
// response.
func latestAnswer(e *envelope.Envelope) *envelope.Excerpt {
	if e.DeadLetter != nil && e.DeadLetter.Answer != nil {
		return e.DeadLetter.Answer
	}
	return e.Latest.Excerpt()
}

var (
	// lineStart is the indentation of JSON in lines, and colon the end of a member's name.
	lineStart = regexp.MustCompile(`\s*\n\s*`)
	colon     = regexp.MustCompile(`": *`)
	// markup matches tags. The last one may be cut off.
	markup    = regexp.MustCompile(`<[^>]*(?:>|$)`)
	tagName   = regexp.MustCompile(`<[/\s]*([0-9A-Za-z_.:-]+)`)
	htmlStart = regexp.MustCompile(`^(?i)\s*<(?:!doctype\s+)?html\b`)
)

// maxAnswer limits what is parsed of an answer. It exceeds the excerpts that the handler writes.
const maxAnswer = 4 << 10

// What is shown of an answer without a line of text. Groups of messages have these texts as their keys, so they must
// not change from version to version.
const (
	emptyAnswer  = "(empty answer)"
	binaryAnswer = "(binary answer)"
	// unreadableAnswer is for an answer of which no text is kept: it broke off, or its coding cannot be decoded.
	unreadableAnswer = "(unreadable answer)"
	// unreadableJSON and unreadableXML are for answers that begin like JSON or XML and do not parse.
	unreadableJSON = "(unreadable JSON answer)"
	unreadableXML  = "(unreadable XML answer)"
)

// AnswerLine returns the first line of the target's latest answer that has text, with its secrets masked, folded like
// an error. It is empty if the envelope holds no answer. JSON is one line, and the tags of HTML and XML are no text.
// JSON and XML that do not parse, because they are broken or cut, have a text of their own; HTML need not be
// well-formed.
func AnswerLine(e *envelope.Envelope) string {
	x := latestAnswer(e)
	if x == nil {
		return ""
	}
	m := newMasker(Hidden)
	beginning := text.Clip(x.Text, maxAnswer)
	masked, kind := m.body("answer", x.MediaType, []byte(beginning))
	isMarkup := looksLikeXML(beginning)
	line := ""
	switch {
	case x.Text == "" && x.Truncated:
		return unreadableAnswer
	case kind == BodyBinary:
		return binaryAnswer
	case kind == BodyJSON && looksLikeJSON(masked):
		// a number is a word of its own
		folded := fold.Text(colon.ReplaceAllString(lineStart.ReplaceAllString(masked, ""), `": `))
		return strings.ReplaceAll(folded, `": `, `":`)
	case masked != "" && isMarkup:
		line = firstLine(markup.ReplaceAllString(masked, " ") + "\n" + masked)
	case masked != "":
		line = firstLine(masked)
	case looksLikeJSON(beginning):
		return unreadableJSON
	case isMarkup && !isHTML(x.MediaType, beginning):
		return unreadableXML
	case isMarkup:
		line = m.text("answer", firstLine(markup.ReplaceAllString(text.Lines(beginning), " ")))
	default:
		line = m.text("answer", firstLine(text.Lines(beginning)))
	}
	if line == "" {
		return emptyAnswer
	}
	return fold.Text(line)
}

// MaxAnswerText is the length of the longest [AnswerText] in bytes.
const MaxAnswerText = 256

// AnswerText returns the beginning of an answer as printable text in one line, with its secrets masked, at most
// [MaxAnswerText] bytes. The tags of HTML are left out. It is empty if there is no answer.
func AnswerText(a *envelope.Answer) string {
	x := a.Excerpt()
	if x == nil {
		return ""
	}
	body := x.Text
	if x.Truncated && looksLikeJSON(body) {
		body = completeJSON(body)
	}
	m := newMasker(Hidden)
	masked, kind := m.body("answer", x.MediaType, []byte(body))
	switch {
	case body == "" && x.Truncated:
		return unreadableAnswer
	case kind == BodyBinary:
		return binaryAnswer
	case kind == BodyJSON:
		masked = m.compact("answer", []byte(body))
	case masked != "":
	case looksLikeJSON(body):
		return unreadableJSON
	case looksLikeXML(body) && !isHTML(x.MediaType, body):
		return unreadableXML
	default:
		for line := range strings.Lines(markup.ReplaceAllString(text.Lines(body), " ")) {
			masked += m.text("answer", line) + " "
		}
	}
	return text.Line(cmp.Or(strings.Join(strings.Fields(masked), " "), emptyAnswer), MaxAnswerText)
}

// completeJSON returns the beginning of an object or array that is cut off, without the value that is not complete, as
// an object or array of its own.
func completeJSON(text string) string {
	var ends []byte // of the containers that are open
	length := 0
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		rest := strings.TrimLeft(text[decoder.InputOffset():], " \t\r\n")
		if err != nil || rest == "" { // the last token may be cut off
			slices.Reverse(ends)
			return text[:length] + string(ends)
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
}

// firstLine returns the words of the first line that has some.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			return strings.Join(words, " ")
		}
	}
	return ""
}

// isHTML reports whether markup is HTML and has no element with a secret name.
func isHTML(mediaType, text string) bool {
	for _, match := range tagName.FindAllStringSubmatch(text, -1) {
		if secret.Is(match[1]) {
			return false
		}
	}
	return strings.Contains(strings.ToLower(mediaType), "html") || htmlStart.MatchString(text)
}
