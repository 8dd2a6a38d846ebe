package cli

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"unicode/utf16"
)

// wide writes a text in UTF-16 with a byte order mark, as PowerShell 5 does.
func wide(text string) string {
	var content []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		content = binary.LittleEndian.AppendUint16(content, unit)
	}
	return string(content)
}

// TestTextFiles checks that each file of texts, and standard input, may begin with a byte order mark, and that UTF-16
// is named. The content of a body is byte for byte.
func TestTextFiles(t *testing.T) {
	const envelope = `{"asyncCaller":1,"requestId":"r1","call":{"url":"https://t.example/"}}` + "\n"
	for name, test := range map[string]struct {
		content, command string // FILE in the command has the content, as has standard input
		want             string // in the output
	}{
		"send":          {envelope, "send --dry-run FILE", `"requestId": "r1"`},
		"send_input":    {envelope, "send --dry-run -", `"requestId": "r1"`},
		"send_many":     {envelope + strings.Replace(envelope, "r1", "r2", 1), "send --dry-run FILE", `"r2"`},
		"explain":       {envelope, "explain FILE", "request id     r1"},
		"explain_input": {envelope, "explain -", "request id     r1"},
		"explain_encoded": {
			"eyJhc3luY0NhbGxlciI6MSwiY2FsbCI6eyJ1cmwiOiJodHRwczovL3QuZXhhbXBsZS8ifX0=", "explain FILE", "yes, native",
		},
		"header": {
			"X-A: 1\nX-B: 2\n", "send --dry-run --url https://t.example/ --header @FILE", `"X-A": [`,
		},
		"answer_header": {"Retry-After: 30\n", "explain order.json --status 503 --header @FILE", "Retry-After"},
		"log":           {"a line\n", "log", "a line\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("order.json", []byte(envelope), 0o600); err != nil {
				t.Fatal(err)
			}
			run := func(content string) (code int, stdout, stderr string) {
				if err := os.WriteFile("FILE", []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				var out, errOut bytes.Buffer
				env := Env{Stdin: strings.NewReader(content), Stdout: &out, Stderr: &errOut}
				code = Run(t.Context(), strings.Fields(test.command), env)
				return code, out.String(), errOut.String()
			}
			code, plain, stderr := run(test.content)
			if code != exitDone || !strings.Contains(plain, test.want) {
				t.Fatalf("exit code %d: %s%s, want %s", code, plain, stderr, test.want)
			}
			code, marked, stderr := run("\ufeff" + test.content)
			if code != exitDone || !strings.Contains(marked, test.want) || strings.ContainsAny(marked, "\ufeff\ufffd") {
				t.Errorf("with a mark: exit code %d: %s%s", code, marked, stderr)
			}
			code, _, stderr = run(wide(test.content))
			if code == exitDone || !strings.Contains(stderr, "the text is UTF-16: save it as UTF-8") {
				t.Errorf("UTF-16: exit code %d: %s", code, stderr)
			}
		})
	}
	t.Run("bodies", func(t *testing.T) {
		t.Chdir(t.TempDir())
		for name, content := range map[string]string{
			"marked": "\ufeffx", "wide": wide("x"),
		} {
			if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for command, want := range map[string]string{
			"send --dry-run --url https://t.example/ --body @marked --json": "\"body\":\"\ufeffx\"",
			"send --dry-run --url https://t.example/ --body @wide --json":   `"bodyBase64":"//54AA=="`,
		} {
			var out, errOut bytes.Buffer
			code := Run(t.Context(), strings.Fields(command), Env{Stdout: &out, Stderr: &errOut})
			if code != exitDone || !strings.Contains(out.String(), want) {
				t.Errorf("%s: exit code %d: %s%s, want %s", command, code, &out, &errOut, want)
			}
		}
	})
}
