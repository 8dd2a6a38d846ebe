//go:build unix

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
)

// result is the result of a run. Several systems add to it.
type result struct {
	messages     io.Writer
	begin, shown time.Time

	mu        sync.Mutex
	schedules int
	verdict   judge.Verdict
	faults    map[schedule.Action]int
	// held counts the messages that handlers with a wrong setting have put back.
	held int
	// busy and down count the messages that were rescheduled without a call.
	busy, down int
	// tables has the part of each state of the table service.
	tables map[tableState]*tableResult
	// errs are errors of the run itself.
	errs []error
}

// add adds the verdict on a schedule of a system with that table service.
func (r *result) add(t tableState, v judge.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedules++
	r.verdict.Add(v)
	part := r.ofTable(t)
	part.schedules++
	part.verdict.Add(v)
	r.progress("%d schedules, %d messages, %d lost, %d unexplained", r.schedules, r.verdict.Messages,
		len(r.verdict.Lost), len(r.verdict.Unexplained))
}

// inject counts a fault.
func (r *result) inject(a schedule.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults == nil {
		r.faults = map[schedule.Action]int{}
	}
	r.faults[a]++
}

// hold counts a message that a handler with a wrong setting has put back.
func (r *result) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held++
}

// refused counts messages that were rescheduled without a call, because of a limit or of a circuit breaker.
func (r *result) refused(busy, down int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy += busy
	r.down += down
}

// fail adds an error of the run itself, if there is one.
func (r *result) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// progressPause is the time between two lines of progress.
const progressPause = 30 * time.Second

func (r *result) progress(format string, args ...any) {
	if time.Since(r.shown) < progressPause {
		return
	}
	r.shown = time.Now()
	fmt.Fprintf(r.messages, "%v  %s\n", time.Since(r.begin).Round(time.Second), fmt.Sprintf(format, args...))
}

// maxFindings is how many findings are printed.
const maxFindings = 40

func (r *result) print(out io.Writer) {
	v := r.verdict
	fmt.Fprintf(out, "messages    %d\nlost        %d\nunexplained %d\n", v.Messages, len(v.Lost), len(v.Unexplained))
	fmt.Fprintf(out, "repeated    %s of calls, %s of callbacks, %s of dead letters\n", percent(v.Calls),
		percent(v.Callbacks), percent(v.DeadLetters))
	fmt.Fprintf(out, "redelivered %s\n", list(v.Redelivered))
	fmt.Fprintf(out, "by the host %d messages moved to a poison queue after %d failed deliveries\n", v.MovedByHost,
		maxDequeueCount)
	fmt.Fprintf(out, "held        %d messages, because of a wrong setting\n", r.held)
	fmt.Fprintf(out, "refused     %d calls, because of a limit; %d, because a circuit breaker was open\n",
		r.busy, r.down)
	fmt.Fprintf(out, "faults      %s\n", list(r.faults))
	r.printTables(out)
	for i, f := range slices.Concat(v.Lost, v.Unexplained) {
		kind := "UNEXPLAINED"
		if i < len(v.Lost) {
			kind = "LOST"
		}
		if i == maxFindings {
			fmt.Fprintln(out, "...")
			break
		}
		fmt.Fprintf(out, "%s %s: %s\n", kind, f.ID, f.Text)
	}
}

func percent(c judge.Count) string {
	return fmt.Sprintf("%d (%.1f %%)", c.Repeated, 100*float64(c.Repeated)/float64(max(c.All, 1)))
}

// list lists counts, the largest first.
func list[K ~string](counts map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(x, y K) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), strings.Compare(string(x), string(y)))
	})
	sum, parts := 0, []string{}
	for _, k := range keys {
		sum += counts[k]
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return fmt.Sprintf("%d: %s", sum, strings.Join(parts, ", "))
}
