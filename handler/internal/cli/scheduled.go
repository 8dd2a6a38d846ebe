package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
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
		newScheduledList(shared),
		newScheduledEdit(shared), newScheduledExpedite(shared), newScheduledCancel(shared),
	)
	return command
}

// scheduledSelection is the flags that select scheduled messages.
type scheduledSelection struct {
	*selection
	selected account.ScheduledSource
}

// selectScheduled declares the flags that select scheduled messages.
func selectScheduled(flags *flagSet) *scheduledSelection {
	s := &scheduledSelection{selection: &selection{flags: flags}}
	s.addQueue("`queue` to look at; may be repeated (default all)")
	s.addFilters(message.ScheduledReasons(), message.ScheduledCriteria(), "created")
	filterFlag(s.selection, &s.selected.DueBefore, "due-within",
		"only messages whose next attempt is due within this `duration`, such as 1h",
		func(text string) (time.Time, error) {
			d, err := durationFrom(0)(text)
			return time.Now().Add(d), err
		})
	return s
}

// requireScheduled declares the flags that select scheduled messages, and --all for all of them.
func requireScheduled(flags *flagSet) *scheduledSelection {
	s := selectScheduled(flags)
	s.require("select all scheduled messages")
	return s
}

// withScheduled returns the RunE of a command that works on the selected scheduled messages.
func (shared *sharedFlags) withScheduled(
	selected *scheduledSelection, work func(context.Context, *session, account.ScheduledSource) error,
) runFunc {
	return shared.withSelection(selected.selection, func(ctx context.Context, s *session, source account.Source) error {
		selected.selected.Source = source
		if err := s.account.CheckScheduledQueues(ctx, selected.selected); err != nil {
			return err
		}
		return work(ctx, s, selected.selected)
	})
}
