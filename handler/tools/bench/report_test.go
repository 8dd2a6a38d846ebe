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
func newReport() *report {
	fast := side{Rate: spread{234567, 123456, 345678}, P50: spread{123.45, 1, 200}, P99: spread{234.5, 1, 2000}, CPU: spread{1234, 1, 2000}}
	wide := spread{100 << 20, 100 << 20, 100 << 20}
	r := &report{
		System: "linux/amd64, 128 processors, go1.26.8", Rounds: 5, Time: "2s",
		Connections: 64, DeadLetter: 1, FloorBytes: 6 << 20, ProductBytes: 15 << 20,
		Held:      []held{{Calls: 9850, Wanted: 10000, KiB: 48, Floor: spread{100 << 10, 90 << 10, 110 << 10}, Product: spread{200 << 10, 150 << 10, 300 << 10}}},
		Answering: []answering{{Calls: 1000, Framing: inChunks, Added: spread{65 << 10, 64 << 10, 80 << 10}}},
		Peaks:     []peak{{KiB: 48, Floor: wide, Product: wide}, {KiB: 1, Answer: gib, Product: wide}},
		Reschedule: []reschedules{
			{Messages: 480, Rounds: 15, SDK: spread{20000, 10000, 30000}, Product: spread{10000, 10000, 20000}, Ratio: spread{0.75, 0.7, 0.8}},
			{Apart: true, Messages: 480, Rounds: 15, SDK: spread{20000, 10000, 30000}, Product: spread{10000, 10000, 20000}, Ratio: spread{0.85, 0.8, 0.9}},
		},
	}
	r.Counted = []counted{{200, 480, 0}, {503, 480, 1.5}, {400, 480, 1}}
	for _, c := range cells(false) {
		r.Cells = append(r.Cells, measured{
			cell: c, Rounds: options{rounds: 5}.roundsOf(c), Floor: fast, Product: fast, Storage: float64(c.Status/503) * 1.25, FloorStorage: float64(c.Status / 503),
			RateRatio: spread{0.5, 0.25, 10}, CPURatio: spread{2, 1, 9}, P99Added: spread{-100.5, -2000, 3},
		})
	}
	r.Limits = r.limits()
	return r
}

// printed is the report with single spaces.
func printed(r *report) string {
	var out strings.Builder
	r.print(&out)
	return strings.Join(strings.Fields(out.String()), " ")
}

func TestReport(t *testing.T) {
	var out strings.Builder
	newReport().print(&out)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	words := printed(newReport())
	for _, want := range []string{
		"128 processors, go1.26.8. 5 rounds of 2s each, 15 of 24 in parallel with 200; median",
		"| 48 KiB binary, 256, 503 | 234567 (123456–345678) | 234567 (123456–345678) | 0.50 (0.25–10.00) |",
		"| 1 KiB text, 1, 200 | 123.5 / 123.5 | 234.5 / 234.5 | -100.5 | 1234 / 1234 | 2.0 (1.0–9.0) |",
		"memory of a call, KiB: 9850 of 10000 calls, 48 KiB | 100 (90–110) | 200 (150–300) |",
		"No more than 9850 calls could be held, for want of open files",
		"that a body of 1 GiB adds, KiB: chunks | - | 65 (64–80) |",
		"| peak, MiB: 24 in parallel, 1 KiB, answers of 1 GiB | - | 100.0 (100.0–100.0) |",
		"of a delivered call | 0.00 | 0.00 |", "of a reschedule | 1.00 | 1.25 |", "of a dead letter | - | 1.00 |",
		"of a delivered call, Azurite | - | 0.00 |", "of a reschedule, Azurite | - | 1.50 |", "of a dead letter, Azurite | - | 1.00 |",
		"| memory when idle, MiB | - | - |", "| executable, MiB | 6.0 | 15.0 |",
		"| on the same processors | 20000 (10000–30000) | 10000 (10000–20000) | 0.75 (0.70–0.80) |",
		"| on a processor of its own | 20000 (10000–30000) | 10000 (10000–20000) | 0.85 (0.80–0.90) |",
		"15 rounds of 480 messages",
		"| reschedule, to azqueue alone, Azurite apart | at least 0.8 | 0.850 | met |",
		"| storage transactions of a reschedule | exactly 1 | 1.250 | NOT met |",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestReportWithoutAzurite: what was left out is said, and not met.
func TestReportWithoutAzurite(t *testing.T) {
	r := newReport()
	r.Reschedule, r.Counted, r.Held = nil, nil, nil
	r.Limits = r.limits()
	words := printed(r)
	for _, want := range []string{"| not measured: -azurite=false | - | - | - |", "of a reschedule, Azurite | - | - |", "| reschedule, to azqueue alone | at least 0.8 | not measured | NOT met |"} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in\n%s", want, words)
		}
	}
	if strings.Contains(words, "open files") {
		t.Errorf("open files were no matter:\n%s", words)
	}
}

func TestReportAsJSON(t *testing.T) {
	want := newReport()
	var out bytes.Buffer
	if err := want.write(&out, true); err != nil {
		t.Fatal(err)
	}
	got := new(report)
	if err := json.Unmarshal(out.Bytes(), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(measured{})); diff != "" {
		t.Error(diff)
	}
	var text bytes.Buffer
	if err := json.Compact(&text, out.Bytes()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		`"parallel":256`, `"mode":"text"`, `"kib":48`, `"rate_ratio":{"median":0.5`, `"p99_added_ms":{"median":-100.5`,
		`"dead_letter_transactions":1`, `"reschedule_azurite":[{"apart":false,"messages":480,"rounds":15,"sdk_rate"`, `"wanted_calls":10000`, `"framing":"chunks"`,
		`"storage_transactions_azurite":[{"status":200,"messages":480,"transactions":0}`,
		`{"what":"executable, MB","bound":"at most","limit":25,"measured":15.72864,"met":true}`,
	} {
		if !bytes.Contains(text.Bytes(), []byte(name)) {
			t.Errorf("no %s in %s", name, text.String())
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

// TestRounds: what a limit is about is measured oftener.
func TestRounds(t *testing.T) {
	for _, c := range cells(false) {
		want := 5
		if c.Parallel == 24 && c.Status == 200 {
			want = 15
		}
		if got := (options{rounds: 5}).roundsOf(c); got != want {
			t.Errorf("%v: %d rounds, want %d", c, got, want)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		given, want options
	}{
		"long":  {options{}, options{rounds: 15, time: 500 * time.Millisecond}},
		"short": {options{short: true}, options{short: true, rounds: 5, time: 500 * time.Millisecond}},
		"given": {options{short: true, rounds: 9, time: time.Second}, options{short: true, rounds: 9, time: time.Second}},
		"kept":  {options{rounds: 1, time: 1, azurite: true, json: true, strict: true}, options{rounds: 1, time: 1, azurite: true, json: true, strict: true}},
		"wrong": {options{rounds: -1, time: -time.Second}, options{rounds: 15, time: 500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.given.complete(); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
