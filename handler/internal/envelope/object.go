package envelope

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/strictjson"
)

var null = json.RawMessage("null")

// object writes a JSON object member by member, so that values keep their bytes.
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

func (w *object) number(name string, n int) { w.raw(name, strconv.AppendInt(nil, int64(n), 10)) }

// time writes a time to the millisecond. It leaves out a zero time.
func (w *object) time(name string, t time.Time) {
	if !t.IsZero() {
		w.text(name, t.UTC().Format("2006-01-02T15:04:05.999Z07:00"))
	}
}

func (w *object) end() []byte {
	w.WriteByte('}')
	return w.Bytes()
}

func quote(text string) []byte { return strictjson.AppendString(nil, text) }

// clip shortens a text to at most limit bytes, at the boundary of a character.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
