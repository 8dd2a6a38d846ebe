package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts checks what the program prints about wrong usage and configuration.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
}

func TestExitCode(t *testing.T) {
	const project = "../../.."
	app := t.TempDir() // without the executable
	if err := os.CopyFS(app, os.DirFS(filepath.Join(project, "functions"))); err != nil {
		t.Fatal(err)
	}
	host, err := os.ReadFile(filepath.Join(project, "host.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(app, "host.json"), host, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want int
	}{
		"help":          {[]string{"--help"}, exitDone},
		"flag":          {[]string{"--lease", "soon"}, exitUsage},
		"argument":      {[]string{"dist"}, exitUsage},
		"no_app":        {[]string{"--app", t.TempDir()}, exitUsage},
		"short_lease":   {[]string{"--app", app, "--lease", "1ms"}, exitFailed},
		"no_executable": {[]string{"--app", app}, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			environ := []string{"AzureWebJobsStorage=UseDevelopmentStorage=true"}
			if got := run(t.Context(), test.args, environ, io.Discard, t.Output()); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
		})
	}
}
