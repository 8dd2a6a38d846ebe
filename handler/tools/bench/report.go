package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// report is all that a run has shown. Sizes are in bytes.
type report struct {
	System string     `json:"system"`
	Rounds int        `json:"rounds"`
	Time   string     `json:"time"`
	Cells  []measured `json:"cells"`
	Start  pair       `json:"start_ms"`
	Idle   pair       `json:"idle_bytes"`
	// Held, Answering and Peaks are empty where the system does not tell of memory.
	Held        []held      `json:"held,omitempty"`
	Answering   []answering `json:"answering,omitempty"`
	Peaks       []peak      `json:"peaks,omitempty"`
	DeadLetter  float64     `json:"dead_letter_transactions"`
	Connections int         `json:"storage_connections"`
	// Reschedule and Counted are empty in a run without Azurite.
	Reschedule   []reschedules `json:"reschedule_azurite,omitempty"`
	Counted      []counted     `json:"storage_transactions_azurite,omitempty"`
	FloorBytes   int64         `json:"floor_executable_bytes"`
	ProductBytes int64         `json:"product_executable_bytes"`
	Limits       []limit       `json:"limits"`
}

// write writes the report as Markdown or as JSON.
func (r *report) write(out io.Writer, asJSON bool) error {
	if !asJSON {
		r.print(out)
		return nil
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// print writes the report as Markdown.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "%s.\n%d rounds of %s each%s; median (least–most).\n", r.System, r.Rounds, r.Time, r.moreRounds())
	for _, table := range []struct {
		head, note string
		rows       [][]string
	}{
		{"Invocations a second", ratesNote, r.rates()},
		{"Latency and CPU time of one, floor / product", costsNote, r.costs()},
		{"The process", r.filesNote(), r.process()},
		{"Reschedule into Azurite, messages a second", r.reschedulesNote(), r.reschedules()},
		{"Limits", limitsNote(), r.limitRows()},
	} {
		fmt.Fprintf(out, "\n%s:\n%s\n", table.head, table.note)
		printTable(out, table.rows)
	}
}

// moreRounds says how many rounds the judged cells had.
func (r *report) moreRounds() string {
	for _, c := range r.Cells {
		if c.judged() {
			return fmt.Sprintf(", %d of %d in parallel with %d", c.Rounds, c.Parallel, c.Status)
		}
	}
	return ""
}

const (
	ratesNote = `Ratios are product to floor, round by round. Both send as many bytes: a call to the target and,
where that answers 503, a message to storage, which is a stub here.
`
	costsNote = "Added is what the product's p99 exceeds the floor's by, round by round.\n"
)

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
	rows := [][]string{{cellHead, "p50 ms", "p99 ms", "added", "CPU µs", "CPU ratio"}}
	for _, c := range r.Cells {
		rows = append(rows, []string{
			c.String(), both(c.Floor.P50, c.Product.P50, 1), both(c.Floor.P99, c.Product.P99, 1), c.P99Added.median(1),
			both(c.Floor.CPU, c.Product.CPU, 0), c.CPURatio.text(1),
		})
	}
	return rows
}

// where says which processors Azurite had.
func (p reschedules) where() string {
	if p.Apart {
		return "on a processor of its own"
	}
	return "on the same processors"
}

func (r *report) reschedules() [][]string {
	head := fmt.Sprintf("Azurite, for 1 KiB binary, %d", shortParallel)
	rows := [][]string{{head, "azqueue alone", "product", "ratio"}}
	for _, p := range r.Reschedule {
		rows = append(rows, []string{p.where(), p.SDK.text(0), p.Product.text(0), p.Ratio.text(2)})
	}
	if len(r.Reschedule) == 0 {
		rows = append(rows, []string{"not measured: -azurite=false", "-", "-", "-"})
	}
	return rows
}

func (r *report) reschedulesNote() string {
	if len(r.Reschedule) == 0 {
		return ""
	}
	p := r.Reschedule[0]
	return fmt.Sprintf("%d rounds of %d messages; the SDK is called by this process, without the handler.\n", p.Rounds, p.Messages)
}
