package variable_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/plain/variable"
)

// environment has variables of each kind.
func environment() variable.Environment {
	values := map[string]string{
		"HOST": "api.test.example", "ENV": "test", "INJECTION": `","retry":"io`, "BRACES": "${ENV}",
		"REFERENCE": "$KEY", "LINES": "a\nb", "INVISIBLE": "a\u200bb", "BYTES": "a\xff",
		"LONG":    strings.Repeat("x", 501),
		"LONGEST": strings.Repeat("x", 500), "LOGIN": "C4nary", "API_TOKEN": "C4nary", "_1": "é €",
	}
	return variable.Environment{
		Getenv:  func(name string) string { return values[name] },
		Secrets: []string{"LOGIN"},
	}
}

func TestExpand(t *testing.T) {
	tests := map[string]struct {
		content, want string
		used          []string
	}{
		"none":  {` { "a" : ["$KEY", "$", "{}", "}", "cost $5"], "b":1.50}`, "", nil},
		"whole": {`{"a":"${HOST}"}`, `{"a":"api.test.example"}`, []string{"HOST"}},
		"inside": {
			`{"a":"https://${HOST}/${ENV}?x=$y"}`, `{"a":"https://api.test.example/test?x=$y"}`,
			[]string{"ENV", "HOST"},
		},
		"twice": {`{"a":"${ENV}${ENV}"}`, `{"a":"testtest"}`, []string{"ENV"}},
		"name":  {`{"${HOST}":{"X-${ENV}":1}}`, `{"api.test.example":{"X-test":1}}`, []string{"ENV", "HOST"}},
		"deep": {
			`{"a":[{"b":[null,true,"${ENV}"]}],"c":1e3}`, `{"a":[{"b":[null,true,"test"]}],"c":1e3}`, []string{"ENV"},
		},
		"escaped":      {`{"a":"\u0024{ENV}"}`, `{"a":"test"}`, []string{"ENV"}},
		"injection":    {`{"a":"${INJECTION}"}`, `{"a":"\",\"retry\":\"io"}`, []string{"INJECTION"}},
		"once":         {`{"a":"x${BRACES}"}`, `{"a":"x${ENV}"}`, []string{"BRACES"}},
		"dollar":       {`{"a":"cost $${ENV}, ${REFERENCE}"}`, `{"a":"cost $test, $KEY"}`, []string{"ENV", "REFERENCE"}},
		"not_ascii":    {`{"a":"${_1}"}`, `{"a":"é €"}`, []string{"_1"}},
		"longest":      {`{"a":"${LONGEST}"}`, `{"a":"` + strings.Repeat("x", 500) + `"}`, []string{"LONGEST"}},
		"same_names":   {`{"${ENV}":1,"test":2}`, `{"test":1,"test":2}`, []string{"ENV"}}, // for the parser to refuse
		"no_json":      {`{"a":"${ENV}"`, "", nil},
		"no_object":    {`["${ENV}"]`, "", nil},
		"name_twice":   {`{"a":{"b":"${UNSET}","b":1}}`, "", nil},
		"mark":         {"\ufeff" + `{"a":"${ENV}"}`, `{"a":"test"}`, []string{"ENV"}},
		"empty_object": {`{}`, "", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, used, err := environment().Expand([]byte(test.content), variable.Expanded)
			if err != nil {
				t.Fatal(err)
			}
			want := test.want
			if want == "" {
				want = test.content
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.used, slices.Sorted(maps.Keys(used))); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLiteralNames: the names of entries can be fixed, and the names of members are never.
func TestLiteralNames(t *testing.T) {
	got, _, err := environment().Expand([]byte(`{"${ENV}":{"${ENV}":"${ENV}"}}`), variable.Literal)
	if want := `{"${ENV}":{"test":"test"}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestExpandRefuses(t *testing.T) {
	const malformed = "want ${NAME} after ${: letters, digits and _ between the brackets"
	tests := map[string]struct{ content, want string }{
		"unset": {
			`{"a":{"b":["x","${UNSET}"]}}`, `"a": b[1]: the environment variable UNSET is not set: add it to the app`,
		},
		"unset_name": {`{"${UNSET}.x":{}}`, `"${UNSET}.x": the environment variable UNSET is not set`},
		"unset_member": {
			`{"a":{"headers":{"X-${UNSET}":""}}}`, `"a": headers: the environment variable UNSET is not set`,
		},
		"text_of_entry": {`{"a":"${UNSET}"}`, `"a": the environment variable UNSET is not set`},
		"open":          {`{"a":{"b":"${ENV"}}`, `"a": b: ` + malformed},
		"empty":         {`{"a":{"b":"${}"}}`, malformed},
		"space":         {`{"a":{"b":"${ ENV }"}}`, malformed},
		"default":       {`{"a":{"b":"${ENV:-x}"}}`, malformed},
		"digit":         {`{"a":{"b":"${1}"}}`, malformed},
		"nested":        {`{"a":{"b":"${${ENV}}"}}`, malformed},
		"long_name":     {`{"a":{"b":"${` + strings.Repeat("x", 129) + `}"}}`, malformed},
		"secret_by_name": {
			`{"a":{"b":"Bearer ${API_TOKEN}"}}`, `the environment variable API_TOKEN has the name of a secret`,
		},
		"secret_by_use": {
			`{"a":{"b":"${LOGIN}"}}`, `or targets.json has "$LOGIN", and commands show the values of ${NAME}`,
		},
		"reference":   {`{"a":{"b":"${REFERENCE}"}}`, `"a": b: begins with $ after ${NAME} is replaced`},
		"built":       {`{"a":{"b":"$KEY_${ENV}"}}`, `begins with $ after`},
		"built_whole": {`{"a":{"b":"$${ENV}"}}`, `begins with $ after`},
		"lines":       {`{"a":"${LINES}"}`, `LINES holds a line break`},
		"invisible":   {`{"a":"${INVISIBLE}"}`, `not printable`},
		"bytes":       {`{"a":"${BYTES}"}`, `not printable`},
		"long":        {`{"a":"${LONG}"}`, `LONG has more than 500 bytes`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, _, err := environment().Expand([]byte(test.content), variable.Expanded)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "C4nary") {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if string(got) != "{}" {
				t.Errorf("the entry was kept: %s", got)
			}
		})
	}
}

// TestExpandReportsAll: every problem is reported, and the entries without one are kept for their parser.
func TestExpandReportsAll(t *testing.T) {
	const content = `{"a":{"x":"${A}${B}","y":"${C"},"b":{"z":"${ENV}"},"${D}":{}}`
	got, used, err := environment().Expand([]byte(content), variable.Expanded)
	if want := `{"b":{"z":"test"}}`; string(got) != want || used["ENV"] != "test" {
		t.Errorf("got %s, %v, want %s", got, used, want)
	}
	if err == nil {
		t.Fatal("no problem was reported")
	}
	lines := strings.Split(err.Error(), "\n")
	wants := []string{
		`"a": x: the environment variable A `, `"a": x: the environment variable B `, `"a": y: want`, `"${D}": `,
	}
	for i, want := range wants {
		if len(lines) != len(wants) || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d is not about %s:\n%v", i+1, want, err)
		}
	}
}

func TestWhole(t *testing.T) {
	const content = `{"a":{"headers":{"X":["$A","b"],"Y":"$B C"}},
		"b":{"auth":{"oauth2":{"clientSecret":"$D"}}},"c":"${E}"}`
	if diff := cmp.Diff([]string{"A", "D"}, variable.Whole([]byte(content))); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// FuzzExpand checks that a value, whatever its characters, stays within the texts that refer to it: the tokens of the
// JSON are the same but for these texts.
func FuzzExpand(f *testing.F) {
	for _, content := range []string{
		`{"a":"${A}"}`, `{"${A}":{"x":["${A}",1,null]}}`, `{"a":"${A","b":"$A","c":"$${A}"}`, `{"a":"\u0024\u007bA}"}`,
		`{"a":{"${A}":1,"b":"x${A}y${B}"}}`, `["${A}"]`, `{"a":"\ud800${A}","b":"${A}"}`, `{"a":"${API_TOKEN}"}`,
		"{\"a\":\"\xff${A}\"}", `{"a":{"b":"${A}","b":1},"c":"${A}"}`,
	} {
		for _, value := range []string{"test", `"},"x":{"`, `\`, "${A}", "$A", "\x00", "é"} {
			f.Add(content, value)
		}
	}
	f.Fuzz(func(t *testing.T, content, value string) {
		e := variable.Environment{Getenv: func(string) string { return value }}
		got, used, err := e.Expand([]byte(content), variable.Expanded)
		if err != nil {
			return
		}
		if used == nil {
			if string(got) != content {
				t.Errorf("got %q, want it unchanged", got)
			}
			return
		}
		before, after := tokens(t, strings.TrimPrefix(content, "\ufeff")), tokens(t, string(got))
		if len(before) != len(after) {
			t.Fatalf("%q became %q", content, got)
		}
		for i := range before {
			text, isText := before[i].(string)
			if before[i] != after[i] && (!isText || after[i] != replaced(text, value)) {
				t.Errorf("%v became %v", before[i], after[i])
			}
		}
	})
}

// tokens returns the tokens of a JSON text.
func tokens(t *testing.T, text string) (all []json.Token) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, token)
	}
}

// replaced is a text with a value for each variable.
func replaced(text, value string) string {
	parts := strings.Split(text, "${")
	for i, part := range parts[1:] {
		_, rest, _ := strings.Cut(part, "}")
		parts[i+1] = value + rest
	}
	return strings.Join(parts, "")
}
