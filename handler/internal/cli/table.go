package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"asynccaller/handler/internal/text"
)

const (
	// textColumns is the width of help texts, and of output that does not go to a terminal.
	textColumns = 100
	// narrowest is the smallest width that output is fitted to. Narrower terminals wrap it.
	narrowest = 40
	// leftToOthers is the width that a flexible column leaves to each one after it, if there is room for both.
	leftToOthers = 25
	// fewestFlexible is the width that a flexible column has in any case: what follows may not fit.
	fewestFlexible = 10
	// leftByNames is the width that a name leaves to each other flexible column, enough for "answered 503".
	leftByNames = 12
	columnGap   = "  "
)

// widthOf returns the width that output is fitted to: that of the terminal, or textColumns.
func widthOf(out io.Writer) int {
	if sized, ok := out.(interface{ columns() int }); ok {
		return sized.columns()
	}
	file, ok := out.(*os.File)
	if !ok {
		return textColumns
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil || columns <= 0 { // some terminals do not know their size
		return textColumns
	}
	return max(columns, narrowest)
}

// column is a column of a table.
type column struct {
	heading string
	// width is the width of a fixed column, or the largest useful width of a flexible one.
	width           int
	right, flexible bool
	// isName says that the texts are names, which a person copies: other flexible columns are cut first.
	isName bool
}

// leftColumn returns a column of a fixed width. A wider text is not cut: the flexible columns after it lose the space.
func leftColumn(heading string, width int) column { return column{heading: heading, width: width} }

// rightColumn is like leftColumn, and aligns its texts right.
func rightColumn(heading string, width int) column {
	return column{heading: heading, width: width, right: true}
}

// flexColumn returns a column that is as wide as the other columns allow, but not wider than most, unless most is 0.
// Longer texts are cut in the middle.
func flexColumn(heading string, most int) column {
	if most == 0 {
		most = math.MaxInt
	}
	return column{heading: heading, width: max(most, len(heading)), flexible: true}
}

// nameColumn returns a flexible column of names, for the first column of a table.
func nameColumn(heading string) column {
	c := flexColumn(heading, 0)
	c.isName = true
	return c
}

// table writes rows that are no wider than the terminal. It keeps no rows.
type table struct {
	out     io.Writer
	width   int
	columns []column
}

// newTable returns a table after it has written the headings.
func newTable(out io.Writer, columns ...column) *table {
	t := layOut(out, columns...)
	t.headings()
	return t
}

// printTable writes a table of rows that are all known. Its columns are no wider than their headings and cells.
func printTable(out io.Writer, rows [][]string, columns ...column) {
	for i, c := range columns {
		needed := max(len(c.heading), widest(rows, func(cells []string) string { return cells[i] }))
		if c.flexible {
			needed = min(needed, c.width)
		}
		columns[i].width = needed
	}
	t := newTable(out, columns...)
	for _, cells := range rows {
		t.row(cells...)
	}
}

// layOut returns a table without writing anything.
func layOut(out io.Writer, columns ...column) *table {
	columns = slices.Clone(columns)
	t := &table{out: out, width: widthOf(out), columns: columns}
	rest := t.width - len(columnGap)*(len(columns)-1)
	flexible, later := 0, 0
	for _, c := range columns {
		if c.flexible {
			flexible++
			later += min(c.width, leftToOthers)
		} else {
			rest -= c.width
		}
	}
	for i, c := range columns {
		if !c.flexible {
			continue
		}
		later -= min(c.width, leftToOthers)
		share := max(rest/flexible, rest-later, fewestFlexible)
		if c.isName {
			share = max(rest-(flexible-1)*leftByNames, fewestFlexible)
		}
		columns[i].width = min(c.width, share)
		rest -= columns[i].width
		flexible--
	}
	return t
}

// headings writes the headings.
func (t *table) headings() {
	var headings []string
	for _, c := range t.columns {
		headings = append(headings, c.heading)
	}
	t.row(headings...)
}

// row writes a row with one cell for each column.
func (t *table) row(cells ...string) { fmt.Fprint(t.out, t.format(cells...)) }

// format returns a row as a line.
func (t *table) format(cells ...string) string {
	after := 0 // the width of the columns that follow
	for _, c := range t.columns {
		after += len(columnGap) + c.width
	}
	line := ""
	for i, c := range t.columns {
		after -= len(columnGap) + c.width
		if i > 0 {
			line += columnGap
		}
		text := printable(cells[i])
		if c.flexible {
			room := t.width - displayWidth(line) - after
			text = cutMiddle(text, min(c.width, max(room, fewestFlexible)))
		}
		padding := strings.Repeat(" ", max(c.width-displayWidth(text), 0))
		if c.right {
			text = padding + text
		} else {
			text += padding
		}
		line += text
	}
	return cut(strings.TrimRight(line, " "), t.width) + "\n"
}

// widest returns the width of the widest text of some values.
func widest[T any](values []T, text func(T) string) int {
	most := 0
	for _, value := range values {
		most = max(most, displayWidth(printable(text(value))))
	}
	return most
}

// mostMarks is the largest number of combining marks on a character that are shown. They have no width, so a text with
// any number of them would fit a column.
const mostMarks = 2

func isMark(r rune) bool {
	const first = '\u0300' // the comparison makes most characters much faster
	return r >= first && unicode.In(r, unicode.Mn, unicode.Me)
}

// printable returns a text for a cell.
func printable(s string) string {
	marks := 0
	return strings.Map(func(r rune) rune {
		if !isMark(r) {
			marks = 0
			return r
		}
		marks++
		if marks > mostMarks {
			return unicode.ReplacementChar
		}
		return r
	}, text.Printable(s))
}

// runeWidth returns the number of columns of a character on a terminal.
func runeWidth(r rune) int {
	if isMark(r) {
		return 0
	}
	kind := width.LookupRune(r).Kind()
	if kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// displayWidth returns the number of columns of a text on a terminal.
func displayWidth(text string) int {
	columns := 0
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// cut shortens a text to a number of columns and marks the cut with an ellipsis.
func cut(text string, columns int) string {
	if displayWidth(text) <= columns {
		return text
	}
	return beginning(text, columns-1) + "…"
}

// cutMiddle shortens a text to a number of columns. An ellipsis replaces its middle; two thirds of the rest are its
// beginning.
func cutMiddle(text string, columns int) string {
	if displayWidth(text) <= columns {
		return text
	}
	head := beginning(text, (columns-1)*2/3)
	return head + "…" + end(text, columns-1-displayWidth(head))
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
func end(text string, columns int) string {
	rest := text
	for rest != "" {
		r, size := utf8.DecodeLastRuneInString(rest)
		columns -= runeWidth(r)
		if columns < 0 {
			break
		}
		rest = rest[:len(rest)-size]
	}
	return strings.TrimLeftFunc(text[len(rest):], isMark) // they belong to a character that is cut
}
