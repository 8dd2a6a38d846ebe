package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// report is all that a run has shown. Sizes are in bytes.
type report struct {
	System       string     `json:"system"`
	Rounds       int        `json:"rounds"`
	Time         string     `json:"time"`
	Cells        []measured `json:"cells"`
	Start        pair       `json:"start_ms"`
	Idle         pair       `json:"idle_bytes"`
	Held         []held     `json:"held,omitempty"`
	Connections  int        `json:"storage_connections"`
	FloorBytes   int64      `json:"floor_executable_bytes"`
	ProductBytes int64      `json:"product_executable_bytes"`
}

// print writes the report as Markdown.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "%s; %d rounds of %s each; median (least–most).\n", r.System, r.Rounds, r.Time)
	fmt.Fprintf(out, "Ratios are product to floor, round by round. A 503 is put back: the floor writes nothing.\n\n")
	fmt.Fprintf(out, "Invocations a second:\n\n")
	printTable(out, r.rates())
	fmt.Fprintf(out, "\nLatency and CPU time of one, floor / product:\n\n")
	printTable(out, r.costs())
	fmt.Fprintf(out, "\nThe process:\n\n")
	printTable(out, r.process())
}

// cellHead names what [cell.String] says.
const cellHead = "message, parallel, answer"

func (r *report) rates() [][]string {
	rows := [][]string{{cellHead, "floor", "product", "ratio"}}
	for _, c := range r.Cells {
		rows = append(rows, []string{c.String(), c.Floor.Rate.text(0), c.Product.Rate.text(0), c.RateRatio.text(2)})
	}
	return rows
}

// costs has medians only, but for the ratio: the columns would not fit.
func (r *report) costs() [][]string {
	rows := [][]string{{cellHead, "p50 ms", "p99 ms", "CPU µs", "CPU ratio"}}
	for _, c := range r.Cells {
		rows = append(rows, []string{
			c.String(), both(c.Floor.P50, c.Product.P50, 1), both(c.Floor.P99, c.Product.P99, 1),
			both(c.Floor.CPU, c.Product.CPU, 0), c.CPURatio.text(2),
		})
	}
	return rows
}

func (r *report) process() [][]string {
	const kib, mib = 1 << 10, 1 << 20
	rows := [][]string{
		{"", "floor", "product"},
		{"start to first answer, ms", r.Start.Floor.text(0), r.Start.Product.text(0)},
		{"memory when idle, MiB", r.Idle.Floor.over(mib).text(1), r.Idle.Product.over(mib).text(1)},
	}
	for _, h := range r.Held {
		what := fmt.Sprintf("memory of one of %d calls in flight of %d KiB, KiB", h.Calls, h.KiB)
		rows = append(rows, []string{what, number(h.Floor/kib, 0), number(h.Product/kib, 0)})
	}
	return append(
		rows,
		[]string{"storage transactions of a delivered call", "0", number(r.transactions(http.StatusOK), 2)},
		[]string{"storage transactions of a put back", "0", number(r.transactions(http.StatusServiceUnavailable), 2)},
		[]string{fmt.Sprintf("storage connections, %d put back at a time", stormParallel), "0", strconv.Itoa(r.Connections)},
		[]string{"executable, MiB", number(float64(r.FloorBytes)/mib, 1), number(float64(r.ProductBytes)/mib, 1)},
	)
}

// transactions is the most storage transactions of an invocation, over the cells with the status.
func (r *report) transactions(status int) (most float64) {
	for _, c := range r.Cells {
		if c.Status == status {
			most = max(most, c.Storage)
		}
	}
	return most
}

// over is the spread in another unit.
func (s spread) over(unit float64) spread { return spread{s.Median / unit, s.Min / unit, s.Max / unit} }

// text is the median and what it lies between, or a dash when nothing was measured.
func (s spread) text(decimals int) string {
	if s == (spread{}) {
		return "-"
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median, decimals), number(s.Min, decimals), number(s.Max, decimals))
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
