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
	for _, c := range []struct {
		text string
		want []pair
	}{
		{`{}`, nil},
		{" \t\r\n{ \n\"a\" \t: 1 , \"b\":\r\n2 } \n\t\r ", []pair{{"a", "1"}, {"b", "2"}}},
		{`{"z":1,"a":2,"Z":3}`, []pair{{"z", "1"}, {"a", "2"}, {"Z", "3"}}},
		{`{"a":1.50,"b":-0,"c":1E+2}`, []pair{{"a", "1.50"}, {"b", "-0"}, {"c", "1E+2"}}},
		{`{"o":{ "x" : [ 1 , 2 ] } ,"s":" a "}`, []pair{{"o", `{ "x" : [ 1 , 2 ] }`}, {"s", `" a "`}}},
		{`{"a":"\u00e9\/\"\\","b":"é/"}`, []pair{{"a", `"\u00e9\/\"\\"`}, {"b", `"é/"`}}},
		{`{"\u00e9\"\\":true}`, []pair{{`é"\`, "true"}}},
		{`{"a":"}]{[","b":["}","\"]"]}`, []pair{{"a", `"}]{["`}, {"b", `["}","\"]"]`}}},
		{`{"c":{"}":"{"}}`, []pair{{"c", `{"}":"{"}`}}},
		{`{"t":true,"f":false,"n":null}`, []pair{{"t", "true"}, {"f", "false"}, {"n", "null"}}},
		{`{"":1}`, []pair{{"", "1"}}},
		{`{"a":{"x":1,"x":2}}`, []pair{{"a", `{"x":1,"x":2}`}}},
	} {
		members, err := strictjson.Object([]byte(c.text))
		if diff := cmp.Diff(c.want, pairs(members)); err != nil || diff != "" {
			t.Errorf("%s: %v, members (-want +got):\n%s", c.text, err, diff)
		}
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
	for _, c := range []struct {
		text         string
		line, column int
		problem      string
	}{
		{"", 1, 1, "unexpected end"},
		{`{"a":1,}`, 1, 7, "','"},
		{"{\"a\":1\n\"b\":2}", 2, 1, `'"'`},
		{`{'a':1}`, 1, 2, "start of value"},
		{"{\n  \"a\": trua\n}", 2, 11, "'a'"},
		{"{\r\n\"a\":x}", 2, 5, "'x'"},
		{`{"a":01}`, 1, 7, "'1'"},
		{`{"a":NaN}`, 1, 6, "'N'"},
		{`{"a":1 /* one */}`, 1, 8, "'/'"},
		{`{"a":"\x"}`, 1, 7, "escape"},
		{"{\"a\":\"b\nc\"}", 1, 8, "string"},
		{"{\"a\":1}\nmore", 2, 1, "after top-level value"},
		{`{} {}`, 1, 4, "after top-level value"},
		{"\ufeff\ufeff{}", 1, 1, "invalid character"},
		{"\ufeff", 1, 1, "unexpected end"},
		{"\ufeff{\"a\":1,}", 1, 7, "','"},
		{`{"é":x}`, 1, 7, "'x'"},
		{"{\"a\":\"\xff\"}", 1, 7, "UTF-8"},
		{"{\n\"\xc3\":1}", 2, 2, "UTF-8"},
		{"{\"a\":\n\n\"x\xed\xa0\x80\"}", 3, 3, "UTF-8"},
		{"{\"a\":\"\xc0\xaf\"}", 1, 7, "UTF-8"},
		{"{\"a\":\"é\xe2\x82\"}", 1, 9, "UTF-8"},
		{"{}\n\x80", 2, 1, "UTF-8"},
	} {
		_, err := strictjson.Object([]byte(c.text))
		where := fmt.Sprintf("not JSON: line %d, column %d: ", c.line, c.column)
		wants(t, c.text, err, where)
		wants(t, c.text, err, c.problem)
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
		wants(t, text[:length], err, "not JSON: ")
	}
}

func TestObjectRefuses(t *testing.T) {
	long := `"` + strings.Repeat("n", 500) + `":1`
	for _, c := range []struct{ text, want string }{
		{`[1]`, "want an object, not an array"},
		{`"x"`, "want an object, not a string"},
		{` -1 `, "want an object, not a number"},
		{`false`, "want an object, not a boolean"},
		{`null`, "want an object, not null"},
		{`{"url":1,"x":2,"url":1}`, "url: appears twice"},
		{`{"url":1,"\u0075rl":2}`, "url: appears twice"},
		{`{` + long + `,` + long + `}`, strings.Repeat("n", 40) + "…: appears twice"},
		{`{"a\u001b[2J\nb":1,"a\u001b[2J\nb":1}`, `a…: appears twice`},
		{`{"\ud800":1}`, "half of a surrogate pair"},
		{`{"x\udfff":1}`, "half of a surrogate pair"},
		{`{"\ude00\ud83d":1}`, "half of a surrogate pair"},
		{`{"\ufffd\ud800":1}`, "half of a surrogate pair"},
	} {
		_, err := strictjson.Object([]byte(c.text))
		wants(t, c.text, err, c.want)
	}
}

// Deep nesting must not exhaust the stack.
func TestObjectDeepNesting(t *testing.T) {
	const depth = 100_000
	open, shut := strings.Repeat("[", depth), strings.Repeat("]", depth)
	for _, text := range []string{
		`{"a":` + open + shut + `}`, `{"a":` + open, open,
		strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth),
	} {
		_, err := strictjson.Object([]byte(text))
		wants(t, text, err, "not JSON: ")
	}
	value := open[:1000] + shut[:1000]
	members, err := strictjson.Object([]byte(`{"a":` + value + `,"b":1}`))
	if diff := cmp.Diff([]pair{{"a", value}, {"b", "1"}}, pairs(members)); err != nil || diff != "" {
		t.Errorf("a thousand levels: %v, members (-want +got):\n%s", err, diff)
	}
}

func TestElements(t *testing.T) {
	for value, want := range map[string][]string{
		`[]`: nil, "[ \n]": nil, `[1.50]`: {`1.50`},
		`[ 1 ,"a,]", [2,[3]],{"x":[4]} ,null,true]`: {`1`, `"a,]"`, `[2,[3]]`, `{"x":[4]}`, `null`, `true`},
	} {
		elements, err := strictjson.Elements([]byte(value))
		var got []string
		for _, e := range elements {
			got = append(got, string(e))
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, elements (-want +got):\n%s", value, err, diff)
		}
	}
	for _, value := range []string{`{}`, `"[]"`, `1`, `true`, `null`} {
		_, err := strictjson.Elements([]byte(value))
		wants(t, value, err, "want an array, not ")
	}
}

func TestIn(t *testing.T) {
	cause := errors.New("want a string")
	for want, err := range map[string]error{
		"url: want a string":       strictjson.In("url", cause),
		"call.url: want a string":  strictjson.In("call", strictjson.In("url", cause)),
		"trail[12]: want a string": strictjson.In("trail", strictjson.In(strictjson.Index(12), cause)),
		"trail[0].at: want a string": strictjson.In("trail",
			strictjson.In(strictjson.Index(0), strictjson.In("at", cause))),
	} {
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("got %q, want %q, and the cause in it", err, want)
		}
	}
	if err := strictjson.In("call", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}
