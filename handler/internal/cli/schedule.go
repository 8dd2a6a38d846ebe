package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/retry"
)

const (
	// fewestRows leaves room for a beginning, an ellipsis and an end.
	fewestRows = 5
	// lastRows is how many rows stand after the ellipsis.
	lastRows = 3
	// maxScheduleDeadline is what ASYNC_CALLER_EXPIRATION allows.
	maxScheduleDeadline = 10 * 365 * 24 * time.Hour
)

type scheduleOptions struct {
	policy, app string
	deadline    time.Duration
	compare     []string
	json        bool
	rows        int
}

func newSchedule(s Surroundings) *cobra.Command {
	var options scheduleOptions
	command := &cobra.Command{
		Use:   "schedule",
		Short: "Show when a retry policy makes its attempts",
		Long: `Schedule runs the handler's own rules through virtual time against a target that never answers,
with the shortest and with the longest waits that the policy draws, and shows each attempt: the wait
before it, when it comes after the first call, and where that lies on the way to the deadline, on a
logarithmic scale. The wait before the last attempt is cut so that it comes before the deadline.
A call's own time and the host's polling come on top.

Settings come from the environment, and in the app folder from local.settings.json; policies of your
own from retry.json there. What --policy or --compare asks for is limited as an envelope's would be.`,
		Example: `  async-caller schedule
  async-caller schedule --policy 5s,1m,10m --deadline 2h
  async-caller schedule --policy '{"baseDelay":"1s","factor":3,"maxDelay":"1h"}' --json
  async-caller schedule --compare exponential,nexus`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("deadline") {
				options.deadline = 0
			} else if options.deadline <= 0 || options.deadline > maxScheduleDeadline {
				return wrongUsage(fmt.Errorf("--deadline: give a duration such as 90s or 6h, above 0 and at most %v", maxScheduleDeadline))
			}
			return runSchedule(s, options)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.policy, "policy", "", "policy name, delays such as 5s,1m,10m, or a JSON object (default as configured)")
	flags.DurationVar(&options.deadline, "deadline", 0, "time from creation to deadline (default as configured, 168h)")
	flags.StringSliceVar(&options.compare, "compare", nil, "two policy names, to be shown side by side")
	flags.IntVar(&options.rows, "rows", 30, "how many rows to show at most")
	flags.BoolVar(&options.json, "json", false, "print a JSON object a policy, with all attempts")
	flags.StringVar(&options.app, "app", ".", "app folder, for local.settings.json and retry.json")
	return command
}

func runSchedule(s Surroundings, options scheduleOptions) error {
	switch {
	case options.rows < fewestRows:
		return wrongUsage(fmt.Errorf("--rows: give at least %d", fewestRows))
	case options.compare != nil && options.policy != "":
		return wrongUsage(errors.New("--policy and --compare exclude one another"))
	case options.compare != nil && len(options.compare) != 2:
		return wrongUsage(errors.New("--compare: give two policy names, such as exponential,nexus"))
	}
	book, err := readRules(s, options.app)
	if err != nil {
		return wrongUsage(err)
	}
	flag, wanted := "--policy", []string{options.policy}
	if options.compare != nil {
		flag, wanted = "--compare", options.compare
	}
	if options.deadline == 0 {
		options.deadline = book.rules.Expiration
	}
	var tables []explain.Timetable
	var problems []error
	for _, text := range wanted {
		policy, err := choosePolicy(book.rules, flag, text)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		tables = append(tables, explain.Schedule(book.rules, policy, options.deadline))
	}
	if err := errors.Join(problems...); err != nil {
		return wrongUsage(err)
	}
	if options.json {
		encoder := json.NewEncoder(s.Stdout)
		for _, table := range tables {
			if err := encoder.Encode(table); err != nil {
				return err
			}
		}
		return nil
	}
	printTables(s.Stdout, tables, options.rows)
	return nil
}

// choosePolicy makes the policy that an envelope would get that asks for it; the configured one for "".
func choosePolicy(rules decision.Rules, flag, text string) (retry.Policy, error) {
	if text == "" && flag == "--policy" {
		return rules.PolicyFor(&envelope.Envelope{})
	}
	var member json.RawMessage
	var err error
	if strings.HasPrefix(text, "{") {
		member, err = jsonFlag(flag, text)
	} else {
		member, err = retryFlag(text)
	}
	if err != nil {
		return retry.Policy{}, err
	}
	if member == nil {
		return retry.Policy{}, fmt.Errorf("%s: the policy's name is empty", flag)
	}
	policy, err := rules.PolicyFor(&envelope.Envelope{Retry: member})
	if err != nil {
		return policy, errors.New(flag + strings.TrimPrefix(err.Error(), "retry")) // the member is the flag here
	}
	return policy, nil
}

// printTables shows timetables side by side, a row an attempt.
func printTables(out io.Writer, tables []explain.Timetable, rows int) {
	longest := 0
	for _, t := range tables {
		fmt.Fprintf(out, "%s\n", headline(t))
		longest = max(longest, len(t.Attempts))
	}
	fmt.Fprintln(out)
	row := rowOf
	if len(tables) > 1 {
		row = compareRow
	}
	fmt.Fprintln(out, row(tables, -1))
	for i := 0; i < longest; i++ {
		if hidden := longest - rows + 1; hidden > 1 && i == rows-1-lastRows {
			fmt.Fprintf(out, "%6s  %d more\n", "…", hidden)
			i += hidden - 1
			continue
		}
		fmt.Fprintln(out, row(tables, i))
	}
	fmt.Fprintln(out)
	for _, t := range tables {
		printCounts(out, t)
	}
}

func headline(t explain.Timetable) string {
	text := fmt.Sprintf("policy %s, deadline %s after creation", t.Policy, exactly(t.Deadline))
	if t.MaxAttempts > 0 {
		text += fmt.Sprintf(", at most %d attempts", t.MaxAttempts)
	}
	if t.Limited != "" {
		text += "\nlimited by the operator: " + t.Limited
	}
	return text
}

// rowOf is a row of one timetable, or the heading for -1.
func rowOf(tables []explain.Timetable, i int) string {
	const plotWidth = 43
	if i < 0 {
		return strings.TrimRight(fmt.Sprintf("%6s  %-21s  %-23s  %s", "n", "wait", "since the first call", "until the deadline"), " ")
	}
	t := tables[0]
	a := t.Attempts[i]
	wait := "-"
	if i > 0 {
		wait = between(a.ShortestWait, a.LongestWait, 2)
	}
	return fmt.Sprintf("%6d  %-21s  %-23s  %s", i+1, wait, between(a.Earliest, a.Latest, 3), plot(a, t.Deadline, plotWidth))
}

// compareRow is a row of two timetables: moments only.
func compareRow(tables []explain.Timetable, i int) string {
	const plotWidth = 22
	text := fmt.Sprintf("%6d", i+1)
	if i < 0 {
		text = fmt.Sprintf("%6s", "n")
	}
	for _, t := range tables {
		moment, picture := "", ""
		switch {
		case i < 0:
			moment = t.Policy
			if len(moment) > plotWidth {
				moment = moment[:plotWidth]
			}
		case i < len(t.Attempts):
			moment, picture = between(t.Attempts[i].Earliest, t.Attempts[i].Latest, 3), plot(t.Attempts[i], t.Deadline, plotWidth)
		}
		text += fmt.Sprintf("  %-22s %s%s", moment, picture, strings.Repeat(" ", plotWidth-len([]rune(picture))))
	}
	return strings.TrimRight(text, " ")
}

func printCounts(out io.Writer, t explain.Timetable) {
	fmt.Fprintf(out, "%s: %s with the longest waits, %s with the shortest\n", t.Policy, fits(t.Longest), fits(t.Shortest))
	for _, run := range []struct {
		kind string
		explain.Run
	}{{"longest", t.Longest}, {"shortest", t.Shortest}} {
		fmt.Fprintf(out, "  last attempt with the %s waits: %s after the first call, %s\n", run.kind, exactly(run.Last), ending(run.Run, t.Deadline))
	}
}

// ending says why there are no more attempts.
func ending(r explain.Run, deadline time.Duration) string {
	if r.Reason == decision.Exhausted {
		return "the policy allows no more"
	}
	if r.Reason == "" {
		return "and more that are not counted"
	}
	return exactly(deadline-r.Last) + " before the deadline"
}

func fits(r explain.Run) string {
	if r.Reason == "" {
		return fmt.Sprintf("more than %d attempts", r.Attempts)
	}
	if r.Attempts == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", r.Attempts)
}

// plot shows where between the first call and the deadline an attempt may come, on a logarithmic scale.
func plot(a explain.Attempt, deadline time.Duration, width int) string {
	at := func(d time.Duration) int {
		share := math.Log1p(d.Seconds()) / math.Log1p(deadline.Seconds())
		return min(int(share*float64(width-1)+0.5), width-1)
	}
	from, to := at(a.Earliest), at(a.Latest)
	mark := "│"
	if from < to {
		mark = "├" + strings.Repeat("─", to-from-1) + "┤"
	}
	return strings.Repeat("·", from) + mark + strings.Repeat("·", width-1-to)
}

// between writes the bounds of a column: of each the largest units, cut, not rounded.
func between(from, to time.Duration, most int) string {
	a, b := units(from, most), units(to, most)
	if a == b {
		return a
	}
	return a + " - " + b
}

// exactly writes a duration to the second.
func exactly(d time.Duration) string { return units(d, 4) }

func units(d time.Duration, most int) string {
	if d == math.MaxInt64 { // what time.Time.Sub gives for all that it cannot hold
		return "over 292 years"
	}
	d = d.Round(100 * time.Millisecond) // the random number just below 1 leaves nanoseconds to the bound
	switch {
	case d < 0:
		return "-" + units(-d, most)
	case d < time.Minute:
		return d.String() // 0s, 1.5s
	}
	var b strings.Builder
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		n := int(d / unit.size)
		if most == 0 || (n == 0 && b.Len() == 0) {
			continue
		}
		if d %= unit.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
		}
		most--
	}
	return b.String()
}
