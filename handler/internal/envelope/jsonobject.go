package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/strictjson"
)

var null = json.RawMessage("null")

// object writes a JSON object member by member, so that what came stays byte for byte.
type object struct{ bytes.Buffer }

func newObject() *object {
	w := &object{}
	w.WriteByte('{')
	return w
}

func (w *object) raw(name string, value json.RawMessage) {
	if w.Len() > 1 {
		w.WriteByte(',')
	}
	w.Write(strictjson.AppendString(w.AvailableBuffer(), name))
	w.WriteByte(':')
	w.Write(value)
}

func (w *object) text(name, value string) { w.raw(name, quote(value)) }

// time leaves out a zero time. Milliseconds, because a trail entry is not worth more bytes.
func (w *object) time(name string, t time.Time) {
	if !t.IsZero() {
		w.raw(name, quote(t.UTC().Format("2006-01-02T15:04:05.999Z07:00")))
	}
}

func (w *object) end() []byte {
	w.WriteByte('}')
	return w.Bytes()
}

func quote(text string) []byte { return strictjson.AppendString(nil, text) }

// marshal encodes a value that always can be, without the escapes that only HTML needs.
func marshal(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// clip shortens a text to at most limit bytes, at a character's boundary.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
