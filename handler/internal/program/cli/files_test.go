package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadFile checks that a file is read only up to a limit.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, bytes.Repeat([]byte(" "), 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readFile(Env{}, path); err == nil || !strings.Contains(err.Error(), "larger than any message") {
		t.Errorf("%v", err)
	}
}
