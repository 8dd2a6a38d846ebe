package terminal

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// screen is a terminal with a width.
type screen struct {
	bytes.Buffer
	width int
}

func (s *screen) Columns() int { return s.width }

// TestTable checks that rows fit the terminal, that only flexible columns lose text, and that they lose its middle.
func TestTable(t *testing.T) {
	const (
		target  = "GET https://crm.example.com/api/v2/organizations/contoso/orders/4711"
		request = "order-2026-10-14-000000000000000000000000-4711"
	)
	for name, test := range map[string]struct {
		width int
		want  string
	}{
		"wide": {200, "0a1b2c3d  " + request + "     3  " + target},
		"piped": {
			DefaultWidth,
			"0a1b2c3d  order-2026-10-14-000000000000000000000000-4711     3  GET https://crm.example…/orders/4711",
		},
		"standard": {
			80, "0a1b2c3d  order-2026-10-14-0000000…0000000-4711     3  GET https://crm.…ers/4711",
		},
		"narrow": {
			60, "0a1b2c3d  order-2026-10…00-4711     3  GET https://c…rs/4711",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := &screen{width: test.width}
			table := NewTable(out, Left("ID", 8), Flex("REQUEST", 46), Right("ATT", 4),
				Flex("TARGET", 0))
			out.Reset()
			table.Row("0a1b2c3d", request, "3", target)
			got := strings.TrimSuffix(out.String(), "\n")
			if got != test.want {
				t.Errorf("\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestTableAligns checks that a wide number in a fixed column takes space from the last column only, and that texts
// align by the columns that they have on a terminal.
func TestTableAligns(t *testing.T) {
	const text = "the quick brown fox jumps over the lazy dog and runs"
	out := &screen{width: 60}
	rows := NewTable(out, Flex("NAME", 12), Right("N", 4), Flex("TEXT", 0))
	rows.Row("short", "7", text)
	rows.Row("日本語日本語日本語", "123,456", text)
	rows.Row("e\u0301", "8", text)
	rows.Row("a\x1b[2J\nb", "9", "")
	const want = "NAME             N  TEXT\n" +
		"short            7  the quick brown fox jumps … dog and runs\n" +
		"日本語…本語   123,456  the quick brown fox jump…dog and runs\n" +
		"e\u0301                8  the quick brown fox jumps … dog and runs\n" +
		"a\ufffd[2J\ufffdb          9\n"
	if got := out.String(); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// TestCut checks how a text is cut to 10 of the columns that it has on a terminal.
func TestCut(t *testing.T) {
	const mark, accented, unknown = "\u0301", "e\u0301", "\ufffd"
	for name, test := range map[string]struct{ text, end, middle string }{
		"short":  {"short", "short", "short"},
		"exact":  {"0123456789", "0123456789", "0123456789"},
		"longer": {"0123456789a", "012345678…", "012345…89a"},
		"wide":   {"日本語日本語", "日本語日…", "日本語…語"},
		"emoji":  {strings.Repeat("🙂", 8), "🙂🙂🙂🙂…", "🙂🙂🙂…🙂"},
		"marks": {
			strings.Repeat(accented, 12),
			strings.Repeat(accented, 9) + "…",
			strings.Repeat(accented, 6) + "…" + strings.Repeat(accented, 3),
		},
		"only_marks": {
			strings.Repeat(mark, 1000),
			mark + mark + strings.Repeat(unknown, 9) + "…",
			mark + mark + strings.Repeat(unknown, 6) + "…" + strings.Repeat(unknown, 3),
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := Text(test.text)
			if got := Cut(text, 10); got != test.end {
				t.Errorf("%q, want %q", got, test.end)
			}
			if got := CutMiddle(text, 10); got != test.middle {
				t.Errorf("%q, want %q", got, test.middle)
			}
		})
	}
}

// TestCutToWholeParts checks what calls and lists lose first.
func TestCutToWholeParts(t *testing.T) {
	const call, list = "POST crm.example.com/orders/4711", "expired 42, rejected 9, malformed 3"
	for columns, want := range map[int][2]string{
		40: {call, list},
		30: {"POST crm.example.com/order…711", "expired 42, rejected 9, …"},
		22: {"POST crm.example.com/…", "expired 42, …"},
		14: {"POST crm.exam…", "expired 42, …"},
		9:  {"POST crm…", "expired …"},
	} {
		got := [2]string{cutCall(call, columns), cutList(list, columns)}
		if got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

// TestWidthOf checks that output to a file or a pipe has a fixed width.
func TestWidthOf(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := Width(file); got != DefaultWidth {
		t.Errorf("file: %d columns", got)
	}
	if got := Width(&screen{width: 132}); got != 132 {
		t.Errorf("terminal: %d columns", got)
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"one two three":               "one two|three",
		"abcdefghijk":                 "abcdefgh|ijk",
		"a bcdefghijkl":               "a|bcdefghi|jkl",
		"日本語日本 日本":                    "日本語日|本 日本",
		"see `async-caller log`, too": "see|`async-caller log`,|too",
		"(`async-caller log`) `a b`":  "(`async-caller log`)|`a b`",
		"`async-caller a long":        "`async-c|aller a|long",
	} {
		if got := strings.Join(Wrap(text, 8), "|"); got != want {
			t.Errorf("%q is wrapped as %q, want %q", text, got, want)
		}
	}
}
