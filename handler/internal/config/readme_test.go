package config_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/config"
)

// settingRow is a row of the README's table of settings: | `NAME` | `default` | meaning |.
var settingRow = regexp.MustCompile("(?m)^\\| `(" + config.Prefix + "[^`]*)` \\| `([^`]*)` \\| (.*\\S) \\|\\r?$")

// The README's table of settings is the code's, row by row and word by word.
func TestReadmeListsTheSettings(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []config.Setting
	for _, row := range settingRow.FindAllStringSubmatch(string(readme), -1) {
		listed = append(listed, config.Setting{Name: row[1], Default: row[2], Meaning: row[3]})
	}
	if diff := cmp.Diff(config.Table(), listed, cmpopts.IgnoreUnexported(config.Setting{})); diff != "" {
		t.Errorf("README.md differs from the settings (-code +README):\n%s", diff)
	}
}
