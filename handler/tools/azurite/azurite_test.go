package azurite_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestNodeVersion checks that README and the Makefile name the version of Node.js that the pinned Azurite requires.
func TestNodeVersion(t *testing.T) {
	var lock struct {
		Packages struct {
			Azurite struct{ Engines struct{ Node string } } `json:"node_modules/azurite"`
		}
	}
	if err := json.Unmarshal(mustRead(t, "package-lock.json"), &lock); err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(lock.Packages.Azurite.Engines.Node, ">="), ".")
	for _, page := range []string{"README.md", "Makefile"} {
		if want := "Node.js " + version + " or later"; !strings.Contains(string(mustRead(t, "../../../"+page)), want) {
			t.Errorf("%s does not say %q", page, want)
		}
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
