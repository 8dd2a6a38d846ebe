package edit_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"asynccaller/handler/internal/operate/message/edit"
)

// TestGolden compares whole messages, as they are on the poison queue and as they return to the main queue. The
// sections .http are CallOut.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			before, after := goldenContent(t, archive, "before"), goldenContent(t, archive, "after")
			arguments := slices.DeleteFunc(strings.Split(section(t, archive, "flags"), "\n"),
				func(line string) bool { return line == "" })
			got := prepareContent(t, before, edit.Options{Edits: flags(t, arguments...)})
			if diff := cmp.Diff(compacted(t, after), compacted(t, string(got))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
				t.Logf("CallOut: %q", rawMember(t, got, "CallOut"))
			}
		})
	}
}

// goldenContent returns a message with its CallOut.
func goldenContent(tb testing.TB, archive *txtar.Archive, name string) string {
	tb.Helper()
	content := section(tb, archive, name+".json")
	if !strings.Contains(content, "{{callout}}") {
		return content
	}
	message := strings.ReplaceAll(section(tb, archive, name+".http"), "\n", "\r\n")
	if head, body, _ := strings.Cut(message, "\r\n\r\n"); body != "" {
		message = head + "\r\n\r\n" + strings.TrimSuffix(body, "\r\n")
	}
	return strings.ReplaceAll(content, "{{callout}}", inBase64(message))
}

func section(tb testing.TB, archive *txtar.Archive, name string) string {
	tb.Helper()
	for _, file := range archive.Files {
		if file.Name == name {
			return string(file.Data)
		}
	}
	tb.Fatalf("no section %s", name)
	return ""
}

// compacted removes the white space between JSON values. It keeps the bytes of the values.
func compacted(tb testing.TB, content string) string {
	tb.Helper()
	var w bytes.Buffer
	if err := json.Compact(&w, []byte(content)); err != nil {
		tb.Fatalf("%v:\n%s", err, content)
	}
	return w.String()
}
