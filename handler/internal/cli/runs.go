package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/terminal"
)

func newRuns(shared *sharedFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "runs",
		Short: "List the changes of messages, and who made them",
		Long: `List the runs of this machine and, from the table of the account, those of colleagues, newest first:
the command, the user, the number of messages, and the state. An interrupted run can be resumed, and
a finished one undone, on the machine that has its journal.`,
		Example: "  async-caller " + shared.group + " runs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := shared.newSession()
			operations := operation.Operations{Account: &account.Account{}, Journals: shared.folder()}
			if a, err := readApp(shared.env, shared.app); err == nil {
				operations.Account.Name = a.Connection.Account()
				operations.Outcomes = operation.OpenTables(a).Outcomes
			}
			summaries, missing, err := operations.Summaries(cmd.Context())
			if err != nil {
				return err
			}
			if len(summaries) == 0 {
				s.progress.printf("no runs in %s", operations.Journals)
			}
			printAll(s, summaries, printRuns)
			if missing != nil {
				return &codeError{exitPartly, fmt.Errorf("only the runs of this machine: %w", missing)}
			}
			return nil
		},
	}
}

func printRuns(out io.Writer, summaries []operation.RunSummary) {
	// The name of a run has its command, and other commands need the whole name.
	const longestName = 16 // others are cut, so that the state keeps the names of other runs
	names := max(1, min(terminal.Widest(summaries, runBy), longestName))
	rows := terminal.NewTable(out, terminal.Left("RUN", 28), terminal.Right("AGE", 4), terminal.Right("MESSAGES", 8),
		terminal.Flex("BY", names), terminal.Flex("STATE", 0))
	for _, r := range summaries {
		if r.Problem != "" {
			rows.Row(r.Run, "-", "-", "-", r.State+": "+r.Problem)
			continue
		}
		done := thousands(r.Done)
		if r.Done != r.Total {
			done = strconv.Itoa(r.Done) + "/" + strconv.Itoa(r.Total)
		}
		state := r.State
		if r.UndoneBy != "" {
			state += " by " + r.UndoneBy
		} else if r.Of != "" {
			state += ", undo of " + r.Of
		}
		rows.Row(r.Run, age(time.Since(r.At)), done, runBy(r), state)
	}
}

// runBy says who has made a run.
func runBy(r operation.RunSummary) string {
	if r.Here {
		return r.User
	}
	return r.User + "@" + r.Machine
}

func newUndo(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "undo RUN",
		Short: "Undo a run",
		Long: `Restore the messages of a run to their queues, byte for byte, if they are still where the run put
them. Messages that were delivered, received or moved since cannot be restored: they are counted. If
there are no others, the exit code is 3 and the state of the run does not change.`,
		Example:           "  async-caller " + shared.group + " undo " + shared.sampleRun,
		Args:              shared.oneRun,
		ValidArgsFunction: shared.completeRuns,
	}
	shared.addYes(flagsOf(command))
	command.RunE = shared.withSession(func(ctx context.Context, s *session, args []string) error {
		plan, err := s.operations.PlanUndo(ctx, args[0])
		return s.execute(ctx, plan, err)
	})
	return command
}

func newResume(shared *sharedFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "resume RUN",
		Short: "Continue an interrupted run",
		Long: `Continue a confirmed run that was interrupted by Ctrl-C, a kill or a storage outage, or that stopped
because calls failed.`,
		Example:           "  async-caller " + shared.group + " resume " + shared.sampleRun,
		Args:              shared.oneRun,
		ValidArgsFunction: shared.completeRuns,
		RunE: shared.withSession(func(ctx context.Context, s *session, args []string) error {
			result, err := s.operations.Resume(ctx, args[0])
			return s.report(ctx, result, false, err)
		}),
	}
}

// oneRun refuses a command without the name of one run.
func (shared *sharedFlags) oneRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name a run: `async-caller %s runs` lists them", shared.group)
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
