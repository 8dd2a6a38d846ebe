package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// column is one of a table's. Its width is in characters.
type column struct {
	title string
	width int
	right bool
	// whole cells are never cut, for what people copy: then the row is longer.
	whole bool
}

// table writes rows in columns whose widths are known beforehand, so that a row can be written before the
// next one is known. The last column has the rest of the line.
type table struct {
	out     io.Writer
	columns []column
}

const columnGap = "  "

func (t table) head() {
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	t.row(titles...)
}

// rest is the width of the last column.
func (t table) rest() int {
	width := textColumns
	for _, c := range t.columns[:len(t.columns)-1] {
		width -= c.width + len(columnGap)
	}
	return width
}

// row writes one line. What is too long for its column is cut.
func (t table) row(cells ...string) {
	line, used := "", 0
	for i, c := range t.columns {
		if i == len(t.columns)-1 {
			c.width = textColumns - used
		}
		cell := c.fill(cells[i])
		used += utf8.RuneCountInString(cell) + len(columnGap)
		line += cell + columnGap
	}
	fmt.Fprintln(t.out, strings.TrimRight(line, " "))
}

func (c column) fill(cell string) string {
	if !c.whole {
		cell = cut(cell, c.width)
	}
	padding := strings.Repeat(" ", max(c.width-utf8.RuneCountInString(cell), 0))
	if c.right {
		return padding + cell
	}
	return cell + padding
}

// cut shortens a text to a width, and shows that it did.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	runes := []rune(text)
	return string(runes[:max(width-1, 0)]) + "…"
}
