package cli

import (
	"context"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/operation"
)

func newCallsDelete(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "delete [ID]...",
		Short: "Delete calls and keep a copy in the journal",
		Long: `Delete calls. The journal keeps a copy of each, and "runs undo" restores them, a scheduled call with
the delay that remains then. To keep them in a file, use "export" first: "import" restores them.

--callback sends the callbacks of scheduled calls, with reason "cancelled"; an undo does not revoke
these. A scheduled call that is already being delivered is left alone and reported; the exit code is
then 4. --no-backup keeps no copy of dead letters, so they cannot be restored.`,
		Example: `  async-caller calls delete --state poison --reason rejected --status 410
  async-caller calls delete --state scheduled --group 'path=/orders/{n}' --callback --dry-run
  async-caller calls delete --state poison --queue old-poison --no-backup --yes`,
	}
	var options operation.Delete
	var callback bool
	flags := flagsOf(command)
	flags.BoolVar(&callback, "callback", false, "of scheduled calls: send their callbacks, with reason cancelled")
	flags.BoolVar(&options.NoCopy, "no-backup", false, "of dead letters: keep no copy in the journal")
	dryRun := shared.addConfirmation(flags)
	selected := requireCalls(flags)
	command.RunE = shared.withCalls(selected, func(ctx context.Context, s *session, from sources) error {
		err := selected.refuseFlags(from, []string{"no-backup"}, []string{"callback"})
		if err != nil {
			return err
		}
		var plan *operation.Plan
		if from.scheduled != nil {
			plan, err = s.operations.PlanDeleteScheduled(ctx, *from.scheduled, callback)
		} else {
			plan, err = s.operations.PlanDeletePoison(ctx, *from.poison, options)
		}
		return s.executeOrPreview(ctx, plan, err, *dryRun)
	})
	return command
}
