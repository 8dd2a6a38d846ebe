package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/functionapp"
)

func TestExpand(t *testing.T) {
	variables := variablesOf([]string{"A=alpha", "B=old", "B=beta", "EMPTY=", "no pair"})
	for in, want := range map[string]string{
		"":              "",
		"plain":         "plain",
		"%A%":           "alpha",
		"x%A%-%B%y":     "xalpha-betay",
		"%EMPTY%|":      "|",
		"%UNSET%":       "%UNSET%",
		"100% of %A%":   "100% of alpha",
		"%UNSET%A%":     "%UNSETalpha",
		"50%":           "50%",
		"%%A%%":         "%alpha%",
		"%a% is not %A": "%a% is not %A",
	} {
		if got := expand(in, variables); got != want {
			t.Errorf("expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSplitArguments(t *testing.T) {
	variables := variablesOf([]string{"TWO=one two"})
	for _, test := range []struct{ in, want []string }{
		{nil, []string{}},
		{[]string{"serve"}, []string{"serve"}},
		{[]string{"a b", `"c d"`}, []string{"a", "b", `"c`, `d"`}},
		{[]string{"-x=%TWO%", "%UNSET%", "y%UNSET%z"}, []string{"-x=one", "two", "yz"}},
	} {
		if diff := cmp.Diff(test.want, splitArguments(test.in, variables)); diff != "" {
			t.Errorf("splitArguments(%q) (-want +got):\n%s", test.in, diff)
		}
	}
}

func TestResolveCommand(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	for _, path := range []string{
		filepath.Join(root, "bin", "handler"), filepath.Join(elsewhere, "tool"), filepath.Join(elsewhere, "handler"),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", "relative"+string(filepath.ListSeparator)+elsewhere)
	env := []string{"DIR=bin"}
	for name, test := range map[string]struct {
		handler functionapp.CustomHandler
		want    command // the zero value: an error
	}{
		"in_root":  {functionapp.CustomHandler{Executable: "bin/handler"}, command{path: filepath.Join(root, "bin", "handler"), dir: root}},
		"expanded": {functionapp.CustomHandler{Executable: "%DIR%/handler"}, command{path: filepath.Join(root, "bin", "handler"), dir: root}},
		"absolute": {functionapp.CustomHandler{Executable: filepath.Join(elsewhere, "tool")}, command{path: filepath.Join(elsewhere, "tool"), dir: root}},
		"on_path":  {functionapp.CustomHandler{Executable: "tool"}, command{path: filepath.Join(elsewhere, "tool"), dir: root}},
		"relative_dir": {
			functionapp.CustomHandler{Executable: "tool", WorkingDirectory: "bin"},
			command{path: filepath.Join(elsewhere, "tool"), dir: filepath.Join(root, "bin")},
		},
		"absolute_dir": {functionapp.CustomHandler{Executable: "tool", WorkingDirectory: elsewhere}, command{path: filepath.Join(elsewhere, "tool"), dir: elsewhere}},
		// The working directory plays no part in finding the executable.
		"not_in_working_directory": {functionapp.CustomHandler{Executable: "sub/handler", WorkingDirectory: "bin"}, command{}},
		"path_only_for_bare_names": {functionapp.CustomHandler{Executable: "./tool"}, command{}},
		"directory":                {functionapp.CustomHandler{Executable: "bin"}, command{}},
		"absent":                   {functionapp.CustomHandler{Executable: filepath.Join(root, "absent")}, command{}},
	} {
		t.Run(name, func(t *testing.T) {
			app := &functionapp.App{Dir: root, Host: functionapp.Host{Handler: test.handler}}
			got, err := resolveCommand(app, env)
			if (err != nil) != (test.want.path == "") {
				t.Fatalf("error %v", err)
			}
			if got.path != test.want.path || got.dir != test.want.dir {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestHandlerEnv(t *testing.T) {
	base := make([]string, 1, 10)
	base[0] = "AzureWebJobsStorage=x"
	got := handlerEnv(base, "/app", 7071)
	variables := variablesOf(got)
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
