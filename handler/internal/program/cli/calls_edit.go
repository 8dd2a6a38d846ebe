package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
)

// editOptions is the flags of edit.
type editOptions struct {
	operation.Edit
	inEditor, dryRun, reveal bool
}

func newCallsEdit(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "edit [ID]...",
		Short: "Edit scheduled calls in place",
		Long: `Edit scheduled calls while they wait. Attempts, deadline, context and the time of the next attempt
stay; a place in the line of a limit is lost. "retry" makes edited calls due. A dead letter is
edited when it is retried. --new-request-id is for targets that refuse a repeated key with another
body: the callback then reports the new id.

Of a Nexus message, flags change host, headers, URL, body, deadline and request id; --edit changes
the rest. A call that the handler would refuse is refused, and so is an edit that changes nothing.
An edit that adds a member without effect, such as call.jsn, stops the plan; --force keeps it.
--dry-run shows the changes with secrets masked.

A call that was delivered or received since is left alone and reported; the exit code is then 4. If
storage does not answer, a call is changed, or unchanged until its next attempt.`,
		Example: `  async-caller calls edit order-4711 --set call.json.quantity=1 --dry-run
  async-caller calls edit --host old.example.com --replace-host old.example.com=new.example.com
  async-caller calls edit order-4711 --edit --new-request-id`,
	}
	var o editOptions
	flags := flagsOf(command)
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would change, and change nothing")
	flags.BoolVar(&o.reveal, "reveal", false, "with --dry-run: show secrets")
	shared.addYes(flags)
	addEdits(flags, &o.Options.Edits, &o.inEditor)
	flags.BoolVar(&o.NewRequestID, "new-request-id", false, "give each call a new request id")
	selected := requireCalls(flags)
	selected.only = call.StateScheduled
	flags.Lookup("force").Usage += ", and allow edits without effect"
	selected.check = func(ids []string) { o.check(flags, ids) }
	command.RunE = shared.withCalls(selected, func(ctx context.Context, s *session, from sources) error {
		o.Force = from.scheduled.Force
		return s.editScheduled(ctx, *from.scheduled, o)
	})
	command.MarkFlagsMutuallyExclusive("edit", "dry-run")
	return command
}

// check refuses flags that do not fit together.
func (o *editOptions) check(flags *flagSet, ids []string) {
	hasEdits := o.inEditor || o.NewRequestID || len(o.Options.Edits) > 0
	flags.refuse(!hasEdits && len(flags.problems) == 0, "say what to change, such as --set call.url=URL or --edit")
	flags.refuse(o.inEditor && len(ids) != 1, "--edit: give exactly one ID")
	flags.refuse(o.reveal && !o.dryRun, "--reveal requires --dry-run")
}

func (s *session) editScheduled(ctx context.Context, source account.Source, o editOptions) error {
	if o.inEditor {
		found, err := s.account.FindScheduled(ctx, source, source.IDs[0])
		if err != nil {
			return err
		}
		o.Original = found.Row.Content
		o.Options.Edited, err = s.editRow(ctx, found, o)
		if err != nil || o.Options.Edited == nil {
			return err
		}
		source.Queues, source.IDs = []string{found.Row.Partition}, []string{found.Row.ID}
	}
	if o.dryRun {
		o.Show = func(m message.Message, before, after []byte) {
			s.showDiff(m, string(mask.Diff(before, after, mask.Secrets(o.reveal))))
		}
	}
	plan, err := s.operations.PlanEdit(ctx, source, o.Edit)
	return s.executeOrPreview(ctx, plan, err, o.dryRun)
}

// editRow lets a person edit a scheduled call until the handler would accept it. It returns nil if nothing was changed.
func (s *session) editRow(ctx context.Context, found message.Recorded, o editOptions) ([]byte, error) {
	row := found.Row
	if _, err := envelope.Parse(row.Content); err != nil {
		return nil, fmt.Errorf("the message is malformed: %w", err)
	}
	return s.edit(ctx, row.Content, func(edited []byte) error {
		options := o.Options
		options.Edited = edited
		in, err := options.Scheduled(
			ctx, s.account.Rules, row.Content, row.ID, "", row.NextAttemptAt, time.Now())
		if err != nil || o.Force {
			return err
		}
		return checkEffect(options.WithoutEffect(row.Content, in.Content))
	})
}

// showDiff prints how a plan changes a message.
func (s *session) showDiff(m message.Message, diff string) {
	if s.json {
		_ = printJSON(s.out, dryRunResult{Account: s.account.Name, Message: m, Diff: diff}) // output keeps the error
		return
	}
	fmt.Fprintf(s.out, "%s on %s\n%s\n", m.ID, m.Queue, diff)
}
