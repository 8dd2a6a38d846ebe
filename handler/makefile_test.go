package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMakeNamesGo: without Go, or with one that is too old, make says which version is needed and where to get it,
// before it downloads or builds anything.
func TestMakeNamesGo(t *testing.T) {
	version := mustMatch(t, read(t, "../go.mod"), `(?m)^go (\d+\.\d+)`)[0]
	wanted := "install Go " + version + " or later from https://go.dev/dl"
	folder := t.TempDir()
	for _, tool := range []string{"make", "sed"} {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(folder, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(problem string) {
		t.Helper()
		for _, target := range []string{
			"build", "demo", "run", "azurite", "start", "test", "test-browser", "test-long", "check", "faults", "bench",
			"format", "package", "release", "deploy", "npm",
		} {
			arguments := []string{"--directory", "..", "--always-make", target}
			command := exec.CommandContext(t.Context(), filepath.Join(folder, "make"), arguments...)
			command.Env = []string{"PATH=" + folder}
			output, err := command.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(output)), "\n")
			isFirst := len(lines) > 1 && strings.Contains(lines[1], wanted) && strings.HasPrefix(lines[1], problem)
			if err == nil || !isFirst {
				t.Errorf("make %s: %v, want %q first:\n%s", target, err, problem, output)
			}
		}
	}
	expect("go is missing: ")
	old := "#!/bin/sh\necho 'go: errors parsing go.mod: invalid go version' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(folder, "go"), []byte(old), 0o700); err != nil {
		t.Fatal(err)
	}
	expect("this Go cannot build the project: ")
}
