package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

func newPoisonMove(s Surroundings, options *poisonOptions) *cobra.Command {
	var which selection
	var agreement consent
	var all everything
	var to string
	command := &cobra.Command{
		Use:   "move [ID]... --to QUEUE",
		Short: "Move messages to another queue as they are",
		Long: `Move puts messages on another queue, byte for byte as they are, out of the way or where somebody
else looks after them. The queue is made if it does not exist. It is no way to send messages
again: they would arrive as dead letters. That is "requeue".`,
		Example: `  async-caller poison move --to parking --reason malformed
  async-caller poison move --to parking 4f1c2a9e 0b7d3c55 --yes`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			source, err := which.source(ids, time.Now())
			if err == nil {
				err = all.check(&which, ids)
			}
			if err == nil && to == "" {
				err = wrongUsage(errors.New("--to: name the queue to move to"))
			}
			if err == nil {
				err = wrongUsage(checkQueue("--to", to))
			}
			if err != nil {
				return err
			}
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				plan, err := d.account.PlanMove(ctx, source, to)
				if err != nil {
					return err
				}
				return d.carryOut(ctx, plan, agreement)
			})
		},
	}
	flagsOf(command).StringVar(&to, "to", "", "queue to move to")
	agreement.addTo(command)
	which.addTo(command)
	all.addTo(command)
	return command
}

func newPoisonDelete(s Surroundings, options *poisonOptions) *cobra.Command {
	var which selection
	var agreement consent
	var all everything
	var backup poison.Backup
	command := &cobra.Command{
		Use:   "delete [ID]...",
		Short: "Delete messages, and keep a copy of them",
		Long: `Delete deletes messages for good. Before, it exports them to a file beside its journal, or to
--backup FILE, which must not exist: "undo" puts them back, and so does "import" of that file, on
any machine. With --no-backup nothing is kept.`,
		Example: `  async-caller poison delete 4f1c2a9e
  async-caller poison delete --reason rejected --status 410 --backup gone.jsonl
  async-caller poison delete --queue old-poison --no-backup --yes`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			source, err := which.source(ids, time.Now())
			if err == nil {
				err = all.check(&which, ids)
			}
			if err == nil && backup.None && backup.Path != "" {
				err = wrongUsage(errors.New("--backup and --no-backup exclude one another"))
			}
			if err != nil {
				return err
			}
			agreement.typed = backup.None
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				plan, err := d.account.PlanDelete(ctx, source, backup)
				if err != nil {
					return err
				}
				return d.carryOut(ctx, plan, agreement)
			})
		},
	}
	flagsOf(command).StringVar(&backup.Path, "backup", "", "file to export the messages to; it must not exist")
	flagsOf(command).BoolVar(&backup.None, "no-backup", false, "keep no copy: the messages are gone")
	agreement.addTo(command)
	which.addTo(command)
	all.addTo(command)
	return command
}

func newPoisonKeep(s Surroundings, options *poisonOptions) *cobra.Command {
	var where selection
	var agreement consent
	command := &cobra.Command{
		Use:   "keep",
		Short: "Keep messages that storage would delete",
		Long: `Keep writes the messages anew that the Functions host moved to the poison queues itself, which
storage deletes after 7 days: as dead letters, which never expire. What is no envelope stays as it
is, but for the expiry. Dead letters of the handler never expire and are left alone.`,
		Example: `  async-caller poison keep
  async-caller poison keep --queue async-caller-poison --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := where.source(nil, time.Now())
			if err != nil {
				return err
			}
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				plan, err := d.account.PlanKeep(ctx, source)
				if err != nil {
					return err
				}
				return d.carryOut(ctx, plan, agreement)
			})
		},
	}
	agreement.addTo(command)
	where.addQueue(command)
	return command
}
