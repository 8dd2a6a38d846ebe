package strictjson_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/plain/strictjson"
)

// pair is a member in a form that is readable in a test's output.
type pair struct{ Name, Value string }

func pairs(members []strictjson.Member) []pair {
	var list []pair
	for _, m := range members {
		list = append(list, pair{m.Name, string(m.Value)})
	}
	return list
}

func TestObject(t *testing.T) {
	tests := map[string]struct {
		text string
		want []pair
	}{
		"empty":            {`{}`, nil},
		"space_everywhere": {" \t\r\n{ \n\"a\" \t: 1 , \"b\":\r\n2 } \n\t\r ", []pair{{"a", "1"}, {"b", "2"}}},
		"order_kept":       {`{"z":1,"a":2,"m":3}`, []pair{{"z", "1"}, {"a", "2"}, {"m", "3"}}},
		"case_distinct":    {`{"call":1,"Call":2,"CALL":3}`, []pair{{"call", "1"}, {"Call", "2"}, {"CALL", "3"}}},
		"numbers_as_written": {
			`{"a":1.50,"b":-0,"c":1E+2,"d":123456789012345678901234567890}`,
			[]pair{{"a", "1.50"}, {"b", "-0"}, {"c", "1E+2"}, {"d", "123456789012345678901234567890"}},
		},
		"space_inside_values_kept": {
			`{"o":{ "x" : [ 1 , 2 ] } ,"s":" a "}`,
			[]pair{{"o", `{ "x" : [ 1 , 2 ] }`}, {"s", `" a "`}},
		},
		"escapes_kept_in_values": {`{"a":"\u00e9\/\"\\","b":"é/"}`, []pair{{"a", `"\u00e9\/\"\\"`}, {"b", `"é/"`}}},
		"escapes_read_in_names":  {`{"\u00e9\"\\":true}`, []pair{{`é"\`, "true"}}},
		"brackets_in_strings": {
			`{"a":"}]{[","b":["}","\"]"],"c":{"}":"{"}}`,
			[]pair{{"a", `"}]{["`}, {"b", `["}","\"]"]`}, {"c", `{"}":"{"}`}},
		},
		"literals":          {`{"t":true,"f":false,"n":null}`, []pair{{"t", "true"}, {"f", "false"}, {"n", "null"}}},
		"empty_name":        {`{"":1}`, []pair{{"", "1"}}},
		"nested_duplicates": {`{"a":{"x":1,"x":2}}`, []pair{{"a", `{"x":1,"x":2}`}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			members, err := strictjson.Object([]byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, pairs(members)); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

// A value shares the memory of the text, so appending to it must not overwrite the text after it.
func TestGrownValueLeavesTheTextAlone(t *testing.T) {
	const original = `{"a":1,"b":[2,3]}`
	text := []byte(original)
	members, err := strictjson.Object(text)
	if err != nil {
		t.Fatal(err)
	}
	elements, err := strictjson.Elements(members[1].Value)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(members[0].Value, 'X')
	_ = append(elements[0], 'X')
	if string(text) != original {
		t.Errorf("the text became %s", text)
	}
}

func TestSyntaxErrorPosition(t *testing.T) {
	tests := map[string]struct {
		text         string
		line, column int
		problem      string
	}{
		"empty":                  {"", 1, 1, "unexpected end"},
		"trailing_comma":         {`{"a":1,}`, 1, 7, "','"},
		"missing_comma":          {"{\"a\":1\n\"b\":2}", 2, 1, `'"'`},
		"single_quotes":          {`{'a':1}`, 1, 2, "start of value"},
		"bad_literal":            {"{\n  \"a\": trua\n}", 2, 11, "'a'"},
		"third_line":             {"{\n\n  x", 3, 3, "'x'"},
		"windows_line_ends":      {"{\r\n\"a\":x}", 2, 5, "'x'"},
		"leading_zero":           {`{"a":01}`, 1, 7, "'1'"},
		"not_a_number":           {`{"a":NaN}`, 1, 6, "'N'"},
		"comment":                {`{"a":1 /* one */}`, 1, 8, "'/'"},
		"bad_escape":             {`{"a":"\x"}`, 1, 7, "escape"},
		"line_break_in_string":   {"{\"a\":\"b\nc\"}", 1, 8, "string"},
		"text_after_object":      {"{\"a\":1}\nmore", 2, 1, "after top-level value"},
		"second_object":          {`{} {}`, 1, 4, "after top-level value"},
		"two_byte_order_marks":   {"\ufeff\ufeff{}", 1, 1, "invalid character"},
		"byte_order_mark_later":  {"{}\n\ufeff", 2, 1, "after top-level value"},
		"byte_order_mark_only":   {"\ufeff", 1, 1, "unexpected end"},
		"after_byte_order_mark":  {"\ufeff{\"a\":1,}", 1, 7, "','"},
		"columns_count_bytes":    {`{"é":x}`, 1, 7, "'x'"},
		"invalid_utf8_in_value":  {"{\"a\":\"\xff\"}", 1, 7, "UTF-8"},
		"invalid_utf8_in_name":   {"{\n\"\xc3\":1}", 2, 2, "UTF-8"},
		"invalid_utf8_surrogate": {"{\"a\":\n\n\"x\xed\xa0\x80\"}", 3, 3, "UTF-8"},
		"invalid_utf8_overlong":  {"{\"a\":\"\xc0\xaf\"}", 1, 7, "UTF-8"},
		"invalid_utf8_cut":       {"{\"a\":\"é\xe2\x82\"}", 1, 9, "UTF-8"},
		"invalid_utf8_outside":   {"{}\n\x80", 2, 1, "UTF-8"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := strictjson.Object([]byte(test.text))
			if err == nil {
				t.Fatal("want a syntax error")
			}
			where := fmt.Sprintf("not JSON: line %d, column %d: ", test.line, test.column)
			if problem, ok := strings.CutPrefix(err.Error(), where); !ok || !strings.Contains(problem, test.problem) {
				t.Errorf("got %v, want %s and %q", err, where, test.problem)
			}
		})
	}
}

// TestByteOrderMark checks that a mark before a text changes nothing, and that UTF-16 is named.
func TestByteOrderMark(t *testing.T) {
	members, err := strictjson.Object([]byte("\ufeff \n{\"a\": {\"b\":1}}"))
	if err != nil || len(members) != 1 || string(members[0].Value) != `{"b":1}` {
		t.Errorf("members %v, error %v", members, err)
	}
	elements, err := strictjson.Elements([]byte("\ufeff[1, 2]"))
	if err != nil || len(elements) != 2 || string(elements[1]) != "2" {
		t.Errorf("elements %s, error %v", elements, err)
	}
	if depth, err := strictjson.Depth([]byte("\ufeff[[]]")); depth != 2 || err != nil {
		t.Errorf("depth %d, error %v", depth, err)
	}
	if _, err := strictjson.Object([]byte("\ufeff[]")); err == nil || err.Error() != "want an object, not an array" {
		t.Errorf("error %v", err)
	}
	for _, text := range []string{"{\x00}\x00", "\xff\xfe{\x00}\x00", "\x00{\x00}", "\xfe\xff\x00{\x00}"} {
		_, err := strictjson.Object([]byte(text))
		if err == nil || err.Error() != "the text is UTF-16: save it as UTF-8" {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestObjectRefusesTruncatedText(t *testing.T) {
	const text = `{"name":["v\"",{"x":-1.5e+3}],"é":null}`
	for length := range text {
		_, err := strictjson.Object([]byte(text[:length]))
		if err == nil || !strings.HasPrefix(err.Error(), "not JSON: ") {
			t.Errorf("%s: got %v, want a syntax error", text[:length], err)
		}
	}
}

func TestObjectRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"array":               {`[1]`, "want an object, not an array"},
		"string":              {`"x"`, "want an object, not a string"},
		"number":              {` -1 `, "want an object, not a number"},
		"true":                {`true`, "want an object, not a boolean"},
		"false":               {`false`, "want an object, not a boolean"},
		"null":                {`null`, "want an object, not null"},
		"duplicate":           {`{"url":1,"x":2,"url":1}`, "url: appears twice"},
		"duplicate_by_escape": {`{"url":1,"\u0075rl":2}`, "url: appears twice"},
		"duplicate_clipped": {
			`{"` + strings.Repeat("n", 500) + `":1,"` + strings.Repeat("n", 500) + `":1}`,
			strings.Repeat("n", 40) + "…: appears twice",
		},
		"duplicate_printable":     {`{"a\u001b[2J\nb":1,"a\u001b[2J\nb":1}`, `a…: appears twice`},
		"half_surrogate_in_name":  {`{"\ud800":1}`, "half of a surrogate pair"},
		"other_half_in_name":      {`{"x\udfff":1}`, "half of a surrogate pair"},
		"halves_in_wrong_order":   {`{"\ude00\ud83d":1}`, "half of a surrogate pair"},
		"half_beside_replacement": {`{"\ufffd\ud800":1}`, "half of a surrogate pair"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := strictjson.Object([]byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// Deep nesting must not exhaust the stack.
func TestObjectDeepNesting(t *testing.T) {
	const depth = 100_000
	open, shut := strings.Repeat("[", depth), strings.Repeat("]", depth)
	tests := map[string]string{
		"arrays":           `{"a":` + open + shut + `}`,
		"arrays_left_open": `{"a":` + open,
		"brackets_only":    open,
		"objects":          strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := strictjson.Object([]byte(text))
			if err == nil || !strings.HasPrefix(err.Error(), "not JSON: ") {
				t.Errorf("got %v, want a syntax error", err)
			}
		})
	}
	t.Run("a_thousand_are_fine", func(t *testing.T) {
		value := open[:1000] + shut[:1000]
		members, err := strictjson.Object([]byte(`{"a":` + value + `,"b":1}`))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]pair{{"a", value}, {"b", "1"}}, pairs(members)); diff != "" {
			t.Errorf("members (-want +got):\n%s", diff)
		}
	})
}

func TestElements(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []string
	}{
		"empty":       {`[]`, nil},
		"empty_space": {"[ \n]", nil},
		"mixed": {
			`[ 1 ,"a,]", [2,[3]],{"x":[4]} ,null,true]`,
			[]string{`1`, `"a,]"`, `[2,[3]]`, `{"x":[4]}`, `null`, `true`},
		},
		"single": {`[1.50]`, []string{`1.50`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			elements, err := strictjson.Elements([]byte(test.value))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range elements {
				got = append(got, string(e))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("elements (-want +got):\n%s", diff)
			}
		})
	}
	for _, value := range []string{`{}`, `"[]"`, `1`, `true`, `null`} {
		if _, err := strictjson.Elements([]byte(value)); err == nil ||
			!strings.Contains(err.Error(), "want an array, not ") {
			t.Errorf("%s: got %v, want an error about the kind", value, err)
		}
	}
}

func TestIn(t *testing.T) {
	cause := errors.New("want a string")
	tests := map[string]struct {
		err  error
		want string
	}{
		"one_member": {strictjson.In("url", cause), "url: want a string"},
		"nested":     {strictjson.In("call", strictjson.In("url", cause)), "call.url: want a string"},
		"element":    {strictjson.In("trail", strictjson.In(strictjson.Index(12), cause)), "trail[12]: want a string"},
		"inside_element": {
			strictjson.In("trail", strictjson.In(strictjson.Index(0), strictjson.In("at", cause))),
			"trail[0].at: want a string",
		},
		"inside_object": {
			strictjson.In("headers", strictjson.In("X", strictjson.In(strictjson.Index(1), cause))),
			"headers.X[1]: want a string",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.err.Error() != test.want {
				t.Errorf("got %q, want %q", test.err, test.want)
			}
			if !errors.Is(test.err, cause) {
				t.Error("errors.Is does not find the cause")
			}
		})
	}
	if err := strictjson.In("call", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}
