package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/testbed"
)

// result is what a run has proved.
type result struct {
	Seed      uint64                  `json:"seed"`
	Schedules int                     `json:"schedules"`
	Verdict   judge.Verdict           `json:"verdict"`
	Faults    map[schedule.Action]int `json:"faults"`
	Memory    []sample                `json:"memory,omitempty"`
	Took      string                  `json:"took"`
	Troubles  []string                `json:"troubles,omitempty"`
}

// newResult has no finding yet, which JSON shows as a list that is empty.
func newResult(seed uint64) result {
	return result{Seed: seed, Verdict: judge.Verdict{Lost: []judge.Finding{}, Violations: []judge.Finding{}}}
}

// add adds what a schedule has proved, if it came to a verdict.
func (r *result) add(p partial) {
	if p.verdict.Messages == 0 {
		return
	}
	r.Schedules++
	r.Verdict.Add(p.verdict)
	if r.Faults == nil {
		r.Faults = map[schedule.Action]int{}
	}
	for action, n := range p.struck {
		r.Faults[action] += n
	}
}

// trouble notes an error of the run's own, if there is one.
func (r *result) trouble(err error) {
	if err != nil {
		r.Troubles = append(r.Troubles, err.Error())
	}
}

// shown is how many findings are printed.
const shown = 40

func (r *result) print(out io.Writer) {
	v := r.Verdict
	fmt.Fprintf(out, "seed        %d\n", r.Seed)
	fmt.Fprintf(out, "schedules   %d in %s\n", r.Schedules, r.Took)
	fmt.Fprintf(out, "messages    %d\n", v.Messages)
	fmt.Fprintf(out, "lost        %d\n", len(v.Lost))
	fmt.Fprintf(out, "unexplained %d\n", len(v.Violations))
	fmt.Fprintf(out, "duplicates  %s of calls, %s of callbacks, %s of dead letters; all explained by faults: %s\n",
		rate(v.RepeatedCalls, v.Calls), rate(v.RepeatedCallbacks, v.Callbacks), rate(v.RepeatedLetters, v.Letters), yes(len(v.Violations) == 0))
	fmt.Fprintf(out, "redelivered %s\n", counts(v.Redelivered))
	fmt.Fprintf(out, "by the host %d messages moved to a poison queue after %d deliveries that were broken off\n", v.MovedByHost, maxDequeueCount)
	fmt.Fprintf(out, "faults      %s\n", counts(r.Faults))
	if len(r.Memory) > 0 {
		printMemory(out, r.Memory)
	}
	for i, f := range append(slices.Clone(v.Lost), v.Violations...) {
		if i == shown {
			fmt.Fprintln(out, "...")
			break
		}
		word := "UNEXPLAINED"
		if i < len(v.Lost) {
			word = "LOST"
		}
		fmt.Fprintf(out, "%s %s: %s\n", word, f.ID, f.What)
	}
	for _, t := range r.Troubles {
		fmt.Fprintf(out, "TROUBLE %s\n", t)
	}
}

func rate(n, of int) string {
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(max(of, 1)))
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "NO"
}

// counts lists what was counted, the most frequent first.
func counts[K ~string](m map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(x, y K) int {
		if m[x] != m[y] {
			return m[y] - m[x]
		}
		return strings.Compare(string(x), string(y))
	})
	sum, parts := 0, []string{}
	for _, k := range keys {
		sum += m[k]
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	return fmt.Sprintf("%d: %s", sum, strings.Join(parts, ", "))
}

// progress shows how far a run is: at a terminal all the time, elsewhere now and then.
type progress struct {
	out           io.Writer
	terminal      bool
	begin, latest time.Time
}

// seldom is how often a line is printed where it stays.
const seldom = 30 * time.Second

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: isTerminal(out), begin: time.Now(), latest: time.Now()}
}

func (p *progress) show(r result) {
	faults := 0
	for _, n := range r.Faults {
		faults += n
	}
	p.line(fmt.Sprintf("%d schedules, %d messages, %d faults, %d lost, %d unexplained",
		r.Schedules, r.Verdict.Messages, faults, len(r.Verdict.Lost), len(r.Verdict.Violations)))
}

func (p *progress) line(text string) {
	text = fmt.Sprintf("%v  %s", time.Since(p.begin).Round(time.Second), text)
	switch {
	case p.terminal:
		fmt.Fprint(p.out, "\r\x1b[K", text)
	case time.Since(p.latest) >= seldom:
		p.latest = time.Now()
		fmt.Fprintln(p.out, text)
	}
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// goroutines is how many there were before the run.
type goroutines int

func countGoroutines() goroutines { return goroutines(runtime.NumGoroutine()) }

// back waits until there are no more of them than before.
func (g goroutines) back(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leakLimit)
	defer cancel()
	if testbed.Await(ctx, func() bool { return runtime.NumGoroutine() <= int(g) }) == nil {
		return nil
	}
	var dump bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&dump, 1) // into memory
	return fmt.Errorf("%d goroutines are left, %d were there before:\n%s", runtime.NumGoroutine(), int(g), dump.String())
}
