package main

import (
	"fmt"
	"strconv"
)

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
)

// process is the rows of what is measured outside of cells. A dash is where nothing is measured.
func (r *report) process() [][]string {
	rows := [][]string{
		{"", "floor", "product"},
		{"start to first answer, ms", r.Start.Floor.text(0), r.Start.Product.text(0)},
	}
	rows = append(rows, r.memory()...)
	rows = append(rows, r.storage()...)
	return append(rows, []string{
		"executable, MiB",
		number(float64(r.FloorBytes)/mebibyte, 1), number(float64(r.ProductBytes)/mebibyte, 1),
	})
}

// The heads of rows that stand in the table of limits too.
const (
	callInFlight = "memory of a call, KiB: "
	answerAdds   = "that a body of 1 GiB adds, KiB: "
)

func (r *report) memory() [][]string {
	rows := [][]string{{"memory when idle, MiB", r.Idle.Floor.over(mebibyte).text(1), r.Idle.Product.over(mebibyte).text(1)}}
	for _, p := range r.Peaks {
		rows = append(rows, []string{"peak, MiB: " + p.String(), p.Floor.over(mebibyte).text(1), p.Product.over(mebibyte).text(1)})
	}
	for _, h := range r.Held {
		rows = append(rows, []string{callInFlight + h.String(), h.Floor.over(kibibyte).text(0), h.Product.over(kibibyte).text(0)})
	}
	for _, a := range r.Answering {
		rows = append(rows, []string{answerAdds + a.Framing, "-", a.Added.over(kibibyte).text(0)})
	}
	return rows
}

func (r *report) storage() (rows [][]string) {
	for _, t := range r.transactions() {
		rows = append(rows, []string{t.what, count(t.floor), count(t.product)})
	}
	return append(rows, []string{fmt.Sprintf("storage connections, %d reschedule at a time", stormParallel), "-", strconv.Itoa(r.Connections)})
}

// count is a number of transactions, or a dash where none were counted.
func count(n *float64) string {
	if n == nil {
		return "-"
	}
	return number(*n, 2)
}

// filesNote says why fewer calls were held than wanted, if so.
func (r *report) filesNote() string {
	for _, h := range r.Held {
		if h.Calls < h.Wanted {
			return fmt.Sprintf("No more than %d calls could be held, for want of open files (ulimit -n).\n", h.Calls)
		}
	}
	return ""
}
