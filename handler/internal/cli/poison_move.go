package cli

import (
	"context"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

func newPoisonMove(p *poisonFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "move [ID]... --to QUEUE",
		Short: "Move messages unchanged to another queue",
		Long: `Move messages byte for byte to another queue, which is created if necessary. Use "requeue" to send
messages again: a moved message would arrive as a dead letter.`,
		Example: `  async-caller poison move --to parking --reason malformed`,
	}
	var to string
	var confirm confirmation
	flags := flagsOf(command)
	parsed(flags, &to, "to", "`queue` to move to (required)", parseQueue)
	_ = command.MarkFlagRequired("to") // the flag exists
	confirm.addTo(flags)
	command.RunE = p.change(requireSelection(flags), &confirm, func(ctx context.Context, s *session, source poison.Source) (*poison.Plan, error) {
		return s.account.PlanMove(ctx, source, to)
	})
	return command
}

func newPoisonDelete(p *poisonFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "delete [ID]...",
		Short: "Delete messages and keep a backup",
		Long: `Delete messages after exporting them to a file next to the journal, or to --backup FILE. "undo" and
"import" restore them. With --no-backup, deleted messages cannot be restored.`,
		Example: `  async-caller poison delete --reason rejected --status 410 --backup gone.jsonl
  async-caller poison delete --queue old-poison --no-backup --yes`,
	}
	var backup poison.Backup
	var confirm confirmation
	flags := flagsOf(command)
	flags.StringVar(&backup.Path, "backup", "", "`file` to export the messages to; it must not exist")
	flags.BoolVar(&backup.None, "no-backup", false, "do not keep a copy")
	command.MarkFlagsMutuallyExclusive("backup", "no-backup")
	confirm.addTo(flags)
	command.RunE = p.change(requireSelection(flags), &confirm, func(ctx context.Context, s *session, source poison.Source) (*poison.Plan, error) {
		confirm.typeCount = backup.None
		return s.account.PlanDelete(ctx, source, backup)
	})
	return command
}

func newPoisonKeep(p *poisonFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "keep",
		Short: "Keep messages that storage would delete",
		Long: `Rewrite the messages that the Functions host moved to the poison queues, so that storage does not
delete them after 7 days. Envelopes become dead letters; other content stays unchanged. The
handler's dead letters never expire and are not touched.`,
		Example: `  async-caller poison keep`,
		Args:    cobra.NoArgs,
	}
	var confirm confirmation
	flags := flagsOf(command)
	confirm.addTo(flags)
	command.RunE = p.change(selectQueues(flags), &confirm, func(ctx context.Context, s *session, source poison.Source) (*poison.Plan, error) {
		return s.account.PlanKeep(ctx, source)
	})
	return command
}
