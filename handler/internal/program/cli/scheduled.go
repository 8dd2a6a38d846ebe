package cli

import (
	"context"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
)

func newScheduled(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "scheduled"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Show, edit, expedite and cancel calls that wait for their next attempt",
		Long: `Work with messages that were rescheduled by 30 s or more. They are invisible on their queues; the
handler records them in a table of the storage account. The record can miss messages, or have some
that are gone; storage decides whether a message can still be changed.

A command that changes messages shows its plan and asks for confirmation; without a terminal it
requires --yes. A journal records each run: "async-caller runs" lists, undoes and resumes them.
Journals contain whole messages; only their owner can read them.`,
		Example: `  async-caller scheduled list --group-by host
  async-caller scheduled edit --host old.example.com --replace-host old.example.com=new.example.com
  async-caller scheduled expedite --host crm.example.com --canary 3 --rate 50/s
  async-caller scheduled cancel --host old.example.com --callback`,
	}
	onlyCommands(command)
	shared.declare(command)
	command.AddCommand(
		newScheduledList(shared), newScheduledExport(shared),
		newScheduledEdit(shared), newScheduledExpedite(shared), newScheduledCancel(shared),
	)
	return command
}

// requireScheduled is [selectScheduled] for commands that change messages.
func requireScheduled(flags *flagSet) *selection {
	return selectScheduled(flags).require("select all scheduled messages")
}

// withScheduled returns the RunE of a command that works on the selected scheduled messages.
func (shared *sharedFlags) withScheduled(
	selected *selection, work func(context.Context, *session, account.Source) error,
) runFunc {
	return shared.withSelection(selected, func(ctx context.Context, s *session, source account.Source) error {
		if err := s.account.CheckScheduledQueues(ctx, source); err != nil {
			return err
		}
		return work(ctx, s, source)
	})
}
