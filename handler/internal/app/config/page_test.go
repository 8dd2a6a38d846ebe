package config_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/app/config"
)

// settingRow is a row of a table in docs/settings.md: | `NAME` | `default` | meaning |.
var settingRow = regexp.MustCompile("(?m)^\\| `(" + config.Prefix + "[^`]*)` \\| `([^`]*)` \\| (.*\\S) \\|\\r?$")

// TestPageListsTheSettings: the tables in docs/settings.md have the code's settings, each once and word by word.
func TestPageListsTheSettings(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []config.Setting
	for _, row := range settingRow.FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, config.Setting{Name: row[1], Default: row[2], Meaning: row[3]})
	}
	slices.SortFunc(listed, func(a, b config.Setting) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(config.Table(), listed, cmpopts.IgnoreUnexported(config.Setting{})); diff != "" {
		t.Errorf("docs/settings.md differs from the settings (-code +page):\n%s", diff)
	}
}
