package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestPrintTable(t *testing.T) {
	var out strings.Builder
	printTable(&out, [][]string{{"what", "µs", "floor / product"}, {"a", "1200", "1 / 2"}})
	const want = `| what |   µs | floor / product |
| ---- | ---: | --------------: |
| a    | 1200 |           1 / 2 |
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestSpreadText(t *testing.T) {
	for name, test := range map[string]struct {
		s        spread
		decimals int
		want     string
	}{
		"whole":        {spread{12345.6, 11000, 13000}, 0, "12346 (11000–13000)"},
		"ratio":        {spread{0.5, 0.25, 1}, 2, "0.50 (0.25–1.00)"},
		"not_measured": {spread{}, 2, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.s.text(test.decimals); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// newReport is a report of a fast machine, with the widest cells.
func newReport() report {
	fast := side{Rate: spread{234567, 123456, 345678}, P50: spread{123.45, 1, 200}, P99: spread{1234.5, 1, 2000}, CPU: spread{1234, 1, 2000}}
	r := report{System: "linux/amd64, 128 processors, go1.26.8", Rounds: 5, Time: "2s", Connections: 64, FloorBytes: 6 << 20, ProductBytes: 15 << 20}
	for _, c := range cells(false) {
		r.Cells = append(r.Cells, measured{
			cell: c, Floor: fast, Product: fast, Storage: float64(c.Status/503) * 1.25,
			RateRatio: spread{0.5, 0.25, 10}, CPURatio: spread{2, 1, 10},
		})
	}
	r.Held = []held{{Calls: 10000, KiB: 48, Floor: 100 << 10, Product: 200 << 10}}
	return r
}

func TestReport(t *testing.T) {
	r := newReport()
	var out strings.Builder
	r.print(&out)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	words := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"128 processors, go1.26.8; 5 rounds of 2s",
		"| 48 KiB binary, 256, 503 | 234567 (123456–345678) | 234567 (123456–345678) | 0.50 (0.25–10.00) |",
		"| 1 KiB text, 1, 200 | 123.5 / 123.5 | 1234.5 / 1234.5 | 1234 / 1234 | 2.00 (1.00–10.00) |",
		"of 10000 calls in flight of 48 KiB, KiB | 100 | 200 |",
		"of a delivered call | 0 | 0.00 |", "of a put back | 0 | 1.25 |",
		"| memory when idle, MiB | - | - |", "| executable, MiB | 6.0 | 15.0 |",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestReportAsJSON(t *testing.T) {
	want := newReport()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(measured{})); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{`"parallel":256`, `"mode":"text"`, `"kib":48`, `"rate_ratio":{"median":0.5`} {
		if !bytes.Contains(text, []byte(name)) {
			t.Errorf("no %s in %s", name, text)
		}
	}
}

func TestCells(t *testing.T) {
	for name, test := range map[string]struct {
		short bool
		want  int
	}{"short": {true, 8}, "long": {false, 32}} {
		t.Run(name, func(t *testing.T) {
			different := map[cell]bool{}
			for _, c := range cells(test.short) {
				different[c] = true
				if test.short && c.Parallel != shortParallel {
					t.Errorf("%v", c)
				}
			}
			if len(different) != test.want {
				t.Errorf("%d cells, want %d", len(different), test.want)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		given, want options
	}{
		"long":  {options{}, options{rounds: 5, time: 2 * time.Second}},
		"short": {options{short: true}, options{short: true, rounds: 3, time: 700 * time.Millisecond}},
		"given": {options{short: true, rounds: 9, time: time.Second}, options{short: true, rounds: 9, time: time.Second}},
		"wrong": {options{rounds: -1, time: -time.Second}, options{rounds: 5, time: 2 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.given.complete(); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
