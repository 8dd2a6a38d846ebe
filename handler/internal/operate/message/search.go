package message

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/unicode/norm"

	"asynccaller/handler/internal/rules/envelope"
)

const (
	// maxSearched limits how many bytes are looked at for a message, in all forms: 4 times the largest body. A hostile
	// sender can nest forms at will.
	maxSearched = 4 * envelope.MaxBody
	// maxNested limits how deep forms are nested.
	maxNested = 8
	// maxBinary is the length up to which unknown bytes in base64 within a text count as a hash, a key or a signature.
	maxBinary = 512
)

// search looks for a text in a message as its receivers would read it.
type search struct {
	wanted string
	// bodies are those that are searched by their own charset and coding.
	bodies []string
	seen   map[string]bool
	room   int
	// found says that the text is there, and incomplete that a part could not be looked at.
	found, incomplete bool
}

// contains reports whether a message has a text, in any letter case: in its content, in what is encoded within that, or
// in Message.Detail. If it is not found, unsearched says that a part could not be searched.
func contains(m Message, content []byte, text string) (found, unsearched bool) {
	s := search{wanted: comparable(text), seen: map[string]bool{}, room: maxSearched}
	s.in(m.Detail, maxNested)
	if !m.Raw {
		content, _ = envelope.Unwrap(content)
		if e, err := envelope.Parse(content); err == nil {
			s.inEnvelope(e)
		}
	}
	s.in(string(content), maxNested)
	return s.found, s.incomplete && !s.found
}

// comparable returns the form of a text in which texts are compared: without letter case, and with composed characters.
func comparable(text string) string { return norm.NFC.String(strings.ToLower(text)) }

// inEnvelope looks into the parts of an envelope that its content has in another form, such as one with a charset.
func (s *search) inEnvelope(e *envelope.Envelope) {
	s.in(e.Call.URL, maxNested)
	if e.Callback != nil {
		s.in(e.Callback.URL, maxNested)
	}
	for name, values := range e.Call.Header {
		for _, value := range values {
			s.in(name+": "+value, maxNested)
		}
	}
	s.inBody(&envelope.Answer{Header: e.Call.Header, Body: e.Call.Body.Bytes()})
	s.bodies = append(s.bodies, string(e.Call.Body.Gzip())) // which the content has in base64
	if e.Latest != nil {
		s.inBody(e.Latest)
	}
}

// inBody looks into a body that has the headers of a request or of an answer.
func (s *search) inBody(a *envelope.Answer) {
	text, whole := a.Text()
	_, parameters, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if charset := parameters["charset"]; charset != "" && !isKnownCharset(charset) || !whole && !a.Truncated {
		s.incomplete = true
	}
	s.in(text, maxNested)
	s.bodies = append(s.bodies, string(a.Body))
}

func isKnownCharset(name string) bool {
	known, _ := ianaindex.IANA.Encoding(name)
	_, err := htmlindex.Get(name)
	return known != nil || err == nil
}

// The forms in which a text can be within another one.
var (
	escapes    = regexp.MustCompile(`(?:\\u[0-9A-Fa-f]{4})+|\\["\\/bfnrt]`) // of JSON
	pairs      = regexp.MustCompile(`[\w.~%-]=[^\s"'<>=]+`)                 // of a query or a form
	percents   = regexp.MustCompile(`(?:%[0-9A-Fa-f]{2})+`)
	base64Runs = regexp.MustCompile(`[0-9A-Za-z+/_-]{8,}(?:\r?\n[0-9A-Za-z+/_-]+)*`)
	standard   = strings.NewReplacer("-", "+", "_", "/", "\r", "", "\n", "")
)

// in looks into a text, and into what it has in other forms, up to a depth.
func (s *search) in(text string, depth int) {
	if text == "" || s.found || s.seen[text] {
		return
	}
	s.room -= len(text)
	if depth == 0 || s.room < 0 {
		s.incomplete = true
		return
	}
	s.seen[text] = true
	s.found = strings.Contains(comparable(text), s.wanted)
	unescaped := escapes.ReplaceAllStringFunc(text, func(escaped string) (plain string) {
		_ = json.Unmarshal([]byte(`"`+escaped+`"`), &plain) // it is a string of JSON
		return plain
	})
	s.in(unescaped, depth-1)
	s.in(withoutPercents(text), depth-1)
	spaced := pairs.ReplaceAllStringFunc(text, func(pair string) string { return strings.ReplaceAll(pair, "+", " ") })
	s.in(withoutPercents(spaced), depth-1)
	s.in(html.UnescapeString(text), depth-1)
	if unescaped == text { // otherwise an escape may break it
		for _, encoded := range base64Runs.FindAllString(text, -1) {
			s.inEncoded(encoded, depth-1)
		}
	}
	if !utf8.ValidString(text) {
		guess, _ := charmap.Windows1252.NewDecoder().String(text)
		s.in(guess, depth-1)
		s.incomplete = true
	}
	isEncoded := strings.Contains(text, "\x00") || strings.Contains(strings.ToLower(text), "quoted-printable")
	s.incomplete = s.incomplete || isEncoded
}

func withoutPercents(text string) string {
	return percents.ReplaceAllStringFunc(text, func(escaped string) string {
		plain, _ := url.PathUnescape(escaped) // it is valid
		return plain
	})
}

// inEncoded looks into what may be base64.
func (s *search) inEncoded(text string, depth int) {
	content, err := base64.RawStdEncoding.DecodeString(standard.Replace(text))
	decoded := string(content)
	for _, body := range s.bodies {
		decoded = strings.TrimSuffix(decoded, body)
	}
	kind := http.DetectContentType([]byte(decoded))
	isFile := !strings.HasPrefix(kind, "text/") && kind != "application/octet-stream"
	switch {
	case err != nil:
	case utf8.ValidString(decoded):
		s.in(decoded, depth)
	case isFile || len(decoded) > maxBinary:
		s.incomplete = true
	}
}
