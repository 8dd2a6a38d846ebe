package edit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestJQ checks that unchanged parts keep their bytes, their order and their digits.
func TestJQ(t *testing.T) {
	const content = `{"z":1,"asyncCaller":1, ` +
		`"call":{"url":"http://h/","json":{"big":12345678901234567890,"b":1.0,"a":"\u00e9","e":1e400,` +
		`"half":"\ud800"}},"list":[{"b":1.0, "a":2}, {"c":3}],"a":null}`
	tests := map[string]struct{ expression, old, new string }{
		"nothing":          {`.`, ``, ``},
		"nothing_much":     {`.call.url |= .`, ``, ``},
		"one_member":       {`.call.url = "http://x/"`, `http://h/`, `http://x/`},
		"new_member":       {`.call.method = "PUT"`, `"\ud800"}`, `"\ud800"},"method":"PUT"`},
		"new_in_order":     {`.y = 1 | .b = 2`, `"a":null`, `"a":null,"b":2,"y":1`},
		"delete":           {`del(.z)`, `"z":1,`, ``},
		"within_a_body":    {`.call.json.b += 1`, `"b":1.0,"a"`, `"b":2,"a"`},
		"within_an_array":  {`.list[1].c = 4`, `[{"b":1.0, "a":2}, {"c":3}]`, `[{"b":1.0, "a":2},{"c":4}]`},
		"longer_array":     {`.list += [5]`, `[{"b":1.0, "a":2}, {"c":3}]`, `[{"b":1.0, "a":2},{"c":3},5]`},
		"shorter_array":    {`.list |= .[:1]`, `[{"b":1.0, "a":2}, {"c":3}]`, `[{"b":1.0, "a":2}]`},
		"big_number":       {`.call.json.big += 1`, `12345678901234567890`, `12345678901234567891`},
		"moved":            {`.z = .call.json.big`, `"z":1`, `"z":12345678901234567890`},
		"other_kind":       {`.list = "<é>"`, `[{"b":1.0, "a":2}, {"c":3}]`, `"<é>"`},
		"null_to_a_value":  {`.a = {}`, `"a":null`, `"a":{}`},
		"environment_none": {`.a = (env | length)`, `"a":null`, `"a":0`},
		"env_none":         {`.a = ($ENV.PATH)`, ``, ``},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := flags(t, "--jq", test.expression).Apply(t.Context(), []byte(content))
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(content, test.old, test.new, 1)
			if test.old != test.new {
				want = strings.Replace(want, `1, "call"`, `1,"call"`, 1) // white space beside what has changed
			}
			if string(got) != want {
				t.Errorf("got\n%s, want\n%s", got, want)
			}
		})
	}
}

// TestJQOnAmbiguousJSON checks that jq resolves duplicate names only in objects that the expression changes.
func TestJQOnAmbiguousJSON(t *testing.T) {
	const content = `{"asyncCaller":1,"o":{"a":1,"a":2},"p":{"a":1,"a":2}}`
	got, err := flags(t, "--jq", `.o.b = 3`).Apply(t.Context(), []byte(content))
	if want := `{"asyncCaller":1,"o":{"a":2,"b":3},"p":{"a":1,"a":2}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestJQFails(t *testing.T) {
	const password = "hunter2"
	content := `{"asyncCaller":1,"a":"` + password + `","o":{"` + password + `":1}}`
	tests := map[string]struct{ expression, want string }{
		"nothing":        {`empty`, "has no result"},
		"two":            {`., .`, "more than one result"},
		"one_and_null":   {`., null`, "more than one result"},
		"null":           {`null`, "the type null"},
		"array":          {`[.]`, "the type array"},
		"string":         {`.a`, "the type string"},
		"iterate":        {`.a[]`, "cannot iterate over"},
		"index":          {`.a.b`, "expected an object but got"},
		"add":            {`.o + .a`, "cannot add"},
		"function":       {`.a | split(1)`, "split"},
		"applied":        {`.a | fromjson`, "fromjson"},
		"divide":         {`{a: ((.a|length) / 0)}`, "cannot divide"},
		"error":          {`error(.a)`, "raises an error"},
		"halt":           {`.a | halt_error`, "raises an error"},
		"second_fails":   {`., error(.a)`, "raises an error"},
		"key":            {`{(.o): 1}`, "object key"},
		"too_much":       {`reduce range(40) as $i ({}; {a: ., b: .})`, "larger than any message"},
		"too_long":       {`.b = "x" * 2000000`, "larger than any message"},
		"too_large":      {`.b = reduce range(24) as $i (2; . * .)`, "larger than any message"},
		"too_deep":       {`.b = reduce range(20000) as $i (0; [.])`, "larger than any message"},
		"format_unknown": {`.b = ([.o]|@csv)`, "@csv cannot format an array including"},
		"path":           {`getpath(["a","` + password + `"])`, "fails on this message: getpath"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := flags(t, "--jq", test.expression).Apply(t.Context(), []byte(content))
			if err == nil {
				t.Fatalf("made %.300s", got)
			}
			if !strings.HasPrefix(err.Error(), "--jq: ") || !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), password) {
				t.Errorf("got %q, want %q", err, test.want)
			}
		})
	}
}

// TestJQEnds checks that an endless expression is stopped, before or after its first result.
func TestJQEnds(t *testing.T) {
	for name, expression := range map[string]string{
		"before": `last(repeat(.))`, "behind": `., (repeat(.) | select(false))`,
		"range": `first(range(1e18) | select(. < 0))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each takes all of its two seconds
			got, err := flags(t, "--jq", expression).Apply(t.Context(), []byte(`{"asyncCaller":1}`))
			if err == nil || !strings.Contains(err.Error(), "did not finish within 2s") {
				t.Errorf("got %.100s, %v", got, err)
			}
		})
	}
}

// TestJQCancelled checks that the caller's context stops an expression and is the reported reason.
func TestJQCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cancel()
		_, err := flags(t, "--jq", `last(repeat(.))`).Apply(ctx, []byte(`{"asyncCaller":1}`))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
