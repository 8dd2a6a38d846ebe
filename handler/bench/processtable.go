package main

import (
	"fmt"
	"math"
	"net/http"
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

// outcomes are what can become of a message, by what its target answers, and how many storage transactions that
// is to take.
var outcomes = []struct {
	status       int
	name         string
	transactions float64
}{
	{http.StatusOK, "delivered call", 0},
	{http.StatusServiceUnavailable, "put back", 1},
	{http.StatusBadRequest, "dead letter", 1},
}

// transactionsOf is the head of a row that stands in the table of limits too.
const transactionsOf = "storage transactions of a "

func (r *report) storage() (rows [][]string) {
	for _, o := range outcomes {
		rows = append(rows, []string{
			transactionsOf + o.name, count(farthest(0, r.ofFloor(o.status))), count(farthest(o.transactions, r.ofProduct(o.status))),
		})
	}
	for _, o := range outcomes {
		rows = append(rows, []string{transactionsOf + o.name + ", Azurite", "-", count(farthest(o.transactions, r.ofAzurite(o.status)))})
	}
	return append(rows, []string{fmt.Sprintf("storage connections, %d put back at a time", stormParallel), "-", strconv.Itoa(r.Connections)})
}

// count is a number of transactions, or a dash where none were counted.
func count(n *float64) string {
	if n == nil {
		return "-"
	}
	return number(*n, 2)
}

// ofFloor is the floor's storage transactions of an invocation, in each cell with the status.
func (r *report) ofFloor(status int) (all []float64) {
	for _, c := range r.Cells {
		if c.Status == status {
			all = append(all, c.FloorStorage)
		}
	}
	return all
}

// ofProduct is the product's.
func (r *report) ofProduct(status int) (all []float64) {
	if status == http.StatusBadRequest {
		return []float64{r.DeadLetter}
	}
	for _, c := range r.Cells {
		if c.Status == status {
			all = append(all, c.Storage)
		}
	}
	return all
}

// ofAzurite is the product's where a proxy counted them.
func (r *report) ofAzurite(status int) (all []float64) {
	for _, c := range r.Counted {
		if c.Status == status {
			all = append(all, c.Transactions)
		}
	}
	return all
}

// farthest is the number that is farthest from what is wanted; nil of none.
func farthest(wanted float64, numbers []float64) (far *float64) {
	for _, n := range numbers {
		if far == nil || math.Abs(n-wanted) > math.Abs(*far-wanted) {
			far = &n
		}
	}
	return far
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
