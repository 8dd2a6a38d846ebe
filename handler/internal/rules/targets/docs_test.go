package targets_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
)

// TestDocumentedExamples: each example in docs/targets.md is a valid file.
func TestDocumentedExamples(t *testing.T) {
	examples := regexp.MustCompile(`(?m)^    \{\n(?:      .*\n)+    \}$`).FindAllString(mustReadDocs(t), -1)
	if len(examples) < 2 {
		t.Errorf("%d examples", len(examples))
	}
	for _, example := range examples {
		own := retry.Policies{"patient": retry.Default()}
		value := "whsec_" + strings.Repeat("A", 32) // of any variable
		if _, err := targets.Parse([]byte(example), own, func(string) string { return value }); err != nil {
			t.Errorf("%s:\n%v", example, err)
		}
	}
}

// TestDocumentedMembers: docs/targets.md has a row for each member, and the defaults that it states are the real ones.
func TestDocumentedMembers(t *testing.T) {
	docs := mustReadDocs(t)
	_, err := targets.Parse([]byte(`{"*":{"x":1}}`), nil, nil)
	if err == nil {
		t.Fatal("an unknown member is valid")
	}
	_, members, _ := strings.Cut(err.Error(), "the members are ")
	for member := range strings.SplitSeq(members, ", ") {
		if !strings.Contains(docs, "\n| `"+member+"` | ") {
			t.Errorf("no row for %q", member)
		}
	}
	byDefault := regexp.MustCompile("(?m)^\\| `breaker` .* \\| `(.*)` \\|$").FindStringSubmatch(docs)
	if byDefault == nil {
		t.Fatal("no default of breaker")
	}
	stated := profileOf(t, mustParse(t, `{"*":{"breaker":`+byDefault[1]+`}}`), "https://a.example").Breaker
	if actual := profileOf(t, targets.Profiles{}, "https://a.example").Breaker; stated != actual {
		t.Errorf("the document states %+v, and the default is %+v", stated, actual)
	}
}

func mustReadDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/targets.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
