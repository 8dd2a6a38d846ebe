package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// over is the spread in another unit.
func (s spread) over(unit float64) spread { return spread{s.Median / unit, s.Min / unit, s.Max / unit} }

// text is the median and what it lies between, or a dash when nothing was measured.
func (s spread) text(decimals int) string {
	if s == (spread{}) {
		return "-"
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median, decimals), number(s.Min, decimals), number(s.Max, decimals))
}

// median is the median alone, or a dash.
func (s spread) median(decimals int) string {
	if s == (spread{}) {
		return "-"
	}
	return number(s.Median, decimals)
}

// both is two medians beside each other.
func both(floor, product spread, decimals int) string {
	if floor == (spread{}) || product == (spread{}) {
		return "-"
	}
	return number(floor.Median, decimals) + " / " + number(product.Median, decimals)
}

func number(n float64, decimals int) string { return strconv.FormatFloat(n, 'f', decimals, 64) }

// printTable prints rows as a Markdown table whose first row is the head. All columns but the first are
// numbers, which are read from the right.
func printTable(out io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for n, row := range rows {
		var line strings.Builder
		for i, text := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i == 0 {
				line.WriteString("| " + text + space + " |")
			} else {
				line.WriteString(" " + space + text + " |")
			}
		}
		fmt.Fprintln(out, line.String())
		if n == 0 {
			fmt.Fprintln(out, rule(widths))
		}
	}
}

// rule is the line below a table's head.
func rule(widths []int) string {
	var line strings.Builder
	for i, width := range widths {
		if i == 0 {
			line.WriteString("| " + strings.Repeat("-", width) + " |")
		} else {
			line.WriteString(" " + strings.Repeat("-", width-1) + ": |")
		}
	}
	return line.String()
}
