package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

func newPoisonRuns(p *poisonFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "runs",
		Short: "List the changes made from this machine",
		Long: `List the journals on this machine, newest first: the command, the number of messages, and the state
of each run. An interrupted run can be resumed or undone.`,
		Example: `  async-caller poison runs`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s := p.newSession()
			account := poison.Account{Runs: p.folder()}
			summaries, err := account.Summaries()
			if err != nil {
				return err
			}
			if len(summaries) == 0 {
				s.status.printf("no runs in %s", account.Runs)
			}
			printAll(s, summaries, printRuns)
			return s.out.err
		},
	}
}

func printRuns(out io.Writer, summaries []poison.RunSummary) {
	row := func(run, command, at, done, state string) {
		fmt.Fprintf(out, "%-28s  %-7s  %8s  %11s  %s\n", run, command, at, done, state)
	}
	row("RUN", "COMMAND", "WHEN", "MESSAGES", "STATE")
	for _, r := range summaries {
		if r.Problem != "" {
			row(r.Run, "-", "-", "-", cut(r.State+": "+r.Problem, 38))
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
		row(r.Run, r.Command, age(time.Since(r.At))+" ago", done, state)
	}
}

func newPoisonUndo(p *poisonFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "undo RUN",
		Short: "Undo a run",
		Long: `Restore the messages of a run to their queues, byte for byte, as far as they are still where the run
put them. Messages that were delivered since are skipped.`,
		Example:           `  async-caller poison undo 20261121-091500-requeue-k3xw`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeRuns,
	}
	var confirm confirmation
	confirm.addTo(flagsOf(command))
	command.RunE = p.withSession(func(ctx context.Context, s *session, args []string) error {
		plan, err := s.account.PlanUndo(ctx, args[0])
		if err != nil {
			return err
		}
		return s.execute(ctx, plan, confirm)
	})
	return command
}

func newPoisonResume(p *poisonFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "resume RUN",
		Short: "Continue an interrupted run",
		Long: `Continue a confirmed run that was interrupted by Ctrl-C, a kill or a storage outage, or that stopped
because too many messages returned.`,
		Example:           `  async-caller poison resume 20261121-091500-requeue-k3xw`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeRuns,
		RunE: p.withSession(func(ctx context.Context, s *session, args []string) error {
			result, err := s.account.Resume(ctx, args[0])
			return s.report(ctx, changeResult{Result: result}, err)
		}),
	}
}

// completeRuns completes the name of a run.
func (p *poisonFlags) completeRuns(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	runs, _ := p.folder().List()
	return runs, cobra.ShellCompDirectiveNoFileComp
}
