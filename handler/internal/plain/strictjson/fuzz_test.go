package strictjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/plain/strictjson"
)

// FuzzObject compares Object with encoding/json: both accept the same objects, except for duplicate names and half
// surrogates, with the same members; and the members form the same object again.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { "a" : 1 , "b":[ 2, {"c":"}"} ]}`, `{"a":1,"a":2}`, `{"\u0061":"\ud83d\ude00"}`, `{"":""}`,
		`{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `[{"a":1}]`, `{"a":1}x`, `{"a":[[[[`, "\ufeff{}",
		`{"A":null,"a":-1.5E+3}`,
		`{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`, `{"a":.5}`, `{"a":+1}`, `{"a":nul}`, `{"a":truee}`, `{"a":"\x"}`,
		`{"a":"\u12G4"}`,
		`{"a":"\uD83D"}`, "{\"a\":\"\n\"}", "{\"a\":\"\x7f\"}", `{"a":"\u0000"}`, `{"a":1,}`, `{,}`, `{"a" 1}`,
		`{"a":[1 2]}`, `{"a":[1,]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		members, err := strictjson.Object(text)
		if !bytes.Equal(before, text) {
			t.Fatal("the text was changed")
		}
		text = bytes.TrimPrefix(text, []byte("\ufeff")) // which encoding/json refuses
		if err != nil {
			var reference map[string]json.RawMessage
			if utf8.Valid(text) && json.Unmarshal(text, &reference) == nil && reference != nil &&
				!strings.Contains(err.Error(), "appears twice") && !strings.Contains(err.Error(), "surrogate") {
				t.Errorf("encoding/json accepts it: %v", err)
			}
			return
		}
		var reference map[string]json.RawMessage
		if err := json.Unmarshal(text, &reference); err != nil {
			t.Fatalf("encoding/json does not accept it: %v", err)
		}
		if len(reference) != len(members) {
			t.Fatalf("got %d members, encoding/json %d", len(members), len(reference))
		}
		for _, m := range members {
			if string(reference[m.Name]) != string(m.Value) {
				t.Errorf("%q: got %s, encoding/json %s", m.Name, m.Value, reference[m.Name])
			}
		}
		again, err := strictjson.Object(object(t, members))
		if err != nil {
			t.Fatalf("the members, written again: %v", err)
		}
		if diff := cmp.Diff(pairs(members), pairs(again)); diff != "" {
			t.Errorf("the members, written again (-want +got):\n%s", diff)
		}
	})
}

// object writes an object with these members.
func object(t *testing.T, members []strictjson.Member) []byte {
	t.Helper()
	text := []byte("{")
	for i, m := range members {
		if i > 0 {
			text = append(text, ',')
		}
		name, err := json.Marshal(m.Name)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(append(text, name...), ':'), m.Value...)
	}
	return append(text, '}')
}

// FuzzValues checks the readers of single values with any valid value, and that no bytes make them panic.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{
		`1`, `-1`, `-0`, `1e3`, `1e999`, `"90s"`, `"-1h"`, `"1d12h"`, `"106750d23h"`, `"-0d1h"`,
		`"\ud800"`, `"\\ufffd"`, `"2026-01-31T12:00:00+14:00"`,
		`[1,"a",[]]`, `{"a":{}}`, `null`, `true`, ``, "\xff", `"`, `"a`, `"\`, `[`, `{"a"`, ` "a" `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		_, _ = strictjson.Object(value)
		_, _ = strictjson.Elements(value)
		_, _ = strictjson.Depth(value)
		_, _ = strictjson.String(value)
		_, _ = strictjson.Duration(value)
		_, _ = strictjson.Int(value, 0, 1)
		members, err := strictjson.Object(append(append([]byte(`{"v":`), value...), '}'))
		if err != nil || len(members) != 1 {
			return
		}
		value = members[0].Value
		if text, err := strictjson.String(value); err == nil {
			var reference string
			if err := json.Unmarshal(value, &reference); err != nil || text != reference {
				t.Errorf("String: got %q, encoding/json %q, %v", text, reference, err)
			}
		}
		if n, err := strictjson.Int(value, -5, 1_000_000); err == nil && (n < -5 || n > 1_000_000) {
			t.Errorf("Int: got %d, outside its bounds", n)
		}
		if n, err := strictjson.Number(value); err == nil {
			var reference float64
			if err := json.Unmarshal(value, &reference); err != nil || n != reference {
				t.Errorf("Number: got %v, encoding/json %v, %v", n, reference, err)
			}
		}
		if d, err := strictjson.Duration(value); err == nil && d < 0 {
			t.Errorf("Duration: %v is negative", d)
		}
		if at, err := strictjson.Time(value); err == nil &&
			(at.Year() < 1 || at.Year() > 9999 || at.Location() != time.UTC) {
			t.Errorf("Time: %v cannot be written as RFC 3339 in UTC", at)
		}
		if elements, err := strictjson.Elements(value); err == nil {
			var reference []json.RawMessage
			if err := json.Unmarshal(value, &reference); err != nil || len(reference) != len(elements) {
				t.Fatalf("Elements: got %d, encoding/json %d, %v", len(elements), len(reference), err)
			}
			for i := range elements {
				if !bytes.Equal(elements[i], reference[i]) {
					t.Errorf("Elements[%d]: got %s, encoding/json %s", i, elements[i], reference[i])
				}
			}
		}
	})
}
