package main

import (
	"fmt"
	"net/http"
)

// bound says how a number must stand to its limit.
type bound string

const (
	atLeast bound = "at least"
	atMost  bound = "at most"
	exactly bound = "exactly"
)

// limit is something that the handler is to keep, and whether it does.
type limit struct {
	What  string  `json:"what"`
	Bound bound   `json:"bound"`
	Limit float64 `json:"limit"`
	// Measured is nil when the run has not measured it. Then it is not met.
	Measured *float64 `json:"measured"`
	Met      bool     `json:"met"`
}

// The rate in no cell may be below one and a half times that of the handler in Node.js that this one
// replaces, which has 0.47 of the floor's rate at 1 KiB, and 0.23 at 48 KiB.
const (
	worstSmall = 0.705
	worstLarge = 0.345
)

// What else the handler is to keep. Memory is in KiB.
const (
	smallCallKiB = 60
	largeCallKiB = 150
	// answerKiB is how much of an answer the handler keeps; noiseKiB is what two runs differ by.
	answerKiB      = 64
	noiseKiB       = 3
	p99AddedMs     = 1
	startMs        = 25
	executableMB   = 25
	maxConnections = 64
)

// limits are what the run has to say about each limit, in the order of the report. What only the long run
// measures is not among those of a short one.
func (r *report) limits() []limit {
	all := r.rateLimits()
	all = append(all, r.memoryLimits()...)
	megabytes := float64(r.ProductBytes) / 1e6
	connections := float64(r.Connections)
	all = append(
		all,
		newLimit("start to first answer, ms", atMost, startMs, median(r.Start.Product)),
		newLimit("executable, MB", atMost, executableMB, &megabytes),
	)
	for _, t := range r.transactions() {
		all = append(all, newLimit(t.what, exactly, t.wanted, t.product))
	}
	return append(
		all,
		newLimit(fmt.Sprintf("storage connections, %d reschedule at a time", stormParallel), atMost, maxConnections, &connections),
		r.rescheduleLimit(),
	)
}

// rescheduleLimit is about an Azurite apart, where there are processors enough: what counts is what the handler
// adds, and not how well it shares a processor with storage.
func (r *report) rescheduleLimit() limit {
	const what, least = "reschedule, to azqueue alone", 0.8
	if len(r.Reschedule) == 0 {
		return newLimit(what, atLeast, least, nil)
	}
	p, where := r.Reschedule[len(r.Reschedule)-1], ", Azurite not apart"
	if p.Apart {
		where = ", Azurite apart"
	}
	return newLimit(what+where, atLeast, least, median(p.Ratio))
}

func newLimit(what string, b bound, l float64, measured *float64) limit {
	return limit{What: what, Bound: b, Limit: l, Measured: measured, Met: measured != nil && b.holds(*measured, l)}
}

func (b bound) holds(n, limit float64) bool {
	switch b {
	case atLeast:
		return n >= limit
	case atMost:
		return n <= limit
	case exactly:
		return n == limit
	}
	return false
}

// median is a spread's, or nil of no numbers.
func median(s spread) *float64 {
	if s == (spread{}) {
		return nil
	}
	return &s.Median
}

// rateLimits are those of the cells whose target takes the call.
func (r *report) rateLimits() (all []limit) {
	for _, wanted := range []struct {
		kib   int
		mode  mode
		ratio float64
	}{{1, modeBinary, 0.75}, {48, modeBinary, 0.70}, {48, modeText, 0.5}} {
		c := cell{wanted.kib, wanted.mode, shortParallel, http.StatusOK}
		all = append(all, newLimit("rate of "+c.String(), atLeast, wanted.ratio, median(r.find(c).RateRatio)))
	}
	for _, size := range []struct {
		kib   int
		ratio float64
	}{{1, worstSmall}, {48, worstLarge}} {
		slowest := r.worst(
			func(c cell) bool { return c.KiB == size.kib && c.Status == http.StatusOK },
			func(a, b measured) bool { return a.RateRatio.Median < b.RateRatio.Median },
		)
		what := fmt.Sprintf("worst rate of %d KiB: %v", size.kib, slowest.cell)
		all = append(all, newLimit(what, atLeast, size.ratio, median(slowest.RateRatio)))
	}
	late := r.worst(
		func(c cell) bool { return c.KiB == 1 && c.judged() },
		func(a, b measured) bool { return a.P99Added.Median > b.P99Added.Median },
	)
	return append(all, newLimit(fmt.Sprintf("p99 added, ms: %v", late.cell), atMost, p99AddedMs, median(late.P99Added)))
}

// find is the result of a cell; of no numbers when it was not measured.
func (r *report) find(c cell) measured {
	return r.worst(func(other cell) bool { return other == c }, func(_, _ measured) bool { return false })
}

// worst is the worst of some cells.
func (r *report) worst(has func(cell) bool, worse func(a, b measured) bool) (worst measured) {
	found := false
	for _, c := range r.Cells {
		if has(c.cell) && (!found || worse(c, worst)) {
			worst, found = c, true
		}
	}
	return worst
}

// memoryLimits are those of calls in flight.
func (r *report) memoryLimits() (all []limit) {
	if len(r.Held) == 0 {
		return []limit{newLimit(callInFlight+"this system does not tell", atMost, smallCallKiB, nil)}
	}
	for _, h := range r.Held {
		most := float64(smallCallKiB)
		if h.KiB > 1 {
			most = largeCallKiB
		}
		all = append(all, newLimit(callInFlight+h.String(), atMost, most, median(h.Product.over(kibibyte))))
	}
	for _, a := range r.Answering {
		all = append(all, newLimit(answerAdds+a.Framing, atMost, answerKiB+noiseKiB, median(a.Added.over(kibibyte))))
	}
	return all
}

// limitsNote says what the names leave out.
func limitsNote() string {
	return fmt.Sprintf("Rates are ratios, as above. Of a body %d KiB may stay; %d more are for noise.\n", answerKiB, noiseKiB)
}

// limitRows is the table of limits.
func (r *report) limitRows() [][]string {
	const decimals = 3
	rows := [][]string{{"", "limit", "measured", ""}}
	for _, l := range r.Limits {
		measured, met := "not measured", "NOT met"
		if l.Measured != nil {
			measured = number(*l.Measured, decimals)
		}
		if l.Met {
			met = "met"
		}
		rows = append(rows, []string{l.What, fmt.Sprintf("%s %v", l.Bound, l.Limit), measured, met})
	}
	return rows
}

// missed is an error that counts the limits which are not met, if there are any.
func missed(all []limit) error {
	n := 0
	for _, l := range all {
		if !l.Met {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d limits are not met: see the last table", n, len(all))
}
