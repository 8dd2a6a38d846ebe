package functionapp

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// WithLocalSettings adds the Values of the app folder's local.settings.json to an environment, as `func start` does:
// variables that are already set take precedence. A folder without that file adds nothing.
func WithLocalSettings(dir string, environ []string) ([]string, error) {
	path := filepath.Join(dir, "local.settings.json")
	data, err := os.ReadFile(path) //nolint:gosec // the app folder is the operator's choice
	if errors.Is(err, fs.ErrNotExist) {
		return environ, nil
	}
	if err != nil {
		return nil, err
	}
	var file struct {
		IsEncrypted bool
		Values      map[string]any // texts, but the real tools also accept numbers and booleans
	}
	if err := decodeRelaxed(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if file.IsEncrypted {
		return nil, fmt.Errorf("%s is encrypted: run `func settings decrypt` first", path)
	}
	all := slices.Clone(environ)
	for _, name := range slices.Sorted(maps.Keys(file.Values)) {
		if lookup(environ, name) == "" {
			all = append(all, fmt.Sprintf("%s=%v", name, file.Values[name]))
		}
	}
	return all, nil
}
