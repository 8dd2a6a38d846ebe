package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/rules/retry"
)

const (
	// lastRows is the number of rows after an ellipsis. fewestRows leaves room for the first row and the
	// ellipsis.
	lastRows   = 3
	fewestRows = lastRows + 2
)

type scheduleOptions struct {
	policy, app string
	deadline    time.Duration
	rows        int
	json        bool
}

func newSchedule(env Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "schedule",
		Short: "Show the attempts of a retry policy",
		Long: `Simulate the handler's rules against a target that never answers, with the shortest and the longest
delays that the jitter allows. Each row shows the delay before an attempt and its time after the
first call, without the duration of calls.

Settings come from the environment and, in the app folder, from local.settings.json and retry.json.
The operator's limits apply.`,
		Example: `  async-caller schedule
  async-caller schedule --policy 5s,1m,10m --deadline 2h
  async-caller schedule --policy '{"baseDelay":"1s","factor":3,"maxDelay":"1h"}' --json`,
		Args: cobra.NoArgs,
	}
	var o scheduleOptions
	flags := flagsOf(command)
	flags.StringVar(&o.policy, "policy", "",
		"`policy`: a name, delays such as 5s,1m,10m, or a JSON object (default as configured)")
	parsed(flags, &o.deadline, "deadline",
		"`duration` from creation to deadline (default as configured)", parseDeadline)
	flags.IntVar(&o.rows, "rows", 30, "maximum number of rows")
	flags.BoolVar(&o.json, "json", false, "print JSON, with all attempts")
	flags.StringVar(&o.app, "app", ".", "app folder with local.settings.json and retry.json")
	command.RunE = func(*cobra.Command, []string) error {
		flags.refuse(o.rows < fewestRows, fmt.Sprintf("--rows: want at least %d", fewestRows))
		if err := flags.err(); err != nil {
			return err
		}
		return o.run(env)
	}
	return command
}

func parseDeadline(text string) (time.Duration, error) {
	want := fmt.Sprintf("a duration such as 90s, 6h or 7d, above 0 and at most %v", config.LongestDeadline)
	return within(bounds.New(1, config.LongestDeadline), want, bounds.ParseDuration)(text)
}

func (o scheduleOptions) run(env Env) error {
	a, err := readApp(env, o.app)
	if err != nil {
		return err
	}
	policy, err := choosePolicy(a.Settings.Rules, o.policy)
	if err != nil {
		return usageError(err)
	}
	schedule := explain.Simulate(a.Settings.Rules, policy, cmp.Or(o.deadline, a.Settings.Rules.Expiration))
	if o.json {
		return printJSON(env.out, schedule)
	}
	printSchedule(env.out, schedule, o.rows)
	return nil
}

// choosePolicy returns the policy of an envelope with the given member retry, or the configured one for "".
func choosePolicy(rules decision.Rules, text string) (retry.Policy, error) {
	member, err := parseRetry(text)
	switch {
	case err != nil:
		return retry.Policy{}, fmt.Errorf("--policy: %w", err)
	case member == nil:
		return rules.Retry, nil
	}
	policy, err := rules.PolicyFor(&envelope.Envelope{Retry: member}, nil)
	if err != nil { // name the flag instead of the member
		return policy, errors.New("--policy" + strings.TrimPrefix(err.Error(), "retry"))
	}
	return policy, nil
}

// printSchedule prints a row per attempt.
func printSchedule(out io.Writer, s explain.Schedule, rows int) {
	limited := ""
	if s.DeadlineLimited {
		limited = " (limited by the operator)"
	}
	policy := policyText(s.Policy, s.MaxAttempts, s.Limited)
	fmt.Fprintf(out, "policy %s, deadline %s after creation%s\n", policy, format.Duration(s.Deadline), limited)
	fmt.Fprintln(out)
	attempts := terminal.NewTable(out,
		terminal.Right("n", 6), terminal.Left("delay", 21), terminal.Flex("since the first call", 0))
	hidden := 0
	if len(s.Attempts) > rows {
		hidden = len(s.Attempts) - rows + 1 // the ellipsis takes a row
	}
	firstHidden := rows - 1 - lastRows
	for i, a := range s.Attempts {
		if hidden > 0 && i == firstHidden {
			attempts.Row("…", strconv.Itoa(hidden)+" more", "")
		}
		if i >= firstHidden && i < firstHidden+hidden {
			continue
		}
		delay := "-"
		if i > 0 {
			delay = format.Range(a.ShortestWait, a.LongestWait)
		}
		attempts.Row(strconv.Itoa(a.N), delay, format.Range(a.Earliest, a.Latest))
	}
	longest, shortest := attemptCount(s.Longest), attemptCount(s.Shortest)
	fmt.Fprintf(out, "\n%s: %s with the longest delays, %s with the shortest\n", s.Policy, longest, shortest)
	printLastAttempt(out, "longest", s.Longest, s.Deadline)
	printLastAttempt(out, "shortest", s.Shortest, s.Deadline)
}

func printLastAttempt(out io.Writer, kind string, r explain.Run, deadline explain.Seconds) {
	end := format.Duration(deadline-r.Last) + " before the deadline"
	if r.Reason == "" {
		end = "followed by more that are not counted"
	}
	if r.Reason == decision.Exhausted {
		end = "the policy allows no more"
	}
	fmt.Fprintf(out, "  last attempt with the %s delays: %s after the first call, %s\n", kind, format.Duration(r.Last),
		end)
}

func attemptCount(r explain.Run) string {
	count := format.Plural(r.Attempts, "attempt")
	if r.Reason == "" {
		return "more than " + count
	}
	return count
}
