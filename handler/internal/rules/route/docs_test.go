package route_test

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"math/rand/v2"
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

// TestDocumentedExample: the example in docs/routes.md is a valid file, and contents have room in an envelope of its
// first route as the page says.
func TestDocumentedExample(t *testing.T) {
	page := mustReadDocs(t)
	routes := parse(t, regexp.MustCompile(`(?m)^    \{\n(?:      .*\n)+    \}$`).FindString(page))
	stated := regexp.MustCompile(`up\s+to\s+(\d+)\s+KiB\.`).FindStringSubmatch(page)
	if stated == nil {
		t.Fatal("no size")
	}
	size, err := strconv.Atoi(stated[1])
	if err != nil {
		t.Fatal(err)
	}
	rules, limit := decision.Rules{}, storage.Base64.MaxContentBytes()
	hasRoom := func(content []byte) bool {
		a := route.Arrival{Content: content, MessageID: strings.Repeat("x", 36), InsertedAt: inserted}
		return !rules.OpenRouted(routes["orders-in"], a, 1, limit, inserted).NoRoom
	}
	random := make([]byte, limit)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	if !hasRoom(random[:size<<10]) || hasRoom(random[:(size+2)<<10]) {
		t.Errorf("%d KiB of random bytes are not the largest with room", size)
	}
	// Hexadecimal digits are a text that shrinks as little as any that people send.
	for _, text := range []string{hex.EncodeToString(random)[:limit], strings.Repeat("\x00", limit)} {
		if !hasRoom([]byte(text)) {
			t.Errorf("%.10q… has no room", text)
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
