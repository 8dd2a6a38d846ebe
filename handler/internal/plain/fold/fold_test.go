package fold_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/fold"
)

func ExamplePath() {
	for _, path := range []string{
		"/v1/orders/4711/lines/2", "/customers/550e8400-e29b-41d4-a716-446655440000",
		"/reports/2026-11-21",
	} {
		fmt.Println(fold.Path(path))
	}
	// Output:
	// /v1/orders/{n}/lines/{n}
	// /customers/{id}
	// /reports/{date}
}

func TestPathBounds(t *testing.T) {
	for name, test := range map[string]struct{ path, want string }{
		"empty":     {"", "/"},
		"no_slash":  {"orders/17", "/orders/{n}"},
		"long":      {"/" + strings.Repeat("a", 300), "/" + strings.Repeat("a", 196) + "…"},
		"long_id":   {"/" + strings.Repeat("a1B2", 127) + "/xx", "/{id}/xx"},
		"beyond":    {"/" + strings.Repeat("a1B2", 10_000) + "/x", "/{id}…"},
		"rune":      {"/" + strings.Repeat("a1B2", 127) + "/xöö", "/{id}/x…"},
		"escape":    {"/" + strings.Repeat("a1B2", 127) + "/%41", "/{id}/%{n}…"},
		"control":   {"/a\x1b[2J", "/a\ufffd[2J"},
		"many_dots": {"/" + strings.Repeat("a-", 20_000), "/" + strings.Repeat("a-", 98) + "…"},
	} {
		if got := fold.Path(test.path); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestPathReadsTheBeginning: what a long path costs does not grow with its length.
func TestPathReadsTheBeginning(t *testing.T) {
	path := "/" + strings.Repeat("a-1b_", 200)
	want := testing.AllocsPerRun(5, func() { fold.Path(path) })
	long := path + strings.Repeat("a-1b_", 10_000)
	if got := testing.AllocsPerRun(5, func() { fold.Path(long) }); got > want {
		t.Errorf("%v allocations for %d bytes, %v for %d", got, len(long), want, len(path))
	}
}

// FuzzPath checks that a pattern is short and printable, and that the pattern of a pattern is the same.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"", "/", "/orders/4711", "/a%20123/x", "/550e8400-e29b-41d4-a716-446655440000", "//", "/a@b.example",
		"/xyz123abcdefabcdefabcdef1", "/xyz123abcdefab-abcd-abcd-abcd-abcdefabcdef", "/2026-11-21T10:00:00+01:00",
		"/" + strings.Repeat("a/", 20), "/" + strings.Repeat("%41", 200), "/{n}{id}{date}",
		"/" + strings.Repeat("A", 160) + "/" + strings.Repeat("A", 20) + "0" + strings.Repeat("A", 20) + "K",
		"\x1b[2J\u202e", "/" + strings.Repeat("a", 194) + "/1abcd",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		pattern := fold.Path(path)
		if again := fold.Path(pattern); again != pattern {
			t.Errorf("%q is %q, and that %q", path, pattern, again)
		}
		if len(pattern) > 200 || !strings.HasPrefix(pattern, "/") || strings.Count(pattern, "/") > 9 {
			t.Errorf("pattern %q of %q", pattern, path)
		}
		mustBeOneLine(t, pattern)
	})
}

func mustBeOneLine(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%q is not one printable line", text)
	}
}
