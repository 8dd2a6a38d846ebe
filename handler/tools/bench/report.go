package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// report is the result of a run.
type report struct {
	System string   `json:"system"`
	Values []metric `json:"values"`
}

// bound is how a value is compared with its limit.
type bound string

const (
	atLeast bound = "at least"
	atMost  bound = "at most"
	exactly bound = "exactly"
	noBound bound = ""
)

// metric is a measured value and its limit, if it has one. The median is compared with the limit.
type metric struct {
	Name   string  `json:"name"`
	Bound  bound   `json:"bound,omitempty"`
	Limit  float64 `json:"limit"`
	Spread spread  `json:"measured"`
}

// add adds a metric by its values in each round.
func (r *report) add(name string, b bound, limit float64, values ...float64) {
	r.Values = append(r.Values, metric{name, b, limit, newSpread(values)})
}

// met reports whether the value keeps its limit.
func (m metric) met() bool {
	switch m.Bound {
	case atLeast:
		return m.Spread.Median >= m.Limit
	case atMost:
		return m.Spread.Median <= m.Limit
	case exactly:
		return m.Spread.Min == m.Limit && m.Spread.Max == m.Limit
	case noBound:
	}
	return true
}

// missed returns an error that names the limits that are not met, or nil.
func (r *report) missed() error {
	var names []string
	for _, m := range r.Values {
		if !m.met() {
			names = append(names, m.Name)
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("%d limits are not met: %s", len(names), strings.Join(names, "; "))
}

// spread is the median, the smallest and the largest of some numbers.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// newSpread returns the spread of the numbers. The median of an even count is the mean of the middle two.
func newSpread(numbers []float64) spread {
	if len(numbers) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(numbers))
	middle := len(sorted) / 2
	return spread{Median: (sorted[middle] + sorted[(len(sorted)-1)/2]) / 2, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// ratios returns a/b for each round: what disturbs a round disturbs both.
func ratios(a, b []float64) []float64 {
	all := make([]float64, len(a))
	for i := range all {
		all[i] = a[i] / b[i]
	}
	return all
}

// text formats the spread with three significant digits or all digits before the decimal point.
func (s spread) text() string {
	if s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

func number(n float64) string {
	if n >= 100 || n <= -100 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(n, 'g', 3, 64)
}

// write writes the report as Markdown or as JSON.
func (r *report) write(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	fmt.Fprintf(out, "%s; median (least–most) of the rounds.\n\n", r.System)
	table := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprint(table, "| value\t| measured\t| limit\t| met\t|\n| ---\t| ---\t| ---\t| ---\t|\n")
	for _, m := range r.Values {
		limit, met := "", ""
		if m.Bound != noBound {
			limit, met = fmt.Sprintf("%s %v", m.Bound, m.Limit), "NOT MET"
			if m.met() {
				met = "met"
			}
		}
		fmt.Fprintf(table, "| %s\t| %s\t| %s\t| %s\t|\n", m.Name, m.Spread.text(), limit, met)
	}
	return table.Flush()
}
