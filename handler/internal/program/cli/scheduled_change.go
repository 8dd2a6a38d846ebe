package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/format"
)

func newScheduledExpedite(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "expedite [ID]...",
		Short: "Make scheduled messages due now",
		Long: `Make the next attempt of scheduled messages due at once. Attempts and deadline stay. --rate limits
the load on the target, --canary expedites a few first and waits up to 3 minutes until they are
delivered, and --stop-at-failure-ratio stops if too many calls fail. For these two, the app must
record outcomes. A message that is already being delivered is left alone and reported; the exit code
is then 4. Messages that were expedited cannot be scheduled again.`,
		Example: `  async-caller scheduled expedite --host crm.example.com --canary 3 --rate 50/s
  async-caller scheduled expedite order-4711 --yes`,
	}
	var pace journal.Pace
	declare := func(flags *flagSet) { addPace(flags, &pace) }
	check := func(flags *flagSet) { checkPace(flags, pace) }
	plan := func(ctx context.Context, s *session, source account.Source) (*operation.Plan, error) {
		return s.operations.PlanRetryScheduled(ctx, source, pace)
	}
	return shared.changeScheduled(command, declare, check, plan)
}

func newScheduledCancel(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "cancel [ID]...",
		Short: "Delete scheduled messages",
		Long: `Delete scheduled messages. The journal keeps them, and "undo" enqueues them again with the delay
that remains then. --callback sends the callbacks of the calls, with reason "cancelled"; "undo" does
not revoke these. A message that is already being delivered is left alone and reported; the exit
code is then 4.`,
		Example: `  async-caller scheduled cancel --host old.example.com --callback
  async-caller scheduled cancel --group 'path=/orders/{n}' --dry-run`,
	}
	var callback bool
	declare := func(flags *flagSet) {
		flags.BoolVar(&callback, "callback", false, "send the callbacks of the calls, with reason cancelled")
	}
	check := func(*flagSet) {}
	plan := func(ctx context.Context, s *session, source account.Source) (*operation.Plan, error) {
		return s.operations.PlanDeleteScheduled(ctx, source, callback)
	}
	return shared.changeScheduled(command, declare, check, plan)
}

// changeScheduled completes a command that changes scheduled messages.
func (shared *sharedFlags) changeScheduled(
	command *cobra.Command, declare, check func(*flagSet),
	plan func(context.Context, *session, account.Source) (*operation.Plan, error),
) *cobra.Command {
	flags := flagsOf(command)
	dryRun := shared.addConfirmation(flags)
	declare(flags)
	selected := requireScheduled(flags)
	selected.check = func([]string) { check(flags) }
	command.RunE = shared.withScheduled(selected,
		func(ctx context.Context, s *session, source account.Source) error {
			plan, err := plan(ctx, s, source)
			return s.executeOrPreview(ctx, plan, err, *dryRun)
		})
	return command
}

// executeOrPreview executes a plan or, in a dry run, only shows it. The arguments are the results of the function that
// made the plan.
func (s *session) executeOrPreview(ctx context.Context, plan *operation.Plan, err error, dryRun bool) error {
	if err == nil && dryRun {
		return s.preview(ctx, plan)
	}
	return s.execute(ctx, plan, err)
}

// preview shows a plan and discards it.
func (s *session) preview(ctx context.Context, plan *operation.Plan) error {
	defer plan.Discard(ctx)
	return s.showPreview(plan)
}

// showPreview shows a plan that nobody executes.
func (s *session) showPreview(plan *operation.Plan) error {
	if plan.Total+plan.Refused == 0 {
		return s.nothingMatched(plan.Hidden)
	}
	s.announce(plan)
	if plan.Total > 0 && !s.json {
		printCounts(s.out, "reason", plan.Reasons)
		printCounts(s.out, "host", plan.Hosts)
	}
	s.progress.printf("dry run: nothing was changed")
	if s.json {
		_ = printJSON(s.out, previewResult{planResult(plan), plan.Counts, plan.Untold}) // output keeps the error
	}
	return notFound(plan.UnmatchedIDs)
}

// previewResult is the result of a dry run, with the numbers of messages by reason and by host.
type previewResult struct {
	operation.Result
	operation.Counts

	Untold int `json:"untold,omitempty"`
}

// mostCounts is the largest number of reasons or hosts that a dry run prints.
const mostCounts = 10

// printCounts prints the numbers of messages by a property, the largest first.
func printCounts(out io.Writer, property string, counts map[string]int) {
	largestFirst := func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) }
	keys := slices.SortedFunc(maps.Keys(counts), largestFirst)
	shown := keys[:min(len(keys), mostCounts)]
	for _, key := range shown {
		fmt.Fprintf(out, "%s %s: %s\n", property, key, format.Number(counts[key]))
	}
	if more := len(keys) - len(shown); more > 0 {
		fmt.Fprintf(out, "%s: %s more, see --json\n", property, format.Number(more))
	}
}
