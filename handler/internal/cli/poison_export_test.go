package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
)

// fullDisk is a writer that fails.
type fullDisk struct{ err error }

func (f fullDisk) Write([]byte) (int, error) { return 0, f.err }

// TestExportToFullDisk checks that an incomplete export fails, in both formats.
func TestExportToFullDisk(t *testing.T) {
	for name, format := range map[string]exportFormat{"json_lines": jsonLines, "csv": csvTable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, full := newTestSession(t, dead(100)...), errors.New("no space left")
				if err := d.export(t.Context(), poison.Source{}, format, fullDisk{full}); !errors.Is(err, full) {
					t.Errorf("%v", err)
				}
				if strings.Contains(d.err.String(), "100 messages") {
					t.Errorf("printed %q", d.err.String())
				}
			})
		})
	}
}

// TestExportFile checks that an incomplete file is removed, and that an existing file is not changed.
func TestExportFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, path := newTestSession(t, dead(3)...), filepath.Join(t.TempDir(), "file")
		nobody := poison.Source{Filter: inspect.Filter{Reasons: []string{"drowned"}}}
		if got := codeOf(withExitCode(t.Context(), d.exportFile(t.Context(), nobody, jsonLines, path))); got != exitNothing {
			t.Errorf("exit code %d", got)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is there: %v", err)
		}
		if err := d.exportFile(t.Context(), poison.Source{}, jsonLines, path); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil || bytes.Count(content, []byte("\n")) != 3 {
			t.Errorf("%s, %v", content, err)
		}
		if got := codeOf(d.exportFile(t.Context(), poison.Source{}, jsonLines, path)); got != exitUsage {
			t.Errorf("exit code %d", got)
		}
		if again, err := os.ReadFile(path); !bytes.Equal(again, content) || err != nil {
			t.Errorf("the file has changed: %v", err)
		}
	})
}
