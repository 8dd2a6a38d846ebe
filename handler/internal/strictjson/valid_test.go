package strictjson

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzValid: what is valid JSON, and what a string says, is as encoding/json has it.
func FuzzValid(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, ` {"a" : [1, -0, 0.5, 1e9, 1E+2, 12.5e-3] , "b":{"c":null}} `, `"\u00e9\ud83d\ude00\/\b"`, `true`, `false`, `null`,
		``, ` `, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{a:1}`, `[1,]`, `[,]`, `[1 2]`, `[`, `]`,
		`01`, `-`, `1.`, `.5`, `1e`, `1e+`, `+1`, `0x1`, `1.e5`, `--1`, `nul`, `tru`, `nulll`, `NaN`,
		`"`, `"\`, `"\x"`, `"\u12"`, `"\u12G4"`, `"\uD83D"`, `"\ude00\ud83d"`, "\"\n\"", "\"\x7f\"", "\"\xff\"", `"a"b`, `{"a":1}}`, `"\u0000"`,
		`"12345678`, `"1234567"`, `"12345678\n"`, "\"1234567\x1f\"", "\"" + strings.Repeat("é", 20) + "\x1f" + strings.Repeat("\x80", 20) + "\"", "\"é1234567\x00\"", "\"\x80\xa2\xdc\x9f\"", `"1234\"678\\"`,
		strings.Repeat("[", 10000) + strings.Repeat("]", 10000), strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
		strings.Repeat(`{"a":`, 10000) + "1" + strings.Repeat("}", 10000), strings.Repeat(`{"a":`, 10001) + "1" + strings.Repeat("}", 10001),
	} {
		f.Add([]byte(text))
	}
	for length := range 80 { // around the widths in which strings are looked at
		for _, end := range []string{``, `\"`, `\`, "\x1f", " ", "é", "\x7f", "\x9f", "!", "]"} {
			f.Add([]byte(`"` + strings.Repeat("a", length) + end + `"`))
			f.Add([]byte(`["` + strings.Repeat("a", length) + end + `","` + strings.Repeat("b", 20) + `"]`))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := valid(text), json.Valid(text); got != want {
			t.Errorf("valid %v, encoding/json says %v: %q", got, want, text)
		}
		got, ok := AppendUnquoted(nil, text)
		var want string
		if !ok {
			if json.Unmarshal(text, &want) == nil && utf8.Valid(text) && len(text) > 0 && text[0] == '"' && text[len(text)-1] == '"' && !holdsHalfPair(text) {
				t.Errorf("not unquoted: %q", text)
			}
			return
		}
		if err := json.Unmarshal(text, &want); err != nil || string(got) != want {
			t.Errorf("unquoted as %q, encoding/json says %q, %v", got, want, err)
		}
	})
}
