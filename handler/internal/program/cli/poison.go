package cli

import (
	"github.com/spf13/cobra"
)

func newPoison(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "poison"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Show, fix and resend messages that could not be delivered",
		Long: `Work with the messages on the poison queues, <queue>-poison: dead letters, malformed messages, and
messages that the Functions host moved there because the handler crashed or timed out.

A command that changes messages shows its plan and asks for confirmation; without a terminal it
requires --yes. A journal records each run: "async-caller runs" lists, undoes and resumes them.
Messages are written before they are deleted, so an interruption
can leave a message in two places, but never in none.

Secrets are masked unless you give --reveal. Journals and exports contain whole messages; only their
owner can read these files.`,
		Example: `  async-caller poison queues
  async-caller poison list --group-by error
  async-caller poison requeue --reason expired --since 2h --canary 5`,
	}
	onlyCommands(command)
	shared.declare(command)
	command.AddCommand(
		newPoisonQueues(shared), newPoisonList(shared),
		newPoisonRequeue(shared), newPoisonMove(shared), newPoisonDelete(shared), newPoisonKeep(shared),
		newPoisonExport(shared), newPoisonImport(shared),
	)
	return command
}
