package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
)

// FuzzAppendString checks that encoding/json reads the string back as the same text.
func FuzzAppendString(f *testing.F) {
	for _, text := range []string{
		"", "a", "a~ b", `"`, `\`, "é", "<&>", "\x00\x1f\x7f", "\u2028", "\xff",
		"😀", strings.Repeat("x", 300),
	} {
		f.Add("", text)
		f.Add(`{"a":`, text)
	}
	f.Fuzz(func(t *testing.T, before, text string) {
		got := string(strictjson.AppendString([]byte(before), text))
		literal, ok := strings.CutPrefix(got, before)
		var read string
		if err := json.Unmarshal([]byte(literal), &read); !ok || err != nil || read != asJSON(t, text) {
			t.Errorf("%q after %q is %q, which reads as %q: %v", text, before, got, read, err)
		}
		if strings.ContainsAny(literal, "\n\r") {
			t.Errorf("%q holds a line break", literal)
		}
	})
}

// asJSON returns the text after a round trip through encoding/json, which replaces each byte that is not UTF-8 by
// U+FFFD.
func asJSON(t *testing.T, text string) (read string) {
	t.Helper()
	written, err := json.Marshal(text)
	if err == nil {
		err = json.Unmarshal(written, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// TestLineTimes checks that a line has only times that a reader takes for one.
func TestLineTimes(t *testing.T) {
	noon := time.Date(2026, 1, 31, 13, 0, 0, 500_000_000, time.FixedZone("CET", 3600))
	for want, at := range map[string]any{
		`"2026-01-31T12:00:00.5Z"`: noon,
		`{"at":null}`:              map[string]time.Time{"at": {}},
		`null`:                     time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC),
		`[null]`:                   []*time.Time{nil},
		`"a<b"`:                    "a<b",
	} {
		if got, err := strictjson.Line(at); err != nil || string(got) != want+"\n" {
			t.Errorf("%v: %s, %v, want %s", at, got, err, want)
		}
	}
}
