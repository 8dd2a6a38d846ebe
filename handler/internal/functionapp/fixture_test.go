package functionapp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"asynccaller/handler/internal/functionapp"
)

// soundHost is a host.json without anything to complain about.
const soundHost = `{
  "version": "2.0",
  "functionTimeout": "00:05:00",
  "customHandler": {"description": {"defaultExecutablePath": "async-caller", "arguments": ["serve"]}},
  "extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"},
  "extensions": {"queues": {
    "batchSize": 4, "newBatchThreshold": 2, "maxDequeueCount": 3, "visibilityTimeout": "00:00:30",
    "maxPollingInterval": "00:00:02", "messageEncoding": "none"
  }}
}`

// soundTrigger is the binding of a function without anything to complain about.
const soundTrigger = `{"type":"queueTrigger","direction":"in","name":"message","queueName":"work","connection":"AzureWebJobsStorage","dataType":"binary"}`

// files is an app folder: paths with forward slashes, and what the files hold.
type files map[string]string

// app is a sound app with one function, but for what the changes replace, add or, with "", remove.
func app(changes files) files {
	all := files{"host.json": soundHost, "Work/function.json": function(soundTrigger)}
	for path, content := range changes {
		all[path] = content
		if content == "" {
			delete(all, path)
		}
	}
	return all
}

// host is a sound app whose host.json has a text replaced.
func host(t *testing.T, old, replacement string) files {
	t.Helper()
	return app(files{"host.json": mustReplace(t, soundHost, old, replacement)})
}

// trigger is a sound app whose function has a text of its binding replaced.
func trigger(t *testing.T, old, replacement string) files {
	t.Helper()
	return app(files{"Work/function.json": function(mustReplace(t, soundTrigger, old, replacement))})
}

func function(bindings ...string) string {
	return `{"bindings":[` + strings.Join(bindings, ",") + `]}`
}

func mustReplace(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q stands %d times in %s", old, strings.Count(text, old), text)
	}
	return strings.Replace(text, old, replacement, 1)
}

// write makes the folder on disk.
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

// mustLoad loads a folder that must be sound.
func (f files) mustLoad(t *testing.T, environ ...string) *functionapp.App {
	t.Helper()
	loaded, err := functionapp.Load(f.write(t), environ)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// wantProblem checks that an error says all of the texts, and nothing of the planted secret.
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
		t.Errorf("a secret is told:\n%v", err)
	}
}

// canary is a secret that must never turn up in an error.
const canary = "C4naryAccountKey=="

func setting(name, value string) string { return fmt.Sprintf("%s=%s", name, value) }
