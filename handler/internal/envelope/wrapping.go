package envelope

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/unicode"

	"asynccaller/handler/internal/bom"
	"asynccaller/handler/internal/strictjson"
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
	formXML        = "a QueueMessage element"
	formEntities   = "HTML entities"
	formLogicApps  = "$content of Logic Apps"
)

const (
	// maxForms is how many forms around an envelope Unwrap removes.
	maxForms = 4
	// maxUnwrapped is the size of the largest message. It limits what gzip can grow to.
	maxUnwrapped = 64 << 10
)

// Unwrap returns the envelope inside a content, and the forms around it. If the content is an envelope, or if nothing in
// it is recognizable as one, it returns the content itself and no forms.
func Unwrap(content []byte) (inner []byte, forms Wrapping) {
	inner = content
	for len(forms) <= maxForms {
		members, err := strictjson.Object(inner)
		if err == nil {
			native, nexus := markers(members)
			if native || nexus {
				return inner, forms
			}
		}
		unwrapped, form := unwrapOne(inner, members)
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

// WrappedError says that a content is an envelope, but not in the form that the handler reads.
type WrappedError struct {
	Wrapping Wrapping
}

func (e *WrappedError) Error() string {
	return fmt.Sprintf("an envelope in %s, not JSON in UTF-8", e.Wrapping)
}

// unwrapOne removes the outermost form of a content, which has members if it is an object. The form is empty if there is
// none that is known.
func unwrapOne(content []byte, members []strictjson.Member) (inner []byte, form string) {
	if members != nil {
		return contentOf(members)
	}
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
	case strings.HasPrefix(text, "<"):
		form = formXML
		inner, err = messageText(trimmed)
	case entityJSON.MatchString(text):
		form = formEntities
		inner = []byte(html.UnescapeString(text))
	case strings.HasPrefix(text, `b'`), strings.HasPrefix(text, `b"`):
		form = formPython
		text, err = unquotePython(text)
		inner = []byte(text)
	default:
		inner, form, err = decodeBase64(text)
	}
	if err != nil {
		return nil, ""
	}
	return inner, form
}

// contentOf returns the content that Logic Apps passes on in an object with its media type: base64, or a JSON value.
func contentOf(members []strictjson.Member) (inner []byte, form string) {
	if len(members) != 2 || members[0].Name != "$content-type" || members[1].Name != "$content" {
		return nil, ""
	}
	inner, err := strictjson.Bytes(members[1].Value)
	if err != nil {
		inner = members[1].Value
	}
	return inner, formLogicApps
}

// messageText returns the text of a message as the REST API of Queue Storage has it in XML.
func messageText(document []byte) ([]byte, error) {
	var message struct {
		XMLName xml.Name `xml:"QueueMessage"`
		Text    []string `xml:"MessageText"`
	}
	err := xml.Unmarshal(document, &message)
	if err == nil && (len(message.Text) != 1 || !bytes.HasSuffix(document, []byte("</QueueMessage>"))) {
		err = errors.New("it is not one message")
	}
	if err != nil {
		return nil, err
	}
	return []byte(message.Text[0]), nil
}

// entityJSON matches an object in which all characters that have an entity of XML have been replaced by it, so that it
// is certain what the text was.
var entityJSON = regexp.MustCompile(`^\{\s*&(?:quot|#34|#x22);(?:[^&"<>]|&(?:quot|amp|lt|gt|apos|#34|#39|#x22|#x27);)*\}$`)

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
