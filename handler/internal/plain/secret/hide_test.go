package secret_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"asynccaller/handler/internal/plain/secret"
)

// TestHide: a secret is found in all forms in which a server repeats it, and nothing else changes.
func TestHide(t *testing.T) {
	const token = `eyJ0/b+c"d=ü&\x<ß`
	const ascii = "eyJ0/b+c"
	inJSON := func(text string) string {
		b, _ := json.Marshal(text)
		return strings.Trim(string(b), `"`)
	}
	var numbers, javaScript strings.Builder
	for _, r := range token {
		fmt.Fprintf(&numbers, "&#%d;", r)
		fmt.Fprintf(&javaScript, `\x%02x`, r)
	}
	for name, form := range map[string]string{
		"plain":            token,
		"json":             inJSON(token),
		"json_with_slash":  strings.ReplaceAll(inJSON(token), "/", `\/`),
		"json_in_json":     inJSON(inJSON(token)),
		"json_thrice":      inJSON(inJSON(strings.ReplaceAll(inJSON(token), "/", `\/`))),
		"json_codes":       strings.NewReplacer("/", `\u002f`, "+", `\u002B`, "e", `\u0065`).Replace(inJSON(token)),
		"query":            url.QueryEscape(token),
		"query_lower":      strings.ReplaceAll(url.QueryEscape(token), "%2F", "%2f"),
		"path":             url.PathEscape(token),
		"query_twice":      url.QueryEscape(url.QueryEscape(token)),
		"query_thrice":     url.QueryEscape(url.QueryEscape(url.QueryEscape(token))),
		"form_decoded":     strings.ReplaceAll(token, "+", " "),
		"html":             html.EscapeString(token),
		"html_twice":       html.EscapeString(html.EscapeString(token)),
		"html_numbers":     numbers.String(),
		"html_hexadecimal": strings.ReplaceAll(token, "/", "&#x2F;"),
		"html_plus":        strings.ReplaceAll(token, "+", `&plus;`),
		"javascript":       javaScript.String(),
	} {
		t.Run(name, func(t *testing.T) {
			text := "a " + form + " z, " + form
			if got := string(secret.Hide([]byte(text), false, []secret.Text{token})); got != "a *** z, ***" {
				t.Errorf("%s became %s", text, got)
			}
			for n := 1; n < len(form); n++ { // cut anywhere
				got := string(secret.Hide([]byte("a "+form[:n]), true, []secret.Text{token}))
				if got != "a " && got != "a ***" {
					t.Errorf("%s became %s", form[:n], got)
				}
			}
		})
	}
	for name, order := range map[string][]int{"utf16_le": {0, 8}, "utf16_be": {8, 0}, "utf32": {0, 8, 16, 24}} {
		got := secret.Hide([]byte(wide("a "+ascii+" z", order)), false, []secret.Text{ascii})
		if want := wide("a *** z", order); string(got) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// wide returns a text whose characters have two or four bytes, in an order.
func wide(text string, order []int) string {
	var b strings.Builder
	for _, r := range text {
		for _, shift := range order {
			b.WriteByte(byte(r >> shift))
		}
	}
	return b.String()
}

// TestHideLeaves: what is no secret stays, and of several secrets the longest one is hidden.
func TestHideLeaves(t *testing.T) {
	secrets := []secret.Text{"token", "Bearer token", "token2", "100%2F", "abc", "", "élan"}
	for _, test := range []struct {
		text  string
		isCut bool
		want  string
	}{
		{"no secret", false, "no secret"},
		{"tok", false, "tok"},
		{"\xffélan, \\u00e9lan, %c3%a9lan", false, "\xff***, ***, ***"},
		{"100%2F, 100%252F, 100%25252f", false, "***, ***, 100%25252f"},
		{"a tok", true, "a "},
		{"tok en", true, "tok en"},
		{"Bearer token, token2, Bearer+token", true, "***, ***, ***"},
		{"Bearer to", true, ""},
		{"abc", false, "abc"}, // too short
		{"100% & <b> \\ \n&amp; \\u12", false, "100% & <b> \\ \n&amp; \\u12"},
		{"", true, ""},
		{strings.Repeat(`\`, 1000) + "token", false, strings.Repeat(`\`, 1000-8) + "***"},
	} {
		if got := string(secret.Hide([]byte(test.text), test.isCut, secrets)); got != test.want {
			t.Errorf("%q, cut %v, became %q, want %q", test.text, test.isCut, got, test.want)
		}
	}
}

// TestOfHeader: what a server can repeat of a header is secret, without its scheme, too.
func TestOfHeader(t *testing.T) {
	for value, want := range map[string][]secret.Text{
		"key-1":              {"key-1"},
		"Bearer abc":         {"Bearer abc", "abc"},
		"Basic dTpwOnE=":     {"Basic dTpwOnE=", "dTpwOnE=", "u:p:q", "p:q"},
		"basic dTpw":         {"basic dTpw", "dTpw", "u:p", "p"},
		"Basic no base64!":   {"Basic no base64!", "no base64!"},
		"SharedKey name:sig": {"SharedKey name:sig", "name:sig"},
	} {
		got := secret.OfHeader(value)
		if len(got) != len(want) {
			t.Errorf("%s: %d secrets", value, len(got))
			continue
		}
		for i := range want {
			if string(got[i]) != string(want[i]) {
				t.Errorf("%s: %q, want %q", value, string(got[i]), string(want[i]))
			}
		}
	}
}

// FuzzHide: no form of a text with a secret keeps it, wherever it is cut.
func FuzzHide(f *testing.F) {
	f.Add("a", "tok/en+", `\u0074ok%2Fen+`, 3)
	f.Add("&amp;", "tok&en", `tok&amp;en`, 9)
	f.Fuzz(func(t *testing.T, before, hidden, after string, end int) {
		// A token has none of these, and a header no control characters.
		isToken := len(hidden) >= 4 && !strings.ContainsAny(hidden, `\%&`) &&
			!strings.ContainsFunc(hidden, unicode.IsControl)
		if !isToken {
			return
		}
		text := before + hidden + after
		end = min(max(end, 0), len(text))
		got := secret.Hide([]byte(text), false, []secret.Text{secret.Text(hidden)})
		if !strings.Contains("***", hidden) && strings.Contains(string(got), hidden) &&
			!strings.Contains(before+"***"+after, hidden) {
			t.Errorf("%q became %q", text, got)
		}
		secret.Hide([]byte(text[:end]), true, []secret.Text{secret.Text(hidden)})
	})
}
