package main

import (
	"net/http"
	"strings"
	"testing"
)

// goodReport keeps every limit, some of them just.
func goodReport(short bool) *report {
	r := &report{
		Start:       pair{Product: spread{25, 5, 100}},
		Connections: 64, DeadLetter: 1, ProductBytes: 25e6,
		Reschedule: []reschedules{{Ratio: spread{0.5, 0.5, 1}}, {Apart: true, Ratio: spread{0.8, 0.5, 1}}},
		Counted:    []counted{{200, 480, 0}, {503, 480, 1}, {400, 480, 1}},
	}
	for _, h := range inFlight(short) {
		h.Calls, h.Product = h.Wanted, spread{60 << 10, 1, 200 << 10}
		if h.KiB > 1 {
			h.Product.Median = 150 << 10
		}
		r.Held = append(r.Held, h)
	}
	for _, framing := range []string{withLength, inChunks} {
		r.Answering = append(r.Answering, answering{Framing: framing, Added: spread{67 << 10, 1, 100 << 10}})
	}
	for _, c := range cells(short) {
		m := measured{cell: c, RateRatio: spread{0.75, 0.1, 1}, P99Added: spread{1, -5, 9}}
		if c.Status == http.StatusServiceUnavailable {
			m.Storage, m.RateRatio.Median, m.P99Added.Median = 1, 0.1, 50 // neither of which has a limit
		}
		r.Cells = append(r.Cells, m)
	}
	return r
}

// change changes the result of one cell.
func (r *report) change(c cell, do func(*measured)) {
	for i := range r.Cells {
		if r.Cells[i].cell == c {
			do(&r.Cells[i])
		}
	}
}

func TestLimits(t *testing.T) {
	rate := func(kib int, m mode, parallel int, ratio float64) func(*report) {
		return func(r *report) {
			r.change(cell{kib, m, parallel, 200}, func(m *measured) { m.RateRatio.Median = ratio })
		}
	}
	for name, test := range map[string]struct {
		change func(*report)
		missed string // the beginnings of what is not met, with a bar between
	}{
		"all_kept":             {func(*report) {}, ""},
		"small_binary":         {rate(1, modeBinary, 24, 0.7499), "rate of 1 KiB binary, 24, 200"},
		"large_binary":         {rate(48, modeBinary, 24, 0.69), "rate of 48 KiB binary, 24, 200"},
		"large_text":           {rate(48, modeText, 24, 0.49), "rate of 48 KiB text, 24, 200"},
		"small_text_is_free":   {rate(1, modeText, 24, 0.71), ""},
		"worst_small":          {rate(1, modeText, 256, 0.70), "worst rate of 1 KiB: 1 KiB text, 256, 200"},
		"worst_large":          {rate(48, modeText, 1, 0.34), "worst rate of 48 KiB: 48 KiB text, 1, 200"},
		"large_text_and_worst": {rate(48, modeText, 24, 0.3), "rate of 48 KiB text, 24, 200|worst rate of 48 KiB: 48 KiB text, 24, 200"},
		"p99": {func(r *report) {
			r.change(cell{1, modeText, 24, 200}, func(m *measured) { m.P99Added.Median = 1.01 })
		}, "p99 added, ms: 1 KiB text, 24, 200"},
		"p99_of_many_is_free": {func(r *report) {
			r.change(cell{1, modeText, 256, 200}, func(m *measured) { m.P99Added.Median = 40 })
		}, ""},
		"small_held":    {func(r *report) { r.Held[2].Product.Median = 60<<10 + 1 }, "memory of a call, KiB: 10000 calls, 1 KiB"},
		"large_held":    {func(r *report) { r.Held[1].Product.Median = 151 << 10 }, "memory of a call, KiB: 1000 calls, 48 KiB"},
		"answer":        {func(r *report) { r.Answering[1].Added.Median = 68 << 10 }, "that a body of 1 GiB adds, KiB: chunks"},
		"start":         {func(r *report) { r.Start.Product.Median = 25.1 }, "start to first answer, ms"},
		"executable":    {func(r *report) { r.ProductBytes++ }, "executable, MB"},
		"transactions":  {func(r *report) { r.change(cell{48, modeText, 64, 200}, func(m *measured) { m.Storage = 0.001 }) }, "storage transactions of a delivered call"},
		"too_few_puts":  {func(r *report) { r.change(cell{1, modeText, 1, 503}, func(m *measured) { m.Storage = 0.999 }) }, "storage transactions of a reschedule"},
		"too_many_puts": {func(r *report) { r.change(cell{1, modeText, 1, 503}, func(m *measured) { m.Storage = 1.001 }) }, "storage transactions of a reschedule"},
		"dead_letter":   {func(r *report) { r.DeadLetter = 2 }, "storage transactions of a dead letter"},
		"azurite_more":  {func(r *report) { r.Counted[1].Transactions = 1.002 }, "storage transactions of a reschedule, Azurite"},
		"azurite_fewer": {func(r *report) { r.Counted[2].Transactions = 0.998 }, "storage transactions of a dead letter, Azurite"},
		"connections":   {func(r *report) { r.Connections++ }, "storage connections, 1000 reschedule at a time"},
		"azurite_apart": {func(r *report) { r.Reschedule[1].Ratio.Median = 0.79 }, "reschedule, to azqueue alone, Azurite apart"},
		"azurite_never": {func(r *report) { r.Reschedule = r.Reschedule[:1] }, "reschedule, to azqueue alone, Azurite not apart"},
		"no_azurite": {func(r *report) { r.Reschedule, r.Counted = nil, nil }, "storage transactions of a delivered call, Azurite|" +
			"storage transactions of a reschedule, Azurite|storage transactions of a dead letter, Azurite|reschedule, to azqueue alone"},
		"no_memory": {func(r *report) { r.Held, r.Answering = nil, nil }, "memory of a call, KiB: this system does not tell"},
		"no_start":  {func(r *report) { r.Start = pair{} }, "start to first answer, ms"},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodReport(false)
			test.change(r)
			var got []string
			for _, l := range r.limits() {
				if !l.Met {
					got = append(got, l.What)
				}
			}
			want := strings.FieldsFunc(test.missed, func(c rune) bool { return c == '|' })
			same := len(got) == len(want)
			for i := 0; same && i < len(want); i++ {
				same = strings.HasPrefix(got[i], want[i])
			}
			if !same {
				t.Errorf("not met: %q, want %q", got, want)
			}
		})
	}
}

// TestLimitsOfAShortRun: it says nothing of what only the long one measures.
func TestLimitsOfAShortRun(t *testing.T) {
	short, long := goodReport(true).limits(), goodReport(false).limits()
	if len(long)-len(short) != 2 {
		t.Errorf("%d and %d limits, want two more in the long run", len(short), len(long))
	}
	for _, l := range short {
		if !l.Met || strings.Contains(l.What, "10000") {
			t.Errorf("%+v", l)
		}
	}
}

func TestBound(t *testing.T) {
	for name, test := range map[string]struct {
		bound bound
		below bool
		same  bool
		above bool
	}{
		"at_least": {atLeast, false, true, true},
		"at_most":  {atMost, true, true, false},
		"exactly":  {exactly, false, true, false},
		"none":     {"", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			below, same, above := test.bound.holds(0.9, 1), test.bound.holds(1, 1), test.bound.holds(1.1, 1)
			if below != test.below || same != test.same || above != test.above {
				t.Errorf("%v %v %v, want %v %v %v", below, same, above, test.below, test.same, test.above)
			}
		})
	}
}

func TestMissed(t *testing.T) {
	if err := missed(goodReport(false).limits()); err != nil {
		t.Error(err)
	}
	err := missed([]limit{{Met: true}, {}, {}})
	if err == nil || !strings.Contains(err.Error(), "2 of 3 limits are not met") {
		t.Errorf("error %v, want how many", err)
	}
}
