package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/itchyny/gojq"

	"asynccaller/handler/internal/operate/account"
)

// TestExportToTable checks that the jq expression of docs/calls.md makes a row of each line of an export.
func TestExportToTable(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(project, "docs", "calls.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`calls export .*\| jq -r '(.+)'`).FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no export to jq")
	}
	expression, err := gojq.Parse(string(shown[1]))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		answered := `{"asyncCaller":1,"requestId":"r1","call":{"url":"https://t.example/a"},"trail":[{"status":400}],` +
			`"deadLetter":{"reason":"rejected","detail":"answered \"400\""}}`
		d := newTestSession(t, answered, `{"asyncCaller":1,"call":{"ulr":"https://t.example/a"}}`)
		if err := d.writeExport(t.Context(), ofPoison(account.Source{}), d.out); err != nil {
			t.Fatal(err)
		}
		var rows []any
		for line := range strings.Lines(d.stdout.String()) {
			var exported any
			if err := json.Unmarshal([]byte(line), &exported); err != nil {
				t.Fatal(err)
			}
			row, _ := expression.Run(exported).Next()
			rows = append(rows, row)
		}
		want := []any{`"r1","t.example","/a",400,"answered ""400"""`, `"","",,,"call.url: missing"`}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
