package envelope

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/unicode"

	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/plain/strictjson"
)

// Wrapping lists the forms into which a sender has put an envelope by mistake, from the outside in.
type Wrapping []string

// The forms of a [Wrapping].
const (
	formBase64     = "base64"
	formURLBase64  = "URL-safe base64"
	formOpenBase64 = "base64 without padding"
	formString     = "a quoted JSON string"
	formPython     = "a Python bytes literal"
	formGzip       = "gzip"
	formUTF16      = "UTF-16"
	formXML        = "a <QueueMessage> element" // of the REST API of queues
	formEntities   = "XML entities"
	formContent    = "a $content object" // of Logic Apps
)

const (
	// maxForms is how many forms around an envelope Unwrap removes.
	maxForms = 4
	// maxUnwrapped is the size of the largest message. It limits what gzip can grow to.
	maxUnwrapped = 64 << 10
)

// Unwrap returns the envelope inside a content, and the forms around it. If the content is an envelope, or if nothing
// in it is recognizable as one, it returns the content itself and no forms.
func Unwrap(content []byte) (inner []byte, forms Wrapping) {
	inner = content
	for len(forms) <= maxForms {
		members, err := strictjson.Object(inner)
		native, nexus := markers(members)
		if native || nexus {
			return inner, forms
		}
		unwrapped, form := unwrapContent(members)
		if err != nil {
			unwrapped, form = unwrapOne(inner)
		}
		if form == "" {
			break
		}
		inner = unwrapped
		forms = append(forms, form)
	}
	return content, nil
}

// Layers describes the forms from the outside in, each with how often it was applied: "2 layers of base64".
func (w Wrapping) Layers() (layers []string) {
	for rest := w; len(rest) > 0; {
		form, n := rest[0], 1
		for n < len(rest) && rest[n] == form {
			n++
		}
		rest = rest[n:]
		if n > 1 {
			form = fmt.Sprintf("%d layers of %s", n, form)
		}
		layers = append(layers, form)
	}
	return layers
}

// String describes where the envelope is: "2 layers of base64 in a quoted JSON string".
func (w Wrapping) String() string {
	layers := w.Layers()
	slices.Reverse(layers)
	return strings.Join(layers, " in ")
}

// WrappedError says that a content has an envelope, but not in the form that the handler reads.
type WrappedError struct {
	Wrapping Wrapping
}

func (e *WrappedError) Error() string {
	return fmt.Sprintf("an envelope in %s, not the envelope itself", e.Wrapping)
}

// unwrapOne removes the outermost form of a content. The form is empty if there is none that is known.
func unwrapOne(content []byte) (inner []byte, form string) {
	trimmed, wide := bom.Text(bytes.TrimSpace(content))
	text := string(trimmed)
	var err error
	switch {
	case wide != nil:
		order := unicode.LittleEndian
		if content[0] == 0 {
			order = unicode.BigEndian
		}
		form = formUTF16
		inner, err = unicode.UTF16(order, unicode.UseBOM).NewDecoder().Bytes(content)
	case strings.HasPrefix(text, "\x1f\x8b"):
		form = formGzip
		inner, err = gunzip(content)
	case strings.HasPrefix(text, `"`):
		form = formString
		err = json.Unmarshal(trimmed, &text)
		inner = []byte(text)
	case strings.HasPrefix(text, `b'`), strings.HasPrefix(text, `b"`):
		form = formPython
		text, err = unquotePython(text)
		inner = []byte(text)
	case strings.HasPrefix(text, "<"):
		form = formXML
		message := queueMessage.FindStringSubmatch(text)
		if message == nil {
			return nil, ""
		}
		inner, err = unescapeXML(message[1])
	case strings.Contains(text, "&") && !strings.ContainsAny(text, `"<`): // else not all of it is escaped
		form = formEntities
		inner, err = unescapeXML(text)
	default:
		inner, form, err = decodeBase64(text)
	}
	if err != nil {
		return nil, ""
	}
	return inner, form
}

// unwrapContent returns the content of the object in which Logic Apps keep a body with its type: base64, text or JSON.
func unwrapContent(members []strictjson.Member) (inner []byte, form string) {
	var content json.RawMessage
	isTyped := false
	for _, m := range members {
		switch m.Name {
		case "$content":
			content = m.Value
		case "$content-type":
			isTyped = true
		}
	}
	if len(members) != 2 || content == nil || !isTyped {
		return nil, ""
	}
	text, err := strictjson.Bytes(content)
	if err != nil {
		return content, formContent
	}
	return text, formContent
}

// queueMessage matches the XML of the REST API of queues. Its text has no elements.
var queueMessage = regexp.MustCompile(`^(?:<\?xml[^<>]*>\s*)?` +
	`<QueueMessage[^<>]*>\s*<MessageText[^<>]*>([^<]*)</MessageText>\s*</QueueMessage>$`)

// unescapeXML reads a text of XML without elements. It refuses an & that begins none of XML's own entities.
func unescapeXML(text string) (inner []byte, err error) {
	err = xml.Unmarshal([]byte("<a>"+text+"</a>"), &inner)
	return inner, err
}

// gunzip decompresses a content that is not large.
func gunzip(content []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	inner, err := io.ReadAll(io.LimitReader(reader, maxUnwrapped+1))
	if len(inner) > maxUnwrapped {
		err = io.ErrShortBuffer
	}
	return inner, err
}

// unquotePython reads what Python's repr writes for bytes.
func unquotePython(literal string) (string, error) {
	quote := literal[1:2]
	if len(literal) < len(`b''`) || !strings.HasSuffix(literal, quote) {
		return "", strconv.ErrSyntax
	}
	inGo := strings.NewReplacer(`\\`, `\\`, `\'`, `'`, `"`, `\"`).Replace(literal[2 : len(literal)-1])
	return strconv.Unquote(`"` + inGo + `"`)
}

// decodeBase64 reads base64 with either alphabet, with or without padding. It ignores white space, as .NET does.
func decodeBase64(text string) (inner []byte, form string, err error) {
	text = strings.Join(strings.Fields(text), "")
	open := strings.TrimRight(text, "=")
	switch {
	case open == "":
		return nil, "", nil
	case strings.ContainsAny(open, "-_"):
		inner, err = base64.RawURLEncoding.DecodeString(open)
		return inner, formURLBase64, err
	case len(text)%4 != 0:
		inner, err = base64.RawStdEncoding.DecodeString(open)
		return inner, formOpenBase64, err
	}
	inner, err = base64.StdEncoding.DecodeString(text)
	return inner, formBase64, err
}
