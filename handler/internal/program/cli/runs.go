package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/program/terminal"
)

func newRuns(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "runs"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "List, undo and resume the changes of messages",
		Long: `A run is one execution of a command that changes messages. Its journal is on the machine of the
command: only there can the run be resumed or undone. A table of the account lists the runs of all
machines for 90 days.`,
		Example: `  async-caller runs list --since 2d
  async-caller runs list 20261121-091500-requeue-k3xw`,
	}
	onlyCommands(command)
	shared.declare(command)
	command.AddCommand(
		newRunsList(shared), newRunsResume(shared), newRunsUndo(shared), newRunsDelete(shared),
	)
	return command
}

// runFilter selects runs. A zero field selects all.
type runFilter struct {
	since         time.Time
	user, command string
}

// selects reports whether a run matches. Only Run and State are known of a run whose journal cannot be read: such a run
// matches only a filter that selects all.
func (f runFilter) selects(r operation.RunSummary) bool {
	isBy := f.user == "" || f.user == r.User || f.user == r.Identity
	isCommand := f.command == "" || f.command == r.Command || f.command == verb(r.Command)
	return !r.At.Before(f.since) && isBy && isCommand
}

func newRunsList(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "list [RUN]",
		Short: "List the changes of messages, and who made them, or show one",
		Long: `List the runs on this account, newest first: those of this machine and, from the table of the
account, those of others. The second line of a run is its command line, in which "…" stands for a
value that may be a secret. With RUN, show one run: what became of its messages, and whether and
where it can be resumed or undone.`,
		Example: `  async-caller runs list
  async-caller runs list 20261121-091500-requeue-k3xw
  async-caller runs list --since 2d --user ann --command requeue --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: shared.completeRuns,
	}
	var filter runFilter
	flags := flagsOf(command)
	parsed(flags, &filter.since, "since", "only runs after this `time` (RFC 3339), or 2h for 2 hours ago", parseAgo)
	parsed(flags, &filter.user, "user", "only runs of this `user` or Azure identity", parseText)
	parsed(flags, &filter.command, "command", "only runs of this `command`, such as retry, edit or move", parseText)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		flags.refuse(len(args) > 0 && filter != runFilter{}, "RUN excludes --since, --user and --command")
		if err := flags.err(); err != nil {
			return err
		}
		return shared.withSession(func(ctx context.Context, s *session, args []string) error {
			if len(args) > 0 {
				return s.showRun(ctx, args[0])
			}
			return s.listRuns(ctx, filter)
		})(cmd, args)
	}
	return command
}

func (s *session) listRuns(ctx context.Context, filter runFilter) error {
	runs, err := s.operations.Runs(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	listed := slices.DeleteFunc(runs.All, func(r operation.RunSummary) bool { return !filter.selects(r) })
	if s.json {
		for _, r := range listed {
			_ = printJSON(s.out, r) // output keeps the error
		}
	} else if len(listed) > 0 {
		printRuns(s.out, listed, now)
	}
	if len(listed) == 0 {
		s.progress.printf("no runs on %s", s.account.Name)
	}
	if runs.OtherAccounts > 0 {
		s.progress.printf("not listed: %s of other accounts in %s",
			format.Plural(runs.OtherAccounts, "run"), s.operations.Journals)
	}
	if runs.Missing != nil {
		return &codeError{exitPartly, fmt.Errorf("only the runs of this machine: %w", runs.Missing)}
	}
	return nil
}

func (s *session) showRun(ctx context.Context, id string) error {
	detail, err := s.operations.Run(ctx, id)
	switch {
	case err != nil:
		return err
	case s.json:
		return printJSON(s.out, detailJSON(detail))
	}
	printRun(s.out, detail, time.Now())
	return nil
}

func printRuns(out io.Writer, summaries []operation.RunSummary, now time.Time) {
	// The name of a run has its command, and other commands need the whole name.
	const longestName = 16 // others are cut, so that the state keeps the names of other runs
	names := max(1, min(terminal.Widest(summaries, operation.RunSummary.By), longestName))
	rows := terminal.NewTable(out, terminal.Left("RUN", 28), terminal.Right("AGE", 4), terminal.Right("MESSAGES", 8),
		terminal.Flex("BY", names), terminal.Flex("STATE", 0))
	for _, r := range summaries {
		if r.Problem != "" {
			rows.Row(r.Run, "-", "-", "-", r.State+": "+r.Problem)
			continue
		}
		done := format.Number(r.Done)
		if r.Setting {
			done = "-"
		}
		if r.Done != r.Total {
			done = strconv.Itoa(r.Done) + "/" + strconv.Itoa(r.Total)
		}
		rows.Row(r.Run, format.Age(now.Sub(r.At)), done, r.By(), r.StateText(now))
		if r.CommandLine != "" {
			fmt.Fprintln(out, terminal.Cut("  "+terminal.Text(r.CommandLine), terminal.Width(out)))
		}
	}
}

// runDetailJSON is a run in JSON with its counts, which are null for a run of another machine.
type runDetailJSON struct {
	operation.RunSummary

	Counts  *runCounts   `json:"counts"`
	Reasons []reasonText `json:"reasons"`
	Next    []string     `json:"next"`
}

// runCounts counts the messages of a run by their state.
type runCounts struct {
	Done               int `json:"done"`
	Skipped            int `json:"skipped"`
	Unknown            int `json:"unknown"`
	NotDeleted         int `json:"both"`
	Left               int `json:"left"`
	PossibleDuplicates int `json:"twice"`
}

func detailJSON(d operation.RunDetail) runDetailJSON {
	r := d.Result
	described := runDetailJSON{
		RunSummary: d.RunSummary, Reasons: groupReasons(r.Why), Next: nextForRun(d),
	}
	if d.Here {
		described.Counts = &runCounts{r.Done, r.Skipped, r.Unknown, r.NotDeleted, r.Left, r.PossibleDuplicates}
	}
	return described
}

// reasonText is why some messages of a run were skipped.
type reasonText struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
}

// groupReasons counts equal reasons for skipping messages, the most frequent first. Each text begins with the name of
// its message, which has no colon before a space.
func groupReasons(texts []string) []reasonText {
	groups := []reasonText{}
	for _, text := range texts {
		_, why, found := strings.Cut(text, ": ")
		if !found {
			why = text
		}
		at := slices.IndexFunc(groups, func(g reasonText) bool { return g.Why == why })
		if at < 0 {
			groups = append(groups, reasonText{why, 1})
		} else {
			groups[at].Count++
		}
	}
	slices.SortStableFunc(groups, func(a, b reasonText) int { return cmp.Compare(b.Count, a.Count) })
	return groups
}

func printRun(out io.Writer, d operation.RunDetail, now time.Time) {
	r := d.Result
	terminal.PrintLine(out, "run", "%s", d.Run)
	terminal.PrintLine(out, "state", "%s", terminal.Text(d.StateText(now)))
	if !d.At.IsZero() {
		terminal.PrintLine(out, "began", "%s, %s ago", format.Moment(d.At), format.Age(now.Sub(d.At)))
	}
	if !d.End.IsZero() {
		terminal.PrintLine(out, "ended", "%s", format.Moment(d.End))
	}
	if !d.Seen.IsZero() && d.State == run.Running {
		terminal.PrintLine(out, "last seen", "%s", format.Moment(d.Seen))
	}
	terminal.PrintField(out, "by", terminal.Text(d.User))
	terminal.PrintField(out, "machine", terminal.Text(d.Machine))
	terminal.PrintField(out, "account", terminal.Text(d.Account))
	terminal.PrintField(out, "command", terminal.Text(cmp.Or(d.CommandLine, verb(d.Command))))
	if d.CommandLine == "" {
		terminal.PrintField(out, "selection", terminal.Text(d.Filter))
	}
	if !d.Setting {
		terminal.PrintLine(out, "messages", "%s of %s done", format.Number(d.Done), format.Number(d.Total))
	}
	for _, count := range []struct {
		n    int
		text string
	}{
		{r.Skipped - r.Unknown, "skipped"},
		{r.Unknown, "result not known"},
		{r.NotDeleted, "written, but not yet deleted at the source"},
		{r.Left, "left"},
		{r.PossibleDuplicates, "of those done, perhaps there twice"},
	} {
		if count.n > 0 {
			terminal.PrintLine(out, "", "%s %s", format.Number(count.n), count.text)
		}
	}
	reasons := groupReasons(r.Why)
	for _, reason := range reasons[:min(len(reasons), mostReports)] {
		terminal.PrintLine(out, "skipped", "%s: %s", format.Messages(reason.Count), terminal.Text(reason.Why))
	}
	for _, text := range nextForRun(d) {
		terminal.PrintLine(out, "next", "%s", terminal.Text(text))
	}
}

// nextForRun says whether and where a run can be resumed, undone and deleted.
func nextForRun(d operation.RunDetail) []string {
	if !d.Here {
		return []string{elsewhere(d.RunSummary)}
	}
	name := format.ShellWord(d.Run)
	resume := fmt.Sprintf("resume: `async-caller runs resume %s`", name)
	remove := fmt.Sprintf("delete its journal: `async-caller runs delete %s`", name)
	switch {
	case d.Problem != "":
		return []string{}
	case d.UndoneBy != "":
		return []string{fmt.Sprintf("its undo: `async-caller runs list %s`", format.ShellWord(d.UndoneBy)), remove}
	case d.State == run.Running:
		return []string{"it is being carried out on this machine"}
	case d.State == run.Interrupted:
		return []string{resume}
	case d.Undoable > 0 && d.Of == "":
		return []string{fmt.Sprintf("undo: `async-caller runs undo %s`", name), remove}
	}
	return []string{remove}
}

// elsewhere says where the journal of a run is.
func elsewhere(r operation.RunSummary) string {
	switch {
	case r.Setting:
		return "it has changed a setting of a target, and no messages: there is nothing to resume or undo; " +
			settingsText
	case !r.KeepsJournal():
		return "it has deleted messages for good: there is nothing to resume or undo"
	}
	return fmt.Sprintf("the journal of this run is on %s (%s): resume and undo it there",
		cmp.Or(r.Machine, "another machine"), cmp.Or(r.User, "unknown user"))
}

// explainNoRun completes the error for a run that has no journal here: a row may say where it is.
func (s *session) explainNoRun(ctx context.Context, id string, err error) error {
	if !errors.Is(err, journal.ErrNoRun) {
		return err
	}
	detail, rowErr := s.operations.Run(ctx, id)
	if rowErr != nil || detail.Here {
		return err
	}
	if !detail.KeepsJournal() {
		return &codeError{exitNothing, fmt.Errorf("%s: %s", id, elsewhere(detail.RunSummary))}
	}
	return fmt.Errorf("%w\n%s", err, elsewhere(detail.RunSummary))
}

func newRunsUndo(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "undo RUN",
		Short: "Undo a run",
		Long: `Restore the messages of a run to their queues, byte for byte, if they are still where the run put
them. Messages that were delivered, received or moved since cannot be restored: they are counted. If
there are no others, the exit code is 3 and the state of the run does not change.`,
		Example: `  async-caller runs undo 20261121-091500-requeue-k3xw --dry-run
  async-caller runs undo 20261121-091500-requeue-k3xw`,
		Args:              oneRun,
		ValidArgsFunction: shared.completeRuns,
	}
	dryRun := shared.addConfirmation(flagsOf(command))
	command.RunE = shared.withSession(func(ctx context.Context, s *session, args []string) error {
		plan, err := s.operations.PlanUndo(ctx, args[0])
		return s.executeOrPreview(ctx, plan, s.explainNoRun(ctx, args[0], err), *dryRun)
	})
	return command
}

func newRunsResume(shared *sharedFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "resume RUN",
		Short: "Continue an interrupted run",
		Long: `Continue a confirmed run that was interrupted by Ctrl-C, a kill or a storage outage, or that stopped
because calls failed.`,
		Example:           "  async-caller runs resume 20261121-091500-requeue-k3xw",
		Args:              oneRun,
		ValidArgsFunction: shared.completeRuns,
		RunE: shared.withSession(func(ctx context.Context, s *session, args []string) error {
			result, err := s.operations.Resume(ctx, args[0])
			isFinal := !s.operations.CanUndo(args[0])
			return s.report(ctx, result, isFinal, s.explainNoRun(ctx, args[0], err))
		}),
	}
}

func newRunsDelete(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "delete RUN",
		Short: "Delete the journal of a run",
		Long: `Delete the journal of a run from this machine, and its row in the table of the account. A journal
holds whole messages; of deleted messages it is the only copy. Without it the run can
be neither undone nor resumed. --force is required for a run that is not finished, or whose journal
cannot be read. The journal of a run that a process is carrying out is never deleted.`,
		Example: `  async-caller runs delete 20261121-091500-delete-k3xw
  async-caller runs delete 20261121-091500-delete-k3xw --yes`,
		Args:              oneRun,
		ValidArgsFunction: shared.completeRuns,
	}
	var force bool
	flags := flagsOf(command)
	flags.BoolVar(&force, "force", false, "also delete the journal of a run that is unfinished or unreadable")
	shared.addYes(flags)
	command.RunE = shared.withSession(func(ctx context.Context, s *session, args []string) error {
		return s.deleteRun(ctx, args[0], force)
	})
	return command
}

func (s *session) deleteRun(ctx context.Context, id string, force bool) error {
	detail, err := s.operations.Run(ctx, id)
	isUnreadable := err != nil && !errors.Is(err, journal.ErrNoRun) && !errors.Is(err, run.ErrOtherAccount)
	switch {
	case isUnreadable && force:
	case err != nil:
		return err
	case !detail.KeepsJournal():
		return &codeError{exitNothing, fmt.Errorf("%s has no journal: %s", id, elsewhere(detail.RunSummary))}
	case !detail.Here:
		return &codeError{exitNothing, fmt.Errorf("%s: %w here; the journal of this run is on %s (%s): delete it there",
			id, journal.ErrNoRun, detail.Machine, detail.User)}
	}
	question := fmt.Sprintf("delete the journal of %s? The run can then be neither undone nor resumed. [y/N]", id)
	if err := s.ask(ctx, question, terminal.IsYes); err != nil {
		return err
	}
	unlisted, err := s.operations.DeleteRun(ctx, id, force)
	if err != nil {
		return err
	}
	s.progress.printf("deleted the journal of %s; the run can no longer be undone or resumed", id)
	s.out.changed = "the journal of " + id + " is deleted"
	if s.json {
		_ = printJSON(s.out, map[string]any{"run": id, "deleted": true}) // output keeps the error
	}
	if unlisted != nil {
		return &codeError{exitPartly, fmt.Errorf("its row in the list of runs was not deleted: %w", unlisted)}
	}
	return nil
}

// oneRun refuses a command without the name of one run.
func oneRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name a run: `async-caller runs list` lists them")
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// completeRuns completes the name of a run.
func (shared *sharedFlags) completeRuns(
	_ *cobra.Command, args []string, _ string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	runs, _ := shared.folder().List()
	return runs, cobra.ShellCompDirectiveNoFileComp
}
