package route_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/storage"
)

// TestDocumentedExample: the example in docs/routes.md is a valid file, and the sizes that the page states have room in
// an envelope of its first route.
func TestDocumentedExample(t *testing.T) {
	page := mustReadDocs(t)
	routes := parse(t, regexp.MustCompile(`(?m)^    \{\n(?:      .*\n)+    \}$`).FindString(page))
	rules := decision.Rules{}
	for kind, sample := range map[string]string{
		"bytes": "\x00\xff", "JSON with short names and values": `{"order":42,"item":"book"},`,
		"plain text": strings.Repeat("a", 39) + "\n",
	} {
		row := regexp.MustCompile(`(?m)^\| ` + kind + ` \| (\d+) KiB \|$`).FindStringSubmatch(page)
		if row == nil {
			t.Fatalf("no row for %q", kind)
		}
		size, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		hasRoom := func(size int) bool {
			content := bytes.Repeat([]byte(sample), size/len(sample)+1)[:size]
			a := route.Arrival{Content: content, MessageID: strings.Repeat("x", 36), InsertedAt: inserted}
			return !rules.OpenRouted(routes["orders-in"], a, 1, storage.Base64.MaxContentBytes(), inserted).NoRoom
		}
		if !hasRoom(size<<10) || hasRoom((size+2)<<10) {
			t.Errorf("%s: %d KiB are not the largest with room", kind, size)
		}
	}
}

// TestDocumentedMembers: the table of members in docs/routes.md has those of a whole route.
func TestDocumentedMembers(t *testing.T) {
	var routes map[string]map[string]any
	if err := json.Unmarshal([]byte(whole), &routes); err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(mustReadDocs(t), "\n## Members\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section, -1) {
		rows = append(rows, row[1])
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(routes["orders-in"])), slices.Sorted(slices.Values(rows))); diff != "" {
		t.Errorf("-members +rows:\n%s", diff)
	}
}

func mustReadDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
