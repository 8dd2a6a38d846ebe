package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestCompletion: names are offered where one is meant, and files only where a file is. No completion depends on an
// account or on an app.
func TestCompletion(t *testing.T) {
	t.Parallel()
	const none, files, folders = ":4\n", ":0\n", ":16\n"
	app := t.TempDir()
	for name, content := range map[string]string{
		"retry.json": `{"patient": {"schedule": ["10s"]}, "a;b": {"schedule": ["10s"]}}`,
		"targets.json": `{"crm.example.com": {"concurrency": 1}, "erp.example.com:8443": {"concurrency": 1},
			"*.example.net": {"concurrency": 1}}`,
	} {
		if err := os.WriteFile(filepath.Join(app, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"explain":                        files,
		"send":                           files,
		"send --request-id":              none,
		"send --app " + app + " --retry": "cycles\nexponential\nfixed\nio\nlist\nnexus\npatient\n" + none,
		"send --app":                     folders,
		"status":                         none,
		"status --app":                   folders,
		"calls list --state":             "scheduled\npoison\n" + none,
		"calls import":                   files,
		"calls export --output":          files,
		"erase --request-id":             none,
		"targets pause --app " + app:     "crm.example.com\nerp.example.com:8443\n" + none,
		"targets pause --for":            none,
		"runs list --user":               none,
		"version":                        none,
	} {
		var stdout bytes.Buffer
		args := append([]string{"__complete"}, append(strings.Fields(line), "")...)
		code := Run(t.Context(), args, Env{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &bytes.Buffer{}})
		if code != exitDone || stdout.String() != want {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, &stdout, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, command := range withSubcommands(newRoot(Env{})) {
		command.SetContext(ended)
		command.Flags().VisitAll(func(flag *pflag.Flag) {
			offered, exists := command.GetFlagCompletionFunc(flag.Name)
			if exists {
				offered(command, nil, "")
			}
		})
	}
}
