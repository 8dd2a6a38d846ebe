package terminal

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"asynccaller/handler/internal/plain/text"
)

const (
	// DefaultWidth is the width of help texts, and of output that does not go to a terminal.
	DefaultWidth = 100
	// narrowest is the smallest width that output is fitted to. Narrower terminals wrap it.
	narrowest = 40
)

// Width returns the width that output is fitted to: that of the terminal, or DefaultWidth.
func Width(out io.Writer) int {
	if sized, ok := out.(interface{ Columns() int }); ok {
		return sized.Columns()
	}
	file, ok := out.(*os.File)
	if !ok {
		return DefaultWidth
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil || columns <= 0 { // some terminals do not know their size
		return DefaultWidth
	}
	return max(columns, narrowest)
}

// Text returns a text for a cell.
func Text(s string) string { return text.LimitMarks(text.Printable(s)) }

// runeWidth returns the number of columns of a character on a terminal.
func runeWidth(r rune) int {
	if text.IsMark(r) {
		return 0
	}
	kind := width.LookupRune(r).Kind()
	if kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// DisplayWidth returns the number of columns of a text on a terminal.
func DisplayWidth(text string) int {
	columns := 0
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// Cut shortens a text to a number of columns and marks the cut with an ellipsis.
func Cut(text string, columns int) string {
	if DisplayWidth(text) <= columns {
		return text
	}
	return beginning(text, columns-1) + "…"
}

// CutMiddle shortens a text to a number of columns. An ellipsis replaces its middle; two thirds of the rest are its
// beginning.
func CutMiddle(text string, columns int) string {
	if DisplayWidth(text) <= columns {
		return text
	}
	head := beginning(text, (columns-1)*2/3)
	return head + "…" + end(text, columns-1-DisplayWidth(head))
}

// roomForPath is the width from which on both ends of a path are shown.
const roomForPath = 8

// cutCall shortens a call, a method and a URL without its scheme. What it cuts first is the path.
func cutCall(call string, columns int) string {
	host, path, hasPath := strings.Cut(call, "/")
	room := columns - DisplayWidth(host)
	switch {
	case !hasPath:
		return CutMiddle(call, columns)
	case room < roomForPath:
		return Cut(call, columns)
	}
	return host + CutMiddle("/"+path, room)
}

// cutList shortens a list with commas by whole members.
func cutList(list string, columns int) string {
	const more = ", …"
	rest := list
	for DisplayWidth(rest) > columns {
		comma := strings.LastIndex(strings.TrimSuffix(rest, more), ", ")
		if comma < 0 {
			return Cut(rest, columns)
		}
		rest = list[:comma] + more
	}
	return rest
}

// beginning returns the longest beginning of a text that fits a number of columns.
func beginning(text string, columns int) string {
	for i, r := range text {
		columns -= runeWidth(r)
		if columns < 0 {
			return text[:i]
		}
	}
	return text
}

// end returns the longest end of a text that fits a number of columns.
func end(s string, columns int) string {
	rest := s
	for rest != "" {
		r, size := utf8.DecodeLastRuneInString(rest)
		columns -= runeWidth(r)
		if columns < 0 {
			break
		}
		rest = rest[:len(rest)-size]
	}
	return strings.TrimLeftFunc(s[len(rest):], text.IsMark) // they belong to a character that is cut
}
