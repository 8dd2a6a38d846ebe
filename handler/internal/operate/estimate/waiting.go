// Package estimate says when the calls that wait for a target will be done: it replays their due times through what
// limits allow, with the arrivals and the failures of the last minutes. It is pure.
package estimate

import (
	"math"
	"time"
)

// Times are counted in cells, each longer than the one before: the first one by 10 s, the last one by 2 % of its
// distance. All cells together are longer than two months.
const (
	cells     = 480
	growth    = 1.02
	firstCell = 10.0 // seconds
)

// cellOf returns the cell of a time from now on.
func cellOf(wait time.Duration) int {
	distance := max(wait.Seconds(), 0) * (growth - 1) / firstCell
	return min(int(math.Log1p(distance)/math.Log(growth)), cells-1)
}

// beginOf returns after how many seconds a cell begins.
func beginOf(cell int) float64 {
	return firstCell / (growth - 1) * (math.Pow(growth, float64(cell)) - 1)
}

// Kind says what a call waits for.
type Kind uint8

const (
	// Later calls wait for their next attempt.
	Later Kind = iota
	// InLine says that calls wait for a limit, before those that arrive.
	InLine
	// Paused calls were refused by a pause.
	Paused
)

// maxAttempts is after how many attempts the delay of the default policy stays the same.
const maxAttempts = 15

// overdueAfter is how late a call is that waits behind others on its queue.
const overdueAfter = time.Minute

// Waiting are the calls that wait for a target. The zero value has none.
type Waiting struct {
	calls          map[place]int
	total, overdue int
	latest         time.Duration
}

// place is when a call is due, after how many attempts, and what it waits for.
type place struct {
	cell     uint16
	attempts uint8
	kind     Kind
}

// Add adds a call that is due after a time, or was, after some attempts.
func (w *Waiting) Add(wait time.Duration, attempts int, kind Kind) {
	if w.calls == nil {
		w.calls = map[place]int{}
	}
	w.total++
	if wait < -overdueAfter {
		w.overdue++
	}
	w.latest = max(w.latest, wait)
	w.calls[place{uint16(cellOf(wait)), uint8(min(max(attempts, 0), maxAttempts)), kind}]++ //nolint:gosec // bounded
}

// Count returns how many calls wait.
func (w *Waiting) Count() int { return w.total }

// Resumed returns the calls as they wait when those that a pause has refused become due from a time on, at most so many
// in a second; 0 sets no limit.
func (w *Waiting) Resumed(after time.Duration, rate float64) *Waiting {
	resumed := &Waiting{}
	at := after
	for p, n := range w.calls {
		wait := time.Duration(beginOf(int(p.cell)) * float64(time.Second))
		for range n {
			if p.kind != Paused {
				resumed.Add(wait, int(p.attempts), p.kind)
				continue
			}
			resumed.Add(at, int(p.attempts), Later)
			if rate > 0 {
				at += time.Duration(float64(time.Second) / rate)
			}
		}
	}
	resumed.overdue = w.overdue
	return resumed
}
