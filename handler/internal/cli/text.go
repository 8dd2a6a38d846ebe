package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	textColumns  = 100
	labelColumns = 15
)

// printLine writes a label and a text. It wraps the text to the width of a terminal.
func printLine(out io.Writer, label, format string, args ...any) {
	for _, part := range wrap(fmt.Sprintf(format, args...), textColumns-labelColumns) {
		fmt.Fprintf(out, "%-*s%s\n", labelColumns, label, part)
		label = ""
	}
}

// printField writes a label and a text, or nothing if the text is empty.
func printField(out io.Writer, label, text string) {
	if text != "" {
		printLine(out, label, "%s", text)
	}
}

// printRow writes a row of a table and cuts it to the width of a terminal.
func printRow(out io.Writer, format string, cells ...any) {
	fmt.Fprintln(out, cut(strings.TrimRight(fmt.Sprintf(format, cells...), " "), textColumns))
}

// cut shortens a text to a width and marks the cut with an ellipsis.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// wrap breaks a text into lines, at spaces or within words that are longer than a line.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line+" "+word) > width {
			lines, line = append(lines, line), ""
		}
		runes := []rune(strings.TrimPrefix(line+" "+word, " "))
		for len(runes) > width {
			lines, runes = append(lines, string(runes[:width])), runes[width:]
		}
		line = string(runes)
	}
	return append(lines, line)
}

// moment formats a time to the millisecond.
func moment(t time.Time) string {
	return t.UTC().Round(time.Millisecond).Format("2006-01-02T15:04:05.999Z07:00")
}

// exactly formats a duration to the second.
func exactly[D ~int64](d D) string { return units(time.Duration(d), 4) }

// age formats a duration in its largest unit.
func age(d time.Duration) string { return units(max(d, 0).Truncate(time.Second), 1) }

// units formats a duration with at most the given number of units. It cuts the rest and does not round.
func units(d time.Duration, most int) string {
	if d == math.MaxInt64 { // the largest result of time.Time.Sub
		return "over 292 years"
	}
	d = d.Round(100 * time.Millisecond) // the largest jitter is some nanoseconds short of its bound
	switch {
	case d < 0:
		return "-" + units(-d, most)
	case d < time.Minute:
		return d.String() // 0s, 1.5s
	}
	text := ""
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		n := int(d / unit.size)
		if most == 0 || (n == 0 && text == "") {
			continue
		}
		if d %= unit.size; n > 0 {
			text += strconv.Itoa(n) + unit.name
		}
		most--
	}
	return text
}

// thousands formats a number with thousands separators.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// plural formats a number of things.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return thousands(n) + " " + thing
}

func messages(n int) string { return plural(n, "message") }
