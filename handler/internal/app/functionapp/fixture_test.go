package functionapp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"asynccaller/handler/internal/app/functionapp"
)

// validHost is a valid host.json.
const validHost = `{
  "version": "2.0",
  "functionTimeout": "00:05:00",
  "customHandler": {"description": {"defaultExecutablePath": "async-caller", "arguments": ["serve"]}},
  "extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"},
  "extensions": {"queues": {
    "batchSize": 4, "newBatchThreshold": 2, "maxDequeueCount": 3, "visibilityTimeout": "00:00:30",
    "maxPollingInterval": "00:00:02", "messageEncoding": "none"
  }}
}`

// validTrigger is the valid binding of a queue function.
const validTrigger = `{"type":"queueTrigger","direction":"in","name":"message","queueName":"work",` +
	`"connection":"AzureWebJobsStorage","dataType":"binary"}`

// files is an app folder: paths with forward slashes, and the contents of the files.
type files map[string]string

// app returns a valid app with one function. The changes replace files, add files or, with "", remove files.
func app(changes files) files {
	all := files{"host.json": validHost, "Work/function.json": function(validTrigger)}
	for path, content := range changes {
		all[path] = content
		if content == "" {
			delete(all, path)
		}
	}
	return all
}

// withHost returns a valid app with a text of its host.json replaced.
func withHost(t *testing.T, old, replacement string) files {
	t.Helper()
	return app(files{"host.json": mustReplace(t, validHost, old, replacement)})
}

// trigger returns a valid app with a text of its function's binding replaced.
func trigger(t *testing.T, old, replacement string) files {
	t.Helper()
	return app(files{"Work/function.json": function(mustReplace(t, validTrigger, old, replacement))})
}

func function(bindings ...string) string {
	return `{"bindings":[` + strings.Join(bindings, ",") + `]}`
}

func mustReplace(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q appears %d times in %s", old, strings.Count(text, old), text)
	}
	return strings.Replace(text, old, replacement, 1)
}

// write writes the folder to the disk.
func (f files) write(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, content := range f {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mustLoad loads a folder that must be valid.
func (f files) mustLoad(t *testing.T, environ ...string) *functionapp.App {
	t.Helper()
	loaded, err := functionapp.Load(f.write(t), environ)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// wantProblem checks that an error contains all of the texts, and not the planted secret.
func wantProblem(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no problem was reported")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is missing in:\n%v", text, err)
		}
	}
	if strings.Contains(err.Error(), canary) {
		t.Errorf("the error contains a secret:\n%v", err)
	}
}

// canary is a secret that must never appear in an error.
const canary = "C4naryAccountKey=="

// wide returns a text in UTF-16.
func wide(text string) string {
	return "\xff\xfe" + strings.Join(strings.Split(text, ""), "\x00") + "\x00"
}
