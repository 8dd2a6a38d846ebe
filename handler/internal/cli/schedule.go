package cli

import (
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
	// lastRows is the number of rows after an ellipsis. fewestRows leaves room for the first row and the
	// ellipsis.
	lastRows   = 3
	fewestRows = lastRows + 2
	// maxScheduleDeadline is the maximum of ASYNC_CALLER_EXPIRATION.
	maxScheduleDeadline = 10 * 365 * 24 * time.Hour
)

type scheduleOptions struct {
	policy, app string
	compare     []string
	deadline    time.Duration
	rows        int
	json        bool
}

func newSchedule(env Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "schedule",
		Short: "Show the attempts of a retry policy",
		Long: `Simulate the handler's rules against a target that never answers, with the shortest and the longest
delays that the jitter allows, and show each attempt: the delay before it, its time after the first
call, and its position before the deadline on a logarithmic scale. The last delay is shortened so
that the last attempt is before the deadline. The duration of calls and the host's polling are not
included.

Settings come from the environment and, in the app folder, from local.settings.json and retry.json.
The operator's limits apply.`,
		Example: `  async-caller schedule
  async-caller schedule --policy 5s,1m,10m --deadline 2h
  async-caller schedule --policy '{"baseDelay":"1s","factor":3,"maxDelay":"1h"}' --json
  async-caller schedule --compare exponential,nexus`,
		Args: cobra.NoArgs,
	}
	var o scheduleOptions
	flags := flagsOf(command)
	flags.StringVar(&o.policy, "policy", "", "`policy`: a name, delays such as 5s,1m,10m, or a JSON object (default as configured)")
	parsed(flags, &o.deadline, "deadline", "`duration` from creation to deadline (default as configured, 168h)", parseDeadline)
	flags.StringSliceVar(&o.compare, "compare", nil, "compare two policies, by `names`")
	flags.IntVar(&o.rows, "rows", 30, "maximum number of rows")
	flags.BoolVar(&o.json, "json", false, "print JSON, one object per policy, with all attempts")
	flags.StringVar(&o.app, "app", ".", "app folder with local.settings.json and retry.json")
	command.MarkFlagsMutuallyExclusive("policy", "compare")
	command.RunE = func(*cobra.Command, []string) error {
		if o.rows < fewestRows {
			flags.problems = append(flags.problems, fmt.Errorf("--rows: want at least %d", fewestRows))
		}
		if o.compare != nil && len(o.compare) != 2 {
			flags.problems = append(flags.problems, errors.New("--compare: want two policy names, such as exponential,nexus"))
		}
		if err := flags.err(); err != nil {
			return err
		}
		return o.run(env)
	}
	return command
}

func parseDeadline(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxScheduleDeadline {
		return 0, fmt.Errorf("%.20q: want a duration such as 90s or 6h, above 0 and at most %v", text, maxScheduleDeadline)
	}
	return d, nil
}

func (o scheduleOptions) run(env Env) error {
	a, err := readApp(env, o.app)
	if err != nil {
		return err
	}
	flag, policies := "--policy", []string{o.policy}
	if o.compare != nil {
		flag, policies = "--compare", o.compare
	}
	if o.deadline == 0 {
		o.deadline = a.rules.Expiration
	}
	var tables []explain.Schedule
	var problems []error
	for _, text := range policies {
		policy, err := choosePolicy(a.rules, flag, text)
		problems = append(problems, err)
		if err == nil {
			tables = append(tables, explain.Simulate(a.rules, policy, o.deadline))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return usageError(err)
	}
	if !o.json {
		printSchedules(env.Stdout, tables, o.rows)
		return nil
	}
	for _, table := range tables {
		if err := printJSON(env.Stdout, table); err != nil {
			return err
		}
	}
	return nil
}

// choosePolicy returns the policy of an envelope with the given member retry, or the configured one for "".
func choosePolicy(rules decision.Rules, flag, text string) (retry.Policy, error) {
	member, err := parseRetry(text)
	switch {
	case err != nil:
		return retry.Policy{}, fmt.Errorf("%s: %w", flag, err)
	case member == nil && flag == "--compare":
		return retry.Policy{}, fmt.Errorf("%s: a policy name is empty", flag)
	case member == nil:
		return rules.PolicyFor(&envelope.Envelope{})
	}
	policy, err := rules.PolicyFor(&envelope.Envelope{Retry: member})
	if err != nil {
		return policy, errors.New(flag + strings.TrimPrefix(err.Error(), "retry")) // name the flag instead of the member
	}
	return policy, nil
}

// printSchedules prints timetables side by side, one row per attempt.
func printSchedules(out io.Writer, tables []explain.Schedule, rows int) {
	longest := 0
	for _, t := range tables {
		fmt.Fprintln(out, headline(t))
		longest = max(longest, len(t.Attempts))
	}
	fmt.Fprintf(out, "\n%s\n", columnTitles(tables))
	for i := 0; i < longest; i++ {
		if hidden := longest - rows + 1; hidden > 1 && i == rows-1-lastRows {
			fmt.Fprintf(out, "%6s  %d more\n", "…", hidden)
			i += hidden - 1
			continue
		}
		fmt.Fprintln(out, attemptRow(tables, i))
	}
	fmt.Fprintln(out)
	for _, t := range tables {
		printTotals(out, t)
	}
}

func headline(t explain.Schedule) string {
	text := fmt.Sprintf("policy %s, deadline %s after creation", t.Policy, exactly(time.Duration(t.Deadline)))
	if t.MaxAttempts > 0 {
		text += fmt.Sprintf(", at most %d attempts", t.MaxAttempts)
	}
	if t.Limited != "" {
		text += "\nlimited by the operator: " + t.Limited
	}
	return text
}

// The layout of one timetable, and of one of several side by side.
const (
	oneColumns  = "  %-21s  %-23s  %s"
	sideColumns = "  %-22.22s %-22s"
)

func columnTitles(tables []explain.Schedule) string {
	if len(tables) == 1 {
		return "     n" + fmt.Sprintf(oneColumns, "delay", "since the first call", "until the deadline")
	}
	titles := "     n"
	for _, t := range tables {
		titles += fmt.Sprintf(sideColumns, t.Policy, "")
	}
	return strings.TrimRight(titles, " ")
}

// attemptRow returns the row of attempt i, counted from 0.
func attemptRow(tables []explain.Schedule, i int) string {
	row := fmt.Sprintf("%6d", i+1)
	if len(tables) == 1 {
		a, delay := tables[0].Attempts[i], "-"
		if i > 0 {
			delay = between(a.ShortestWait, a.LongestWait, 2)
		}
		return row + fmt.Sprintf(oneColumns, delay, between(a.Earliest, a.Latest, 3), plot(a, tables[0].Deadline, 43))
	}
	for _, t := range tables {
		since, position := "", ""
		if i < len(t.Attempts) {
			a := t.Attempts[i]
			since, position = between(a.Earliest, a.Latest, 3), plot(a, t.Deadline, 22)
		}
		row += fmt.Sprintf(sideColumns, since, position)
	}
	return strings.TrimRight(row, " ")
}

func printTotals(out io.Writer, t explain.Schedule) {
	fmt.Fprintf(out, "%s: %s with the longest delays, %s with the shortest\n", t.Policy, attemptCount(t.Longest), attemptCount(t.Shortest))
	last := func(kind string, r explain.Run) {
		end := exactly(time.Duration(t.Deadline-r.Last)) + " before the deadline"
		switch r.Reason {
		case decision.Exhausted:
			end = "the policy allows no more"
		case "":
			end = "followed by more that are not counted"
		}
		fmt.Fprintf(out, "  last attempt with the %s delays: %s after the first call, %s\n", kind, exactly(time.Duration(r.Last)), end)
	}
	last("longest", t.Longest)
	last("shortest", t.Shortest)
}

func attemptCount(r explain.Run) string {
	switch {
	case r.Reason == "":
		return fmt.Sprintf("more than %d attempts", r.Attempts)
	case r.Attempts == 1:
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", r.Attempts)
}

// plot draws when an attempt may be made between the first call and the deadline, on a logarithmic scale.
func plot(a explain.Attempt, deadline explain.Seconds, width int) string {
	at := func(s explain.Seconds) int {
		share := math.Log1p(time.Duration(s).Seconds()) / math.Log1p(time.Duration(deadline).Seconds())
		return min(int(share*float64(width-1)+0.5), width-1)
	}
	from, to := at(a.Earliest), at(a.Latest)
	mark := "│"
	if from < to {
		mark = "├" + strings.Repeat("─", to-from-1) + "┤"
	}
	return strings.Repeat("·", from) + mark + strings.Repeat("·", width-1-to)
}

// between formats a range of durations with their largest units.
func between(from, to explain.Seconds, most int) string {
	a, b := units(time.Duration(from), most), units(time.Duration(to), most)
	if a == b {
		return a
	}
	return a + " - " + b
}
