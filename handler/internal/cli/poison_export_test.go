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

// fullDisk takes nothing.
type fullDisk struct{ err error }

func (f fullDisk) Write([]byte) (int, error) { return 0, f.err }

// TestExportToFullDisk: an export that is not whole is no success, in either form.
func TestExportToFullDisk(t *testing.T) {
	for name, sheet := range map[string]bool{"lines": false, "sheet": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, full := newTestDesk(t, dead(100)...), errors.New("no space left")
				if err := d.export(t.Context(), poison.Source{}, sheet, fullDisk{full}); !errors.Is(err, full) {
					t.Errorf("%v", err)
				}
				if strings.Contains(d.err.String(), "100 messages") {
					t.Errorf("told %q", d.err.String())
				}
			})
		})
	}
}

// TestExportFile: nothing is left of a file that is not whole, and a file that is there is not touched.
func TestExportFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, path := newTestDesk(t, dead(3)...), filepath.Join(t.TempDir(), "file")
		nobody := poison.Source{Filter: inspect.Filter{Reasons: []string{"drowned"}}}
		if got := codeOf(withCode(t.Context(), d.exportFile(t.Context(), nobody, false, path))); got != exitNothing {
			t.Errorf("exit code %d", got)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is there: %v", err)
		}
		if err := d.exportFile(t.Context(), poison.Source{}, false, path); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil || bytes.Count(content, []byte("\n")) != 3 {
			t.Errorf("%s, %v", content, err)
		}
		if got := codeOf(d.exportFile(t.Context(), poison.Source{}, false, path)); got != exitUsage {
			t.Errorf("exit code %d", got)
		}
		if again, err := os.ReadFile(path); !bytes.Equal(again, content) || err != nil {
			t.Errorf("the file has changed: %v", err)
		}
	})
}
