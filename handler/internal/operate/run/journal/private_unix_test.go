//go:build unix

package journal_test

import (
	"os"
	"testing"

	"asynccaller/handler/internal/operate/run/journal"
)

// TestPrivate checks that only the owner can read journals, which hold secrets.
func TestPrivate(t *testing.T) {
	f := newFolder(t)
	j := begin(t, f, journal.Run{Command: "move"})
	defer func() { _ = j.Close() }()
	for name, want := range map[string]os.FileMode{string(f): 0o700 | os.ModeDir, path(f, j.Run.ID): 0o600} {
		if about, err := os.Stat(name); err != nil || about.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, about.Mode(), err, want)
		}
	}
}
