package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/reconcile"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/program/terminal"
)

func newReconcile(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "reconcile"}
	command := &cobra.Command{
		Use:   "reconcile FILE",
		Short: "Say of each request id of a file whether its call was delivered",
		Long: `Say of each request id of a file whether its call was delivered. Only the history knows delivered
calls: those that ended while ASYNC_CALLER_HISTORY, or history in targets.json, was off are unknown,
which the first line says. FILE, or standard input for -, has an id on each line; with --column it
is CSV, whose first line names the columns, or has a JSON object on each line.

An id is delivered; scheduled: it waits; poison: it is a dead letter; ended otherwise, such as
rejected; several: it has more than one call; or unknown: it was never sent, is on a queue, in
flight or due within 30 s, or nothing has kept how it ended, which cannot be told apart. Callbacks
are not looked for. A Nexus tenant needs --organization and --environment. Nothing is received.

The exit code is 0 if all calls were delivered, 1 if some are dead letters or ended otherwise, and 4
if some wait or are unknown, a part could not be read, or there is no history.`,
		Example: `  async-caller reconcile ids.txt
  async-caller reconcile orders.csv --column orderId --since 2d --state poison,unknown
  async-caller reconcile ids.txt --json | jq -r '[.requestId, .state, .places[0].at] | @csv'`,
		Args: cobra.ExactArgs(1),
	}
	flags := flagsOf(command)
	shared.addApp(flags.FlagSet)
	var q reconcile.Query
	var column string
	var states []string
	flags.StringVar(&column, "column", "", "`name` of the column of CSV, or of the member of JSON, that has the ids")
	parsedCSV(flags, &states, "state", "list only calls in this `state`; may be repeated", parseReconciled)
	flags.suggest("state", reconcile.States()...)
	parsed(flags, &q.Since, "since",
		"read only the history of calls created after this `time` (RFC 3339), or 2h for 2 hours ago", parseAgo)
	flags.StringVar(&q.Tenant.Organization, "organization", "", "`organization` of the tenant, of Nexus messages")
	flags.StringVar(&q.Tenant.Environment, "environment", "", "`environment` of the tenant, of Nexus messages")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.err(); err != nil {
			return err
		}
		file, err := env.open(args[0])
		if err != nil {
			return usageError(err)
		}
		defer file.Close()
		ids, repeated, err := reconcile.ReadIDs(file, column)
		if err != nil {
			return usageError(fmt.Errorf("%s: %w", args[0], err))
		}
		q.IDs = ids
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			return s.reconcile(ctx, q, states, repeated)
		})(cmd, args)
	}
	return command
}

func parseReconciled(state string) (string, error) {
	if !slices.Contains(reconcile.States(), state) {
		return "", fmt.Errorf("%.40q: want one of %s", state, strings.Join(reconcile.States(), ", "))
	}
	return state, nil
}

// reconcile prints what became of calls in the selected states; none means all. Repeated is the number of lines with an
// id of an earlier line.
func (s *session) reconcile(ctx context.Context, q reconcile.Query, states []string, repeated int) error {
	q.OnRead = func(done, total int) { s.progress.count("history", "looked up", done, total) }
	report, err := reconcile.Run(ctx, s.operations, q)
	if err != nil {
		return err
	}
	var listed []reconcile.Result
	counts := map[string]int{}
	for _, r := range report.Results {
		counts[r.State]++
		if len(states) == 0 || slices.Contains(states, r.State) {
			listed = append(listed, r)
		}
	}
	s.noteHistory(report.Tables, counts[reconcile.Unknown])
	s.warnUnread(report.Unread)
	printAll(s, listed, printReconciled)
	var parts []string
	for _, state := range reconcile.States() {
		if counts[state] > 0 {
			parts = append(parts, format.Number(counts[state])+" "+state)
		}
	}
	s.progress.printf("%s: %s", format.Plural(len(q.IDs), "id"), strings.Join(parts, ", "))
	if repeated > 0 {
		s.progress.printf("%s with an id of an earlier line: each id counts once", format.Plural(repeated, "line"))
	}
	const next = "; `async-caller show ID` shows one call"
	isOpen, hasFailed := report.Verdict()
	switch {
	case isOpen:
		return &codeError{exitPartly, errors.New("not known whether all calls are delivered: for those that wait or " +
			"are in flight, run the command again later" + next)}
	case hasFailed:
		return errors.New("not all calls were delivered" + next)
	}
	return nil
}

// noteHistory says which delivered calls the history does not have, if that matters.
func (s *session) noteHistory(tables []string, unknown int) {
	const setting = "ASYNC_CALLER_HISTORY, or history in targets.json, "
	note := "no history of that time can be read, so no call is known as delivered: the app keeps one only while " +
		setting + "is outcomes or check"
	switch {
	case len(tables) > 0 && unknown == 0:
		return
	case len(tables) > 0:
		note = "the history has tables from " + tables[0] + " to " + tables[len(tables)-1] +
			"; a call is in one only if " + setting + "was outcomes or check when it ended"
	}
	if s.hasApp && !s.keepsHistory {
		note += "; in this app folder it is off"
	}
	s.progress.printf("%s", note)
}

// printReconciled prints a line for each place of a call, or one for a call without any.
func printReconciled(out io.Writer, results []reconcile.Result) {
	now := time.Now()
	var rows [][]string
	for _, r := range results {
		if len(r.Places) == 0 {
			rows = append(rows, []string{r.RequestID, r.State, "", "", "", ""})
		}
		for _, p := range r.Places {
			state, reason := r.State, p.Reason
			if len(r.Places) > 1 {
				state += ": " + p.State
			}
			if p.Doubt != "" {
				reason += ", " + p.Doubt
			}
			rows = append(rows, []string{
				r.RequestID, state, format.FromNow(p.At, now), statusText(p.Status), strconv.Itoa(p.Attempts), reason,
			})
		}
	}
	terminal.PrintTable(out, rows, terminal.Name("REQUEST"), terminal.Left("STATE", 0), terminal.Right("WHEN", 0),
		terminal.Right("STATUS", 0), terminal.Right("ATT", 0), terminal.Flex("REASON", 0))
}
