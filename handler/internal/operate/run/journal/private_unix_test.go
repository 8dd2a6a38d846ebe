//go:build unix

package journal_test

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
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

// TestDefaultIsOwn: without HOME the journals are in the home folder that the system knows, and never in a folder that
// another user owns, or that another user's link leads to.
func TestDefaultIsOwn(t *testing.T) {
	person, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	want := journal.Folder(filepath.Join(person.HomeDir, ".local/state/async-caller/runs"))
	if got := journal.Default(func(string) string { return "" }); got != want {
		t.Errorf("without HOME: %q, want %q", got, want)
	}
	if got := journal.Default(func(string) string { return "relative" }); got != "" {
		t.Errorf("with a relative HOME: %q", got)
	}
	if os.Geteuid() != 0 {
		return // only root can give a folder away
	}
	const nobody = 65534
	for name, make := range map[string]func(parent, folder string) error{
		"parent": func(parent, _ string) error {
			return errors.Join(os.Mkdir(parent, 0o777), os.Lchown(parent, nobody, nobody))
		},
		"folder": func(_, folder string) error {
			return errors.Join(os.MkdirAll(folder, 0o777), os.Lchown(folder, nobody, nobody))
		},
		"link": func(parent, folder string) error {
			own := parent + "-own"
			return errors.Join(os.Mkdir(own, 0o700), os.Mkdir(parent, 0o700), os.Symlink(own, folder),
				os.Lchown(folder, nobody, nobody))
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			parent := filepath.Join(state, "async-caller")
			if err := make(parent, filepath.Join(parent, "runs")); err != nil {
				t.Fatal(err)
			}
			folder := journal.Default(func(string) string { return state })
			_, err := folder.Begin(journal.Run{Command: "move"})
			if folder != "" || err == nil || !strings.Contains(err.Error(), "--runs") {
				t.Errorf("%q, %v", folder, err)
			}
		})
	}
}

// TestUnusableFolder: the error for a folder that cannot be used names --runs.
func TestUnusableFolder(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"none": "", "file": file, "below_a_file": filepath.Join(file, "runs"), "no_file_can_be_made": "/proc",
		"no_folder_can_be_made": "/proc/runs",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := journal.Folder(path).Begin(journal.Run{Command: "move"})
			if err == nil || !strings.Contains(err.Error(), "--runs") {
				t.Errorf("got %v", err)
			}
		})
	}
}
