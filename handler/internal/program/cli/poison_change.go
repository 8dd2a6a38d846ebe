package cli

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/format"
)

func newPoisonMove(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "move [ID]... --to QUEUE",
		Short: "Move messages unchanged to another queue",
		Long: `Move messages byte for byte to another queue, which must exist. "queues" shows dead letters there.
To send messages again, use "requeue": a moved one would arrive as a dead letter. --force is
required to move the content of a call of a route to a queue without one, where it would be read as
an envelope, and an envelope to a queue with a route.`,
		Example: `  async-caller poison move --to parking --reason malformed`,
	}
	var to string
	flags := flagsOf(command)
	parsed(flags, &to, "to", "`queue` to move to (required)", parseQueue)
	_ = command.MarkFlagRequired("to") // the flag exists
	dryRun := shared.addConfirmation(flags)
	command.RunE = shared.withSelection(requirePoison(flags),
		func(ctx context.Context, s *session, source account.Source) error {
			plan, err := s.operations.PlanMove(ctx, source, to)
			return s.executeOrPreview(ctx, plan, err, *dryRun)
		})
	return command
}

func newPoisonDelete(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "delete [ID]...",
		Short: "Delete messages and keep a copy in the journal",
		Long: `Delete messages. The journal keeps a copy of each, and "runs undo" restores them; with --no-backup,
they cannot be restored. To keep them in a file, use "export" first: "import" restores them.`,
		Example: `  async-caller poison delete --reason rejected --status 410
  async-caller poison delete --queue old-poison --no-backup --yes`,
	}
	var options operation.Delete
	flags := flagsOf(command)
	flags.BoolVar(&options.NoCopy, "no-backup", false, "do not keep a copy in the journal")
	dryRun := shared.addConfirmation(flags)
	command.RunE = shared.withSelection(requirePoison(flags),
		func(ctx context.Context, s *session, source account.Source) error {
			plan, err := s.operations.PlanDeletePoison(ctx, source, options)
			return s.executeOrPreview(ctx, plan, err, *dryRun)
		})
	return command
}

func newPoisonKeep(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "keep",
		Short: "Keep messages that storage would delete",
		Long: `Rewrite the messages that the Functions host moved to the poison queues, so that storage does not
delete them after 7 days. Envelopes become dead letters; other content stays unchanged. The
handler's dead letters never expire and are not touched. Keep has no journal and cannot be undone.
If messages are left, run it again.`,
		Example: `  async-caller poison keep`,
		Args:    cobra.NoArgs,
	}
	flags := flagsOf(command)
	dryRun := shared.addConfirmation(flags)
	command.RunE = shared.withSelection(selectQueues(flags),
		func(ctx context.Context, s *session, source account.Source) error {
			return s.keep(ctx, source, *dryRun)
		})
	return command
}

// keep does what the keeper of the app does, after a confirmation. It has no journal: the next command
// keeps the messages that are left.
func (s *session) keep(ctx context.Context, source account.Source, dryRun bool) error {
	plan, err := operation.PlanKeep(ctx, s.account, source)
	switch {
	case err != nil:
		return err
	case dryRun || plan.Total == 0:
		return s.showPreview(plan)
	}
	s.announce(plan)
	if err := s.confirm(ctx, plan); err != nil {
		return err
	}
	queues := slices.Sorted(maps.Keys(plan.From))
	plan.Done, err = operation.NewKeeper(s.account, queues).Run(ctx, s.account.Table)
	s.progress.printf("kept %s of %s in %s", format.Number(plan.Done), format.Number(plan.Total), plan.Account)
	if plan.Done > 0 {
		s.out.changed = "what is left to keep: `async-caller poison queues`"
	}
	if s.json {
		_ = printJSON(s.out, plan.Result) // output keeps the error
	}
	switch {
	case err != nil && plan.Done > 0:
		return &codeError{exitPartly, err}
	case err == nil && plan.Done < plan.Total:
		left := format.Messages(plan.Total - plan.Done)
		return &codeError{exitPartly, errors.New("received, delivered or deleted by somebody else since: " + left)}
	}
	return err
}

func newPoisonImport(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "import FILE",
		Short: "Write exported messages to a queue again",
		Long: `Write the messages of an export, JSON lines from FILE or from standard input for "-", to their
original queues or to one queue, which is created if necessary. Imported messages never expire. To
send them again, import them to a poison queue and requeue them. A queue that is not a poison queue
of the app requires --force, because it may belong to another app. So does a queue without a route
for the content of a call of a route, and one with a route for an envelope.`,
		Example: `  async-caller poison import poison.jsonl --to async-caller-poison --yes
  async-caller poison import poison.jsonl --to parking --force --yes
  grep order-4711 poison.jsonl | async-caller poison import - --yes`,
		Args: cobra.ExactArgs(1),
	}
	var to operation.Import
	flags := flagsOf(command)
	parsed(flags, &to.To, "to", "`queue` to write to (default the original queue)", parseQueue)
	flags.BoolVar(&to.Force, "force", false, "also write to queues that are not poison queues of the app")
	dryRun := shared.addConfirmation(flags)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.err(); err != nil {
			return err
		}
		input, err := shared.env.open(args[0])
		if err != nil {
			return usageError(err)
		}
		defer input.Close()
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			plan, err := s.operations.PlanImport(ctx, input, to)
			return s.executeOrPreview(ctx, plan, err, *dryRun)
		})(cmd, args)
	}
	return command
}
