package terminal

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

const (
	// roomForOthers is the width that a flexible column leaves to each one after it, if there is room for both.
	roomForOthers = 25
	// roomForCall is the width that a call has before others are wider than minFlexible: enough for most hosts.
	roomForCall = 30
	// minFlexible is the width that a flexible column has in any case: what follows may not fit.
	minFlexible = 10
	// roomBesideName is the width that a name leaves to each other flexible column, enough for "answered 503".
	roomBesideName = 12
	columnGap      = "  "
)

// Column is a column of a table.
type Column struct {
	heading string
	// width is the width of a fixed column, or the largest useful width of a flexible one.
	width           int
	right, flexible bool
	// isName says that the texts are names, which a person copies: other flexible columns are cut first.
	isName bool
	// isList says that the texts are lists, which lose whole members.
	isList bool
	// isCall says that the texts are calls, whose hosts are cut last.
	isCall bool
}

// Left returns a column of a fixed width. A wider text is not cut: the flexible columns after it lose the space.
func Left(heading string, width int) Column { return Column{heading: heading, width: width} }

// Right is like Left, and aligns its texts right.
func Right(heading string, width int) Column {
	return Column{heading: heading, width: width, right: true}
}

// Flex returns a column that is as wide as the other columns allow, but not wider than most, unless most is 0.
// Longer texts are cut in the middle.
func Flex(heading string, most int) Column {
	if most == 0 {
		most = math.MaxInt
	}
	return Column{heading: heading, width: max(most, len(heading)), flexible: true}
}

// Name returns a flexible column of names, for the first column of a table.
func Name(heading string) Column {
	c := Flex(heading, 0)
	c.isName = true
	return c
}

// Call returns a flexible column of calls, for the last column of a table: other flexible columns are cut first, and
// then the paths of the calls.
func Call(heading string) Column {
	c := Flex(heading, 0)
	c.isCall = true
	return c
}

// List returns a flexible column of lists with commas.
func List(heading string) Column {
	c := Flex(heading, 0)
	c.isList = true
	return c
}

// Table writes rows that are no wider than the terminal. It keeps no rows.
type Table struct {
	out     io.Writer
	width   int
	columns []Column
}

// NewTable returns a table after it has written the headings.
func NewTable(out io.Writer, columns ...Column) *Table {
	t := Layout(out, columns...)
	t.Headings()
	return t
}

// PrintTable writes a table of rows that are all known. Its columns are no wider than their headings and cells.
func PrintTable(out io.Writer, rows [][]string, columns ...Column) {
	for i, c := range columns {
		needed := max(len(c.heading), Widest(rows, func(cells []string) string { return cells[i] }))
		if c.flexible {
			needed = min(needed, c.width)
		}
		columns[i].width = needed
	}
	t := NewTable(out, columns...)
	for _, cells := range rows {
		t.Row(cells...)
	}
}

// Layout returns a table without writing anything.
func Layout(out io.Writer, columns ...Column) *Table {
	columns = slices.Clone(columns)
	t := &Table{out: out, width: Width(out), columns: columns}
	rest := t.width - len(columnGap)*(len(columns)-1)
	flexible, later, hasCall := 0, 0, false
	for _, c := range columns {
		if c.flexible {
			flexible++
			later += c.room()
			hasCall = hasCall || c.isCall
		} else {
			rest -= c.width
		}
	}
	for i, c := range columns {
		if !c.flexible {
			continue
		}
		later -= c.room()
		share := max(rest/flexible, rest-later, minFlexible)
		switch {
		case c.isName:
			share = max(rest-(flexible-1)*roomBesideName, minFlexible)
		case hasCall && !c.isCall:
			share = max(rest-later, minFlexible)
		}
		columns[i].width = min(c.width, share)
		rest -= columns[i].width
		flexible--
	}
	return t
}

// room returns the width that the flexible columns before this one leave to it.
func (c Column) room() int {
	if c.isCall {
		return roomForCall
	}
	return min(c.width, roomForOthers)
}

// Headings writes the headings.
func (t *Table) Headings() {
	var headings []string
	for _, c := range t.columns {
		headings = append(headings, c.heading)
	}
	t.Row(headings...)
}

// Row writes a row with one cell for each column.
func (t *Table) Row(cells ...string) { fmt.Fprint(t.out, t.Format(cells...)) }

// Format returns a row as a line.
func (t *Table) Format(cells ...string) string {
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
		text := Text(cells[i])
		if c.flexible {
			room := t.width - DisplayWidth(line) - after
			text = c.cut(text, min(c.width, max(room, minFlexible)))
		}
		padding := strings.Repeat(" ", max(c.width-DisplayWidth(text), 0))
		if c.right {
			text = padding + text
		} else {
			text += padding
		}
		line += text
	}
	return Cut(strings.TrimRight(line, " "), t.width) + "\n"
}

// cut shortens a text to a number of columns.
func (c Column) cut(text string, columns int) string {
	switch {
	case c.isCall:
		return cutCall(text, columns)
	case c.isList:
		return cutList(text, columns)
	}
	return CutMiddle(text, columns)
}

// Widest returns the width of the widest text of some values.
func Widest[T any](values []T, text func(T) string) int {
	most := 0
	for _, value := range values {
		most = max(most, DisplayWidth(Text(text(value))))
	}
	return most
}
