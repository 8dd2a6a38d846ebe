package variable_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

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
	for _, c := range []struct{ content, want, used string }{ // an empty want is the content
		{` { "a" : ["$KEY", "$", "{}", "}", "cost $5"], "b":1.50}`, "", ""},
		{`{"a":"https://${HOST}/${ENV}?x=$y"}`, `{"a":"https://api.test.example/test?x=$y"}`, "ENV HOST"},
		{`{"a":"${ENV}${ENV}"}`, `{"a":"testtest"}`, "ENV"},
		{`{"${HOST}":{"X-${ENV}":1}}`, `{"api.test.example":{"X-test":1}}`, "ENV HOST"},
		{`{"a":[{"b":[null,true,"${ENV}"]}],"c":1e3}`, `{"a":[{"b":[null,true,"test"]}],"c":1e3}`, "ENV"},
		{`{"a":"\u0024{ENV}"}`, `{"a":"test"}`, "ENV"},
		{`{"a":"${INJECTION}"}`, `{"a":"\",\"retry\":\"io"}`, "INJECTION"},
		{`{"a":"x${BRACES}"}`, `{"a":"x${ENV}"}`, "BRACES"},
		{`{"a":"cost $${ENV}, ${REFERENCE}"}`, `{"a":"cost $test, $KEY"}`, "ENV REFERENCE"},
		{`{"a":"${_1}"}`, `{"a":"é €"}`, "_1"},
		{`{"a":"${LONGEST}"}`, `{"a":"` + strings.Repeat("x", 500) + `"}`, "LONGEST"},
		{`{"${ENV}":1,"test":2}`, `{"test":1,"test":2}`, "ENV"}, // for the parser to refuse
		{"\ufeff" + `{"a":"${ENV}"}`, `{"a":"test"}`, "ENV"},
		// No JSON object that the parser accepts.
		{`{"a":"${ENV}"`, "", ""},
		{`["${ENV}"]`, "", ""},
		{`{"a":{"b":"${UNSET}","b":1}}`, "", ""},
		{`{}`, "", ""},
	} {
		got, used, err := environment().Expand([]byte(c.content), variable.Expanded)
		if want := cmp.Or(c.want, c.content); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", c.content, got, err, want)
		}
		if names := strings.Join(slices.Sorted(maps.Keys(used)), " "); names != c.used {
			t.Errorf("%s: variables %s, want %s", c.content, names, c.used)
		}
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
	for _, c := range []struct{ content, want string }{
		{`{"a":{"b":["x","${UNSET}"]}}`, `"a": b[1]: the environment variable UNSET is not set: add it to the app`},
		{`{"${UNSET}.x":{}}`, `"${UNSET}.x": the environment variable UNSET is not set`},
		{`{"a":{"headers":{"X-${UNSET}":""}}}`, `"a": headers: the environment variable UNSET is not set`},
		{`{"a":"${UNSET}"}`, `"a": the environment variable UNSET is not set`},
		{`{"a":{"b":"${ENV"}}`, `"a": b: ` + malformed},
		{`{"a":{"b":"${}"}}`, malformed},
		{`{"a":{"b":"${ ENV }"}}`, malformed},
		{`{"a":{"b":"${ENV:-x}"}}`, malformed},
		{`{"a":{"b":"${1}"}}`, malformed},
		{`{"a":{"b":"${${ENV}}"}}`, malformed},
		{`{"a":{"b":"${` + strings.Repeat("x", 129) + `}"}}`, malformed},
		{`{"a":{"b":"Bearer ${API_TOKEN}"}}`, `the environment variable API_TOKEN has the name of a secret`},
		{`{"a":{"b":"${LOGIN}"}}`, `or targets.json has "$LOGIN", and commands show the values of ${NAME}`},
		{`{"a":{"b":"${REFERENCE}"}}`, `"a": b: begins with $ after ${NAME} is replaced`},
		{`{"a":{"b":"$KEY_${ENV}"}}`, `begins with $ after`},
		{`{"a":{"b":"$${ENV}"}}`, `begins with $ after`},
		{`{"a":"${LINES}"}`, `LINES holds a line break`},
		{`{"a":"${INVISIBLE}"}`, `not printable`},
		{`{"a":"${BYTES}"}`, `not printable`},
		{`{"a":"${LONG}"}`, `LONG has more than 500 bytes`},
	} {
		got, _, err := environment().Expand([]byte(c.content), variable.Expanded)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "C4nary") {
			t.Errorf("%s: got %v, want %s", c.content, err, c.want)
		}
		if string(got) != "{}" {
			t.Errorf("%s: the entry was kept: %s", c.content, got)
		}
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
	if got := variable.Whole([]byte(content)); !slices.Equal(got, []string{"A", "D"}) {
		t.Errorf("names %q", got)
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
