package envelope_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"asynccaller/handler/internal/rules/envelope"
)

func inUTF16(order binary.AppendByteOrder, text string) string {
	var content []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		content = order.AppendUint16(content, unit)
	}
	return string(content)
}

func inGzip(t *testing.T, text string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(text))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

func inJSONString(t *testing.T, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(quoted)
}

var entities = strings.NewReplacer(`"`, "&quot;", "&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&apos;")

// TestWrapping checks that the error names the form of an envelope that is not JSON, and that the envelope inside and
// its request id are found.
func TestWrapping(t *testing.T) {
	const native = `{"asyncCaller": 1, "requestId": "r-1", "call": {"url": "https://t.example/", "body": "å~~>>??'\""}}`
	const nexus = `{"OriginalRequestId":"x","RawRequest":{"Id":"r-1"}}`
	urlSafe := strings.NewReplacer("+", "-", "/", "_").Replace(inBase64(native))
	if !strings.ContainsAny(urlSafe, "-_") {
		t.Fatal("the example has no character of the other alphabet")
	}
	for name, test := range map[string]struct {
		content, inner, want string
	}{
		"base64":           {inBase64(native), native, "base64"},
		"base64_twice":     {inBase64(inBase64(native)), native, "2 layers of base64"},
		"base64_lines":     {inBase64(native)[:40] + "\r\n " + inBase64(native)[40:], native, "base64"},
		"base64_marked":    {"\ufeff" + inBase64(native), native, "base64"},
		"url_safe":         {urlSafe, native, "URL-safe base64"},
		"url_safe_open":    {strings.TrimRight(urlSafe, "="), native, "URL-safe base64"},
		"no_padding":       {strings.TrimRight(inBase64(nexus+" "), "="), nexus + " ", "base64 without padding"},
		"quoted_base64":    {`"` + inBase64(native) + `"`, native, "base64 in a quoted JSON string"},
		"json_string":      {inJSONString(t, native), native, "a quoted JSON string"},
		"base64_of_string": {inBase64(inJSONString(t, native)), native, "a quoted JSON string in base64"},
		"python_base64":    {"b'" + inBase64(native) + "'\n", native, "base64 in a Python bytes literal"},
		"python_json": {
			`b'{"asyncCaller": 1, "requestId": "r-1", "call": {"body": "\xc3\xa5 \'\\"\\n"}}'`,
			`{"asyncCaller": 1, "requestId": "r-1", "call": {"body": "å '\"\n"}}`, "a Python bytes literal",
		},
		"gzip":           {inGzip(t, native), native, "gzip"},
		"gzip_in_base64": {inBase64(inGzip(t, native)), native, "gzip in base64"},
		"utf16le":        {inUTF16(binary.LittleEndian, native), native, "UTF-16"},
		"utf16be":        {inUTF16(binary.BigEndian, native), native, "UTF-16"},
		"utf16_base64":   {inBase64(inUTF16(binary.LittleEndian, native)), native, "UTF-16 in base64"},
		"base64_utf16":   {inUTF16(binary.LittleEndian, inBase64(native)), native, "base64 in UTF-16"},
		"xml_base64":     {"<QueueMessage><MessageText>" + inBase64(native) + "</MessageText></QueueMessage>", native, "base64 in a <QueueMessage> element"},
		"xml_json": {
			"\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<QueueMessage>\n  <MessageText>" +
				entities.Replace(native) + "</MessageText>\n</QueueMessage>\n", native, "a <QueueMessage> element",
		},
		"xml_twice": {
			"<QueueMessage><MessageText>" + entities.Replace(entities.Replace(native)) +
				"</MessageText></QueueMessage>", native, "XML entities in a <QueueMessage> element",
		},
		"entities": {entities.Replace(native), native, "XML entities"},
		"entities_numbers": {
			" " + strings.ReplaceAll(strings.ReplaceAll(nexus, `"`, "&#34;"), "{", "&#x7B;") + "\n", nexus,
			"XML entities",
		},
		"content_object": {`{"$content-type":"application/json","$content":` + native + `}`, native, "a $content object"},
		"content_base64": {`{"$content":"` + inBase64(native) + `","$content-type":"a/b"}`, native, "base64 in a $content object"},
		"content_text":   {`{"$content-type":"text/plain","$content":` + inJSONString(t, native) + `}`, native, "a $content object"},
		"object_inside":  {inBase64(`{"asyncCaller":7,"requestId":"r-1"}`), `{"asyncCaller":7,"requestId":"r-1"}`, "base64"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := envelope.Parse([]byte(test.content))
			want := "an envelope in " + test.want + ", not the envelope itself"
			if err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
			inner, forms := envelope.Unwrap([]byte(test.content))
			if string(inner) != test.inner || forms.String() != test.want {
				t.Errorf("inside %s, in %s", inner, forms)
			}
			if _, id := envelope.Identify([]byte(test.content)); id != "r-1" {
				t.Errorf("request id %q", id)
			}
		})
	}
}

// TestNotWrapped checks what is no envelope in another form: the error is that of the content itself.
func TestNotWrapped(t *testing.T) {
	deep := `{"asyncCaller":1}`
	for range 5 {
		deep = inBase64(deep)
	}
	for name, content := range map[string]string{
		"xml_other_element": "<a><MessageText>" + inBase64(`{"asyncCaller":1}`) + "</MessageText></a>",
		"xml_two_texts":     "<QueueMessage><MessageText>e30=</MessageText><MessageText>e30=</MessageText></QueueMessage>",
		"xml_element_inside": "<QueueMessage><MessageText>{&quot;asyncCaller&quot;:1,&quot;a&quot;:&quot;<b>x</b>&quot;}" +
			"</MessageText></QueueMessage>",
		"xml_after":        "<QueueMessage><MessageText>{&quot;asyncCaller&quot;:1}</MessageText></QueueMessage><a/>",
		"xml_broken":       "<QueueMessage><MessageText>{&quot;asyncCaller&quot;:1}</MessageText>",
		"xml_entity":       `<!DOCTYPE a [<!ENTITY b "x">]><QueueMessage><MessageText>{&quot;asyncCaller&quot;:1,&quot;a&quot;:&quot;&b;&quot;}</MessageText></QueueMessage>`,
		"entities_bare":    "{&quot;asyncCaller&quot;:1,&quot;call&quot;:{&quot;url&quot;:&quot;http://t.example/?a=1&b=2&quot;}}",
		"entities_unknown": "{&quot;asyncCaller&quot;:1,&quot;a&quot;:&quot;&copy;&quot;}",
		"entities_mixed":   `{"asyncCaller":1,&quot;a&quot;:1}`,
		"entities_element": "{&quot;asyncCaller&quot;:1,&quot;a&quot;:&quot;<b/>&quot;}",
		"content_alone":    `{"$content":{"asyncCaller":1}}`,
		"content_more":     `{"$content-type":"a/b","$content":{"asyncCaller":1},"x":1}`,
		"content_null":     `{"$content-type":"a/b","$content":null}`,
		"content_other":    `{"$content-type":"application/xml","$content":"PG9yZGVyIGlkPSI0MiIvPg=="}`,
		"empty":            "", "blank": " \n", "word": "hello", "base64_of_text": inBase64("hello there"),
		"base64_of_object": inBase64(`{"a":1}`), "base64_of_array": inBase64(`[{"asyncCaller":1}]`),
		"array": `[{"asyncCaller":1}]`, "string": `"hello"`, "half_string": `"eyJ`, "quote": `"`, "b_quote": `b'`,
		"python_open": `b'eyJ`, "padding": "====", "percent": "100%", "percents": "%7B%", "html": "{&", "gzip": "\x1f\x8b",
		"five_layers": deep, "envelope_inside": `{"a":"` + inBase64(`{"asyncCaller":1}`) + `"}`,
		"second_object": `{"asyncCaller":1}{}`, "twice": `{"asyncCaller":1,"asyncCaller":1}`,
		"gzip_bomb": inGzip(t, `{"asyncCaller":1,"a":"`+strings.Repeat("x", 1<<20)+`"}`), "utf32": "{\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			inner, forms := envelope.Unwrap([]byte(content))
			if string(inner) != content || forms != nil {
				t.Errorf("%q, in %s", inner, forms)
			}
			_, err := envelope.Parse([]byte(content))
			if _, isWrapped := errors.AsType[*envelope.WrappedError](err); isWrapped || err == nil {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestMarkedEnvelope checks that an envelope may begin with a byte order mark.
func TestMarkedEnvelope(t *testing.T) {
	const content = `{"asyncCaller":1,"requestId":"r-1","call":{"url":"https://t.example/"}}`
	e, err := envelope.Parse([]byte("\ufeff" + content))
	if err != nil || e.RequestID != "r-1" {
		t.Errorf("envelope %+v, error %v", e, err)
	}
}
