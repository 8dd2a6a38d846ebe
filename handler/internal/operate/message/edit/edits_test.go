package edit_test

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/message/edit"
)

// TestEditsInOrder checks that each edit sees the result of the one before.
func TestEditsInOrder(t *testing.T) {
	edits := flags(t,
		"--set-header", "X-A: first", "--set", "call.headers.X-A=second", "--set", "call.url=http://a.example/set",
		"--replace-host", "a.example=b.example", "--jq", `.call.url += "/" | .call.headers["X-A"] += " third"`,
		"--replace-host", "b.example=c.example", "--set-header", "X-B: 1", "--delete-header", "X-B")
	got, err := edits.Apply(t.Context(), []byte(`{"asyncCaller":1,"call":{}}`))
	const want = `{"asyncCaller":1,"call":{"headers":{"X-A":"second third"},"url":"http://c.example/set/"}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// TestFlagsRefuse checks that the error of an invalid argument quotes no value.
func TestFlagsRefuse(t *testing.T) {
	const password = "hunter2"
	tests := map[string]struct{ flag, argument string }{
		"set_no_value":        {"--set", password},
		"set_no_path":         {"--set", "=" + password},
		"set_empty_name":      {"--set", "call..url=" + password},
		"set_no_header":       {"--set", "call.headers.=" + password},
		"set_bad_header":      {"--set", "call.headers.a b=" + password},
		"set_path_not_utf8":   {"--set", "a\xff=" + password},
		"set_value_not_utf8":  {"--set", "call.body=\xff" + password},
		"set_too_deep":        {"--set", strings.Repeat("a.", 40) + "a=" + password},
		"header_no_colon":     {"--set-header", "Authorization " + password},
		"header_two_lines":    {"--set-header", "X-A: 1\r\nX-B: " + password},
		"header_no_name":      {"--set-header", ": " + password},
		"header_not_utf8":     {"--set-header", "X-A: \xff" + password},
		"delete_with_value":   {"--delete-header", "X-A: " + password},
		"host_no_new":         {"--replace-host", "old.example"},
		"host_empty":          {"--replace-host", "=new.example"},
		"host_empty_new":      {"--replace-host", "old.example="},
		"host_with_path":      {"--replace-host", "old.example=new.example/" + password},
		"host_with_user":      {"--replace-host", "old.example=" + password + "@new.example"},
		"host_with_scheme":    {"--replace-host", "https://old.example=new.example"},
		"host_other_scheme":   {"--replace-host", "old.example=ftp://new.example"},
		"host_bad_port":       {"--replace-host", "old.example=new.example:99999"},
		"jq_not_jq":           {"--jq", `.a = "` + password + `" )`},
		"jq_unknown_function": {"--jq", `frobnicate("` + password + `")`},
		"jq_module":           {"--jq", `import "` + password + `" as a; .`},
		"jq_input":            {"--jq", `input | "` + password + `"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := addFlag(&edit.Edits{}, test.flag, test.argument)
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), password) {
				t.Errorf("%q quotes the value", err)
			}
		})
	}
}
