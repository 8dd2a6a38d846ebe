package message

import (
	"regexp"
	"strings"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/strictjson"
)

// Answer is the part of a target's latest answer that may be shown.
type Answer struct {
	Status    int    `json:"status"`
	MediaType string `json:"mediaType,omitempty"`
	// Body is the beginning of the body; Truncated says that there was more. It is empty for a binary body.
	Body      string   `json:"body,omitempty"`
	BodyKind  BodyKind `json:"bodyKind"`
	Truncated bool     `json:"truncated,omitempty"`
}

// ShowAnswer returns the part of the target's latest answer that may be shown, or nil if the envelope holds none.
func ShowAnswer(e *envelope.Envelope, secrets Secrets) *Answer {
	x := latestAnswer(e)
	if x == nil {
		return nil
	}
	text, kind := newMasker(secrets).body("answer", x.MediaType, []byte(x.Text))
	body, cut := clip(text, maxBody)
	return &Answer{
		Status: x.Status, MediaType: shown(x.MediaType, maxDetail), Body: body, BodyKind: kind,
		Truncated: x.Truncated || cut,
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
	markup    = regexp.MustCompile(`<[^>]*>`)
)

// answerLine returns the first line of an answer that has text, with its secrets masked, folded like an error. JSON is
// one line, and the tags of HTML and XML are no text.
func answerLine(x *envelope.Excerpt) string {
	// enough for a key, also behind tags and ids; masking more takes long
	beginning := strictjson.Clip(x.Text, 3*maxKey)
	text, kind := newMasker(Masked).body("answer", x.MediaType, []byte(beginning))
	switch {
	case kind == BodyBinary:
		return keyBinaryAnswer
	case looksLikeJSON([]byte(text)):
		// a number is a word of its own
		folded := foldText(colon.ReplaceAllString(lineStart.ReplaceAllString(text, ""), `": `))
		return strings.ReplaceAll(folded, `": `, `":`)
	case strings.HasPrefix(strings.TrimSpace(text), "<"):
		text = markup.ReplaceAllString(text, " ") + "\n" + text
	}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			return foldText(strings.Join(words, " "))
		}
	}
	return keyEmptyAnswer
}
