package mask

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/secret"
)

// xml returns XML with its secrets masked: the content of elements and the values of attributes with secret names. It
// keeps the spelling of all else. If the text is not well-formed, it returns nothing and reports false.
func (m *masker) xml(where, text string) (masked string, ok bool) {
	x := xmlMasker{masker: m, where: where}
	decoder := xml.NewDecoder(strings.NewReader(text))
	// The text is shown as it is, whatever charset it declares.
	decoder.CharsetReader = func(_ string, input io.Reader) (io.Reader, error) { return input, nil }
	for {
		from := decoder.InputOffset()
		token, err := decoder.RawToken()
		if errors.Is(err, io.EOF) && len(x.open) == 0 {
			return x.masked.String(), true
		}
		if err != nil || !x.add(token, text[from:decoder.InputOffset()]) {
			return "", false
		}
	}
}

// xmlMasker masks one token of XML after the other.
type xmlMasker struct {
	*masker

	where  string
	masked strings.Builder
	// open are the elements that have no end yet.
	open []xml.Name
	// secretDepth is how many elements are open within a hidden one, itself included; 0 if none is hidden. Secret is
	// its content so far.
	secretDepth int
	secret      strings.Builder
}

// add adds a token with its spelling. It reports false for an end that belongs to no start.
func (x *xmlMasker) add(token xml.Token, spelling string) bool {
	if end, ok := token.(xml.EndElement); ok {
		last := len(x.open) - 1
		if last < 0 || x.open[last] != end.Name {
			return false
		}
		x.open = x.open[:last]
		x.end(end.Name.Local)
	}
	if x.secretDepth > 0 {
		x.secret.WriteString(spelling)
	} else {
		x.masked.WriteString(x.token(token, spelling))
	}
	if start, ok := token.(xml.StartElement); ok {
		x.open = append(x.open, start.Name)
		if x.secretDepth > 0 || secret.Is(start.Name.Local) || namesPair(start) {
			x.secretDepth++
		}
	}
	return true
}

// end ends an element. If it was hidden, and not within another one, a mask takes the place of its content.
func (x *xmlMasker) end(name string) {
	if x.secretDepth == 0 {
		return
	}
	x.secretDepth--
	if x.secretDepth == 0 {
		x.masked.WriteString(x.hide(x.where+"<"+name, x.secret.String()))
		x.secret.Reset()
	}
}

// token returns a token that is not within a hidden element. It keeps the spelling if there is nothing to hide.
func (x *xmlMasker) token(token xml.Token, spelling string) string {
	switch t := token.(type) {
	case xml.StartElement:
		return x.start(t, spelling)
	case xml.CharData:
		if shown := x.text(x.where, string(t)); shown != string(t) {
			return escapeXML(shown)
		}
	case xml.Comment:
		return "<!--" + x.text(x.where, string(t)) + "-->"
	case xml.ProcInst:
		if t.Target != "xml" {
			return "<?" + t.Target + " " + x.hide(x.where, string(t.Inst)) + "?>"
		}
	case xml.Directive:
		if strings.Contains(string(t), "[") { // declarations of entities and elements
			return "<!" + x.hide(x.where, string(t)) + ">"
		}
		return "<!" + x.text(x.where, string(t)) + ">"
	}
	return spelling
}

func (x *xmlMasker) start(e xml.StartElement, spelling string) string {
	isPair := namesPair(e)
	before := x.count
	var tag strings.Builder
	tag.WriteString("<" + qualified(e.Name))
	for _, a := range e.Attr {
		where := x.where + "<" + e.Name.Local + " " + a.Name.Local
		value := ""
		if secret.Is(a.Name.Local) || isPair && !namesValue(a) {
			value = x.credential(where, a.Value)
		} else {
			value = x.text(where, a.Value)
		}
		tag.WriteString(" " + qualified(a.Name) + `="` + escapeXML(value) + `"`)
	}
	switch {
	case x.count == before:
		return spelling
	case strings.HasSuffix(spelling, "/>"):
		return tag.String() + "/>"
	}
	return tag.String() + ">"
}

// namesPair reports whether an element names a secret in an attribute, as in <add key="password" value="x"/>.
func namesPair(e xml.StartElement) bool {
	return slices.ContainsFunc(e.Attr, func(a xml.Attr) bool { return namesValue(a) && secret.Is(a.Value) })
}

// namesValue reports whether an attribute can be the name of a value in another one.
func namesValue(a xml.Attr) bool {
	return strings.EqualFold(a.Name.Local, "name") || strings.EqualFold(a.Name.Local, "key")
}

// qualified returns a name as it is written, with its prefix.
func qualified(n xml.Name) string {
	if n.Space == "" {
		return n.Local
	}
	return n.Space + ":" + n.Local
}

func escapeXML(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder accepts everything
	return b.String()
}
