package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"asynccaller/handler/internal/app/functionapp"
)

func TestResolveCommand(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	inRoot, outside := filepath.Join(root, "bin", "handler"), filepath.Join(elsewhere, "handler")
	for _, path := range []string{inRoot, outside} {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	type handler = functionapp.CustomHandler
	for name, test := range map[string]struct {
		handler handler
		want    command // the zero value: an error
	}{
		"in_root":  {handler{Executable: "bin/handler"}, command{path: inRoot, dir: root}},
		"absolute": {handler{Executable: outside}, command{path: outside, dir: root}},
		"relative_dir": {
			handler{Executable: outside, WorkingDirectory: "bin"},
			command{path: outside, dir: filepath.Join(root, "bin")},
		},
		"absolute_dir": {
			handler{Executable: outside, WorkingDirectory: elsewhere},
			command{path: outside, dir: elsewhere},
		},
		"arguments": {
			handler{Executable: outside, Arguments: []string{"a b", `"c d"`}},
			command{path: outside, args: []string{"a", "b", `"c`, `d"`}, dir: root},
		},
		// The working directory plays no part in finding the executable.
		"not_in_working_directory": {handler{Executable: "handler", WorkingDirectory: "bin"}, command{}},
		"directory":                {handler{Executable: "bin"}, command{}},
		"absent":                   {handler{Executable: filepath.Join(root, "absent")}, command{}},
		"setting_in_arguments":     {handler{Executable: outside, Arguments: []string{"%HOME%"}}, command{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resolveCommand(&functionapp.App{Dir: root, Host: functionapp.Host{Handler: test.handler}})
			if (err != nil) != (test.want.path == "") {
				t.Fatalf("error %v", err)
			}
			if got.path != test.want.path || got.dir != test.want.dir || !slices.Equal(got.args, test.want.args) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestHandlerEnv(t *testing.T) {
	base := make([]string, 1, 10)
	base[0] = "AzureWebJobsStorage=x"
	variables := map[string]string{}
	for _, pair := range handlerEnv(base, "/app", 7071) {
		name, value, _ := strings.Cut(pair, "=")
		variables[name] = value
	}
	for name, want := range map[string]string{
		"AzureWebJobsStorage":          "x",
		"FUNCTIONS_CUSTOMHANDLER_PORT": "7071",
		"FUNCTIONS_HTTPWORKER_PORT":    "7071",
		"FUNCTIONS_APP_ROOT_PATH":      "/app",
	} {
		if value := variables[name]; value != want {
			t.Errorf("%s is %q, want %q", name, value, want)
		}
	}
	id := variables["FUNCTIONS_CUSTOMHANDLER_WORKER_ID"]
	if other := variables["FUNCTIONS_HTTPWORKER_ID"]; id == "" || id != other {
		t.Errorf("worker ids %q and %q", id, other)
	}
	if slices.Contains(base[:cap(base)], "FUNCTIONS_CUSTOMHANDLER_PORT=7071") {
		t.Error("the caller's environment was written to")
	}
}
