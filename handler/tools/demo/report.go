package main

import (
	"fmt"
	"io"
)

// report prints the table of what happened.
func report(out io.Writer, rows []row, colourful bool) {
	const form = "%-32s %8s  %-15s %-25s %s\n"
	fmt.Fprintln(out)
	fmt.Fprintf(out, form, "MESSAGE", "ATTEMPTS", "ANSWERS", "OUTCOME", "AS IT SHOULD")
	for _, r := range rows {
		verdict := paint("yes", green, colourful)
		if !r.ok {
			verdict = paint(fmt.Sprintf("no: want %s after %s", r.outcome, r.answers), red, colourful)
		}
		fmt.Fprintf(out, form, r.name, fmt.Sprint(r.attempts), r.seen, r.became, verdict)
	}
	fmt.Fprintln(out)
}

type colour string

const (
	red   colour = "\x1b[31m"
	green colour = "\x1b[32m"
	plain colour = "\x1b[0m"
)

func paint(text string, c colour, colourful bool) string {
	if !colourful {
		return text
	}
	return string(c) + text + string(plain)
}

func count(rows []row, is func(row) bool) int {
	n := 0
	for _, r := range rows {
		if is(r) {
			n++
		}
	}
	return n
}
