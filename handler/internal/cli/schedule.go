package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/config"
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
	// maxScheduleDeadline is the maximum of ASYNC_CALLER_MAX_DEADLINE.
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
delays that the jitter allows. Each row shows the delay before an attempt, its time after the first
call, and its position before the deadline on a logarithmic scale, without the duration of calls.

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
		flags.refuse(o.rows < fewestRows, fmt.Sprintf("--rows: want at least %d", fewestRows))
		flags.refuse(o.compare != nil && len(o.compare) != 2, "--compare: want two policy names, such as exponential,nexus")
		if err := flags.err(); err != nil {
			return err
		}
		return o.run(env)
	}
	return command
}

func parseDeadline(text string) (time.Duration, error) {
	want := fmt.Sprintf("a duration such as 90s, 6h or 7d, above 0 and at most %v", maxScheduleDeadline)
	return within(1, maxScheduleDeadline, want, config.ParseDuration)(text)
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
	o.deadline = cmp.Or(o.deadline, a.rules.Expiration)
	var schedules []explain.Schedule
	var problems []error
	for _, text := range policies {
		policy, err := choosePolicy(a.rules, flag, text)
		problems = append(problems, err)
		if err == nil {
			schedules = append(schedules, explain.Simulate(a.rules, policy, o.deadline))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return usageError(err)
	}
	if !o.json {
		printSchedules(env.Stdout, schedules, o.rows)
		return nil
	}
	for _, table := range schedules {
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
		return rules.Retry, nil
	}
	policy, err := rules.PolicyFor(&envelope.Envelope{Retry: member})
	if err != nil {
		return policy, errors.New(flag + strings.TrimPrefix(err.Error(), "retry")) // name the flag instead of the member
	}
	return policy, nil
}

// printSchedules prints schedules side by side, one row per attempt.
func printSchedules(out io.Writer, schedules []explain.Schedule, rows int) {
	longest, row := 0, attemptRow
	titles := fmt.Sprintf("%6s  %-21s  %-23s  %s", "n", "delay", "since the first call", "until the deadline")
	if len(schedules) > 1 {
		titles, row = fmt.Sprintf("%6s  %-45.22s  %.22s", "n", schedules[0].Policy, schedules[1].Policy), comparisonRow
	}
	for _, t := range schedules {
		limited := ""
		if t.DeadlineLimited {
			limited = " (limited by the operator)"
		}
		fmt.Fprintf(out, "policy %s, deadline %s after creation%s\n", policyText(t.Policy, t.MaxAttempts, t.Limited), exactly(t.Deadline), limited)
		longest = max(longest, len(t.Attempts))
	}
	fmt.Fprintf(out, "\n%s\n", titles)
	for i := 0; i < longest; i++ {
		if hidden := longest - rows + 1; hidden > 1 && i == rows-1-lastRows {
			fmt.Fprintf(out, "%6s  %d more\n", "…", hidden)
			i += hidden - 1
			continue
		}
		printRow(out, "%6d%s", i+1, row(schedules, i))
	}
	fmt.Fprintln(out)
	for _, t := range schedules {
		fmt.Fprintf(out, "%s: %s with the longest delays, %s with the shortest\n", t.Policy, attemptCount(t.Longest), attemptCount(t.Shortest))
		printLastAttempt(out, "longest", t.Longest, t.Deadline)
		printLastAttempt(out, "shortest", t.Shortest, t.Deadline)
	}
}

// attemptRow describes attempt i, counted from 0, of one schedule.
func attemptRow(schedules []explain.Schedule, i int) string {
	a, delay := schedules[0].Attempts[i], "-"
	if i > 0 {
		delay = between(a.ShortestWait, a.LongestWait, 2)
	}
	return fmt.Sprintf("  %-21s  %-23s  %s", delay, between(a.Earliest, a.Latest, 3), plot(a, schedules[0].Deadline, 43))
}

// comparisonRow describes attempt i of several schedules.
func comparisonRow(schedules []explain.Schedule, i int) (row string) {
	for _, t := range schedules {
		since, position := "", ""
		if i < len(t.Attempts) {
			since, position = between(t.Attempts[i].Earliest, t.Attempts[i].Latest, 3), plot(t.Attempts[i], t.Deadline, 22)
		}
		row += fmt.Sprintf("  %-22s %-22s", since, position)
	}
	return row
}

func printLastAttempt(out io.Writer, kind string, r explain.Run, deadline explain.Seconds) {
	end := exactly(deadline-r.Last) + " before the deadline"
	if r.Reason == "" {
		end = "followed by more that are not counted"
	}
	if r.Reason == decision.Exhausted {
		end = "the policy allows no more"
	}
	fmt.Fprintf(out, "  last attempt with the %s delays: %s after the first call, %s\n", kind, exactly(r.Last), end)
}

func attemptCount(r explain.Run) string {
	count := plural(r.Attempts, "attempt")
	if r.Reason == "" {
		return "more than " + count
	}
	return count
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
