package cli

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

func newPoisonRuns(s Surroundings, options *poisonOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "runs",
		Short: "List what was changed from this machine",
		Long: `Runs lists the journals of this machine, the newest first: what was done to how many messages, and
whether it is finished. A run that was interrupted can be resumed or undone.`,
		Example: `  async-caller poison runs
  async-caller poison runs --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			account := poison.Account{Runs: options.folder(s)}
			summaries, err := account.Summaries()
			if err != nil {
				return err
			}
			tell := &teller{err: s.Stderr}
			if len(summaries) == 0 {
				tell.say("no runs in %s", account.Runs)
				return nil
			}
			if options.json {
				for _, summary := range summaries {
					if err := encode(s.Stdout, summary); err != nil {
						return err
					}
				}
				return nil
			}
			printRuns(s.Stdout, summaries, time.Now())
			return nil
		},
	}
}

func printRuns(out io.Writer, summaries []poison.RunSummary, now time.Time) {
	t := table{out: out, columns: []column{
		{title: "RUN", width: len("20060102-150405-requeue-abcd"), whole: true},
		{title: "COMMAND", width: len("requeue")},
		{title: "WHEN", width: 8, right: true},
		{title: "MESSAGES", width: 11, right: true, whole: true},
		{title: "STATE", whole: true},
	}}
	t.head()
	for _, r := range summaries {
		if r.Problem != "" {
			t.row(r.Run, "-", "-", "-", cut(r.State+": "+r.Problem, t.rest()))
			continue
		}
		done := thousands(r.Done)
		if r.Done != r.Total {
			done = strconv.Itoa(r.Done) + "/" + strconv.Itoa(r.Total)
		}
		state := r.State
		switch {
		case r.UndoneBy != "":
			state += " by " + r.UndoneBy
		case r.Of != "" && state == "finished":
			state = "undid " + r.Of
		case r.Of != "":
			state += ", undoing " + r.Of
		}
		t.row(r.Run, r.Command, age(now.Sub(r.At))+" ago", done, state)
	}
}

func newPoisonUndo(s Surroundings, options *poisonOptions) *cobra.Command {
	var agreement consent
	command := &cobra.Command{
		Use:   "undo RUN",
		Short: "Put the messages of a run back as they were",
		Long: `Undo puts the messages of a run back where they were, byte for byte as they were, as far as they
still are where the run put them: what was delivered meanwhile is delivered, and left alone.`,
		Example: `  async-caller poison undo 20261121-091500-requeue-k3xw
  async-caller poison undo 20261121-091500-requeue-k3xw --yes --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: options.completeRuns(s),
		RunE: func(cmd *cobra.Command, args []string) error {
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				plan, err := d.account.PlanUndo(ctx, args[0])
				if err != nil {
					return err
				}
				return d.carryOut(ctx, plan, agreement)
			})
		},
	}
	agreement.addTo(command)
	return command
}

func newPoisonResume(s Surroundings, options *poisonOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "resume RUN",
		Short: "Go on with a run that was interrupted",
		Long: `Resume does what is left of a run that was agreed to and then interrupted: by Ctrl-C, by a kill,
by storage that was away, or by itself because too many messages came back.`,
		Example: `  async-caller poison resume 20261121-091500-requeue-k3xw
  async-caller poison resume 20261121-091500-requeue-k3xw --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: options.completeRuns(s),
		RunE: func(cmd *cobra.Command, args []string) error {
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				result, err := d.account.Resume(ctx, args[0])
				return d.report(ctx, outcome{Result: result}, undoable(result.Command), err)
			})
		},
	}
}

// completeRuns suggests the runs of this machine.
func (o *poisonOptions) completeRuns(s Surroundings) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		runs, _ := o.folder(s).List()
		return runs, cobra.ShellCompDirectiveNoFileComp
	}
}
