package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTable(t *testing.T) {
	long := strings.Repeat("long ", 30)
	for name, test := range map[string]struct {
		cells []string
		want  string
	}{
		"fits":           {[]string{"a", "1", "rest"}, "a        1  rest"},
		"empty":          {[]string{"", "", ""}, ""},
		"cut":            {[]string{"a", "12345", "x"}, "a     123…  x"},
		"last_cut":       {[]string{"a", "1", long}, "a        1  " + long[:87] + "…"},
		"whole":          {[]string{"a-long-name", "1", "x"}, "a-long-name     1  x"},
		"whole_and_last": {[]string{"a-long-name", "1", long}, "a-long-name     1  " + long[:80] + "…"},
		"wide_letters":   {[]string{"é", "ü", "ñ"}, "é        ü  ñ"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			table := table{out: &out, columns: []column{
				{title: "NAME", width: 4, whole: true}, {title: "N", width: 4, right: true}, {title: "REST"},
			}}
			table.row(test.cells...)
			got := strings.TrimSuffix(out.String(), "\n")
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if width := utf8.RuneCountInString(got); width > textColumns {
				t.Errorf("%d columns", width)
			}
		})
	}
}

// TestTableHead: a title stands as its cells do.
func TestTableHead(t *testing.T) {
	var out bytes.Buffer
	table{out: &out, columns: []column{{title: "NAME", width: 6}, {title: "N", width: 4, right: true}, {title: "REST"}}}.head()
	if got, want := out.String(), "NAME       N  REST\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abc…", "éééé": "éééé", "ééééé": "ééé…"} {
		if got := cut(text, 4); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := cut("abc", 0); got != "…" {
		t.Errorf("no room: %q", got)
	}
}
