package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// licencesOf returns the SPDX ids of the licences of the modules in an executable, by path. The modules are in the
// module cache, because the executable has been built.
func licencesOf(ctx context.Context, project string, p platform) (map[string][]string, error) {
	const modules = `{{with .Module}}{{if not .Main}}{{.Path}}	{{.Dir}}{{end}}{{end}}`
	list := exec.CommandContext(ctx, "go", "list", "-buildvcs=false", "-deps", "-f", modules, "./handler")
	list.Dir = project
	list.Env = append(os.Environ(), p.settings()...)
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules in the executable for %s: %w", p.system, err)
	}
	licences := map[string][]string{"std": {"BSD-3-Clause"}} // an installation of Go may lack the file
	for line := range strings.Lines(string(output)) {
		path, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if _, known := licences[path]; path == "" || known {
			continue
		}
		licences[path], err = licencesIn(folder)
		if err != nil {
			return nil, err
		}
	}
	return licences, nil
}

// licencesIn returns the SPDX ids of the licences whose texts are in a folder.
func licencesIn(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "LICENSE") || !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		for _, match := range licensecheck.Scan(text).Match {
			ids = append(ids, match.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
