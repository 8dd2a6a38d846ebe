package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
)

// mostCalls limits a drill: it shows that an app delivers, and does not measure its load.
const mostCalls = 1000

func newDrill(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "drill"}
	drill := operation.Drill{Count: 20}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Send calls through an app that runs, and say what becomes of them",
		Long: fmt.Sprintf(`Send calls through the app that runs on the account, say what becomes of each as it is recorded,
and at the end how many were delivered, failed (with the reasons) or are missing, and when the timer
functions of the app last ran. The exit code is 1 if a call failed or is missing.

Each call is a GET, by default of the app's own home page, at the host name that Azure has given to
the app and that the heartbeats of the app record. Give --url if that name is not below
azurewebsites.net, azurewebsites.us or chinacloudsites.cn, if several apps run on the account, or to
call a real target. The request ids, which the target gets as Idempotency-Key, begin with %s.
A call that fails temporarily is retried, but only for %s: then the app drops it, without a dead
letter. A call that is missing is dropped when the app receives it.

The command is refused if the app does not record outcomes, as for --canary. After Ctrl-C, or if the
outcomes cannot be read any more, the other calls are pending, and the exit code is 4.`,
			operation.DrillPrefix, format.Duration(operation.DrillDeadline)),
		Example: `  async-caller drill
  async-caller drill --url https://crm.example.com/health --count 100
  async-caller drill --priority 1 --json | jq .failures`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	plainFlag(flags, &drill.URL, "url", "`URL` to call (default the home page of the app)")
	counts := bounds.New(1, mostCalls)
	parsed(flags, &drill.Count, "count",
		fmt.Sprintf("`number` of calls, at most %d (default %d)", mostCalls, drill.Count),
		within(counts, "a number "+counts.String(), strconv.Atoi))
	parsed(flags, &drill.Priority, "priority", "`priority` of their queue (default the standard queue)", atLeast(1))
	shared.addApp(flags.FlagSet)
	work := shared.withSession(func(ctx context.Context, s *session, _ []string) error { return s.drill(ctx, drill) })
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.err(); err != nil {
			return err
		}
		return work(cmd, args)
	}
	return command
}

func (s *session) drill(ctx context.Context, d operation.Drill) error {
	result, err := s.operations.Drill(ctx, d)
	if result.Sent == 0 {
		return err
	}
	s.out.changed = fmt.Sprintf("%d calls were sent: their request ids begin with %s", result.Sent, result.RequestIDs)
	printAll(s, []operation.DrillResult{result}, printDrill)
	return drillError(result, err)
}

// drillError returns the error of a drill whose calls are not all delivered. Err is why their outcomes are not known.
func drillError(r operation.DrillResult, err error) error {
	if err == nil && r.Missing == nil {
		err = errors.New("interrupted")
	}
	var problems []string
	if r.Failed > 0 {
		problems = append(problems, format.Plural(r.Failed, "call")+" failed")
	}
	switch {
	case r.Missing == nil:
		problems = append(problems, fmt.Sprintf("%s pending: an app that runs makes or drops them by %s",
			format.Plural(r.Pending(), "call"), r.Until.Format(time.TimeOnly+" UTC")))
	case *r.Missing > 0:
		problems = append(problems, format.Plural(*r.Missing, "call")+" missing")
	}
	if len(problems) == 0 {
		return nil
	}
	err = errors.Join(err, errors.New(strings.Join(problems, ", ")))
	if r.Missing == nil && r.Failed == 0 {
		return &codeError{exitPartly, err}
	}
	return &codeError{exitFailed, fmt.Errorf("%w\nfind out why: `async-caller doctor`, `async-caller status`", err)}
}

func printDrill(out io.Writer, results []operation.DrillResult) {
	for _, r := range results {
		terminal.PrintLine(out, "sent", "%s for %s to %s in %s",
			format.Plural(r.Sent, "call"), text.Printable(r.Host), r.Queue, r.Account)
		terminal.PrintLine(out, "delivered", "%s", format.Number(r.Delivered))
		terminal.PrintLine(out, "failed", "%s", format.Number(r.Failed))
		printCounts(out, "reason", r.Failures)
		label := "missing"
		if r.Missing == nil {
			label = "pending"
		}
		terminal.PrintLine(out, label, "%s", format.Number(r.Pending()))
		for _, app := range r.Apps {
			terminal.PrintLine(out, "timers", "%s", timersText(app, r.Began))
		}
	}
}
