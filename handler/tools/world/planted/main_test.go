package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutOfDate: a patch whose place has changed fails, with its name and what to do about it.
func TestOutOfDate(t *testing.T) {
	t.Chdir("../../../..")
	good, err := os.ReadFile(filepath.Join(folder, "delete-before-put"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"context_has_changed": {"\n \tvar put storage.Message", "\n \tvar putting storage.Message"},
		"no_such_file":        {"listener.go", "ears.go"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(string(good), change[0], change[1])
			file := filepath.Join(t.TempDir(), "old"+suffix)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			b := newBug(file, filepath.Join(t.TempDir(), "0"))
			err := b.plant(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), "old: ") || !strings.Contains(err.Error(), "renew "+file) {
				t.Errorf("got %v", err)
			}
		})
	}
}
