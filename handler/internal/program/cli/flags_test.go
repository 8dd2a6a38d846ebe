package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTextsInUTF8: no flag that goes into an envelope or an edit takes bytes that would become U+FFFD.
func TestTextsInUTF8(t *testing.T) {
	t.Parallel()
	const latin = "caf\xe9 C4nary"
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("X-Ok: 1\nX-A: "+latin+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	send := []string{"send", "--dry-run", "--url", "https://t.example/"}
	requeue := []string{"calls", "retry", "--state", "poison", "--all", "--yes"}
	for flag, test := range map[string]struct {
		command []string
		value   string
	}{
		"url":          {send, "https://t.example/" + latin},
		"method":       {send, latin},
		"header":       {send, "X-A: " + latin},
		"body":         {send, latin},
		"json-body":    {send, `"` + latin + `"`},
		"callback":     {send, "https://t.example/" + latin},
		"request-id":   {send, latin},
		"retry":        {send, "a" + latin},
		"set":          {requeue, "call.body=" + latin},
		"set-header":   {requeue, "X-A: " + latin},
		"jq":           {requeue, `.call.body = "` + latin + `"`},
		"replace-host": {requeue, "a=" + latin},
		"because":      {[]string{"targets", "pause", "t.example"}, latin},
		"header=@":     {send, "@" + headers},
		"set-header=@": {requeue, "@" + headers},
	} {
		t.Run(flag, func(t *testing.T) {
			name := strings.TrimSuffix(flag, "=@")
			code, printed := mustRefuse(t, append(slices.Clone(test.command), "--"+name, test.value))
			want := "--" + name + ": "
			if name != flag {
				want += headers + ", line 2: "
			}
			if code != exitUsage || !strings.Contains(printed, want+"not UTF-8; `send --body @FILE`") {
				t.Errorf("exit code %d: %s", code, printed)
			}
		})
	}
}

func mustRefuse(t *testing.T, args []string) (code int, printed string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := Env{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr}
	code = Run(t.Context(), append(args, "--app", t.TempDir()), env)
	if stdout.Len() > 0 || strings.Contains(stderr.String(), "C4nary") {
		t.Errorf("printed %s, %s", &stdout, &stderr)
	}
	return code, stderr.String()
}

// TestBrokenJSON: the error says where a JSON text breaks, and recognizes what a shell has made of the quotes.
func TestBrokenJSON(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, at  string
		isOfShell bool
	}{
		"quotes_removed":          {`{id:42}`, "line 1, column 2", true},
		"quotes_of_texts_removed": {`[C4nary]`, "line 1, column 2", true},
		"one_quote_left":          {`{C4nary: O"C4nary}`, "line 1, column 2", false},
		"backslashes":             {`{\"id\":42}`, "line 1, column 2", true},
		"backslashes_and_space":   {`{ \"id\": 42 }`, "line 1, column 3", true},
		"backslashes_in_array":    {`[{\"id\":42}]`, "line 1, column 3", true},
		"quotes_of_cmd":           {`'{id:42}'`, "line 1, column 1", true},
		"cut_off":                 {`{"id":`, "line 1, column 7", false},
		"second_line":             {"{\"id\":\n  C4nary}", "line 2, column 3", false},
		"word":                    {`hello`, "line 1, column 1", false},
		"empty":                   {``, "line 1, column 1", false},
	} {
		t.Run(name, func(t *testing.T) {
			for flag, args := range map[string][]string{
				"json-body": {"send", "--dry-run", "--url", "https://t.example/", "--json-body", test.text},
				"retry":     {"send", "--dry-run", "--url", "https://t.example/", "--retry", test.text},
				"set": {
					"calls", "retry", "--state", "poison", "--all", "--yes", "--set", "call.json=" + test.text,
				},
			} {
				isObject := strings.HasPrefix(test.text, "{")
				isBracketed := isObject || strings.HasPrefix(test.text, "[")
				if flag == "retry" && !isObject || flag == "set" && !isBracketed {
					continue // a name, or a text
				}
				code, printed := mustRefuse(t, args)
				if code != exitUsage || !strings.Contains(printed, "--"+flag+": ") ||
					!strings.Contains(printed, "not JSON: "+test.at+": ") {
					t.Errorf("exit code %d: %s", code, printed)
				}
				if strings.Contains(printed, "PowerShell") != test.isOfShell {
					t.Errorf("%s: %s", flag, printed)
				}
			}
		})
	}
}
