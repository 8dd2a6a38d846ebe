package message_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/operate/message"
)

// FuzzRoute checks that a route is short and printable, and that the route of a route is the same.
func FuzzRoute(f *testing.F) {
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
		route := message.Route(path)
		if again := message.Route(route); again != route {
			t.Errorf("%q is %q, and that %q", path, route, again)
		}
		if len(route) > 200 || !strings.HasPrefix(route, "/") || strings.Count(route, "/") > 9 {
			t.Errorf("route %q of %q", route, path)
		}
		mustBeOneLine(t, route)
	})
}

func mustBeOneLine(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%q is not one printable line", text)
	}
}
