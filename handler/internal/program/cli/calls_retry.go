package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/mask"
)

// retryOptions are the flags of retry.
type retryOptions struct {
	operation.Retry
	asIs, edit, dryRun, reveal bool
}

func newCallsRetry(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "retry [ID]...",
		Short: "Make scheduled calls due now, or send dead letters again",
		Long: `Make the next attempt of scheduled calls due at once: attempts and deadline stay, and they cannot
be scheduled again. Or move dead letters back to their main queue with no attempts and a new
deadline: those that would fail again at once are refused and stay where they are.

For many calls, --canary sends a few first and waits up to 3 minutes until they are delivered,
--rate limits the load on the target, and --stop-at-failure-ratio stops if too many calls fail. For
--canary and --stop-at-failure-ratio, the app must record outcomes. A scheduled call that is
already being delivered is left alone and reported; the exit code is then 4.

The other flags are for dead letters. Flags edit them; --edit opens one in $VISUAL or $EDITOR;
--dry-run shows the changes with secrets masked. Of a Nexus message, flags change host, headers,
URL, body, deadline and request id; --edit changes the rest, and shows calls and context as lines
of text. An edit that adds a member without effect, such as call.jsn, is refused; --force sends it.
--dedupe sends only the latest message of each request id; the others stay where they are.

A message of a route is the content of a call. It goes back to the queue of the route unchanged; it
takes no edits, and no other destination than a queue with a route.

--as-is moves messages byte for byte to the queue of --to, as to put them aside: there, they still
are dead letters. --force is required for a queue that a function reads, to move the content of a
call of a route to a queue without one, where it would be read as an envelope, and an envelope to a
queue with a route.`,
		Example: `  async-caller calls retry order-4711
  async-caller calls retry --state scheduled --host crm.example.com --canary 3 --rate 50/s
  async-caller calls retry --state poison --all --replace-host old.example=new.example --dry-run
  async-caller calls retry --state poison --reason malformed --to parking --as-is`,
	}
	var o retryOptions
	flags := flagsOf(command)
	o.addTo(flags, shared)
	selected := requireCalls(flags)
	flags.Lookup("force").Usage += ", and allow edits without effect"
	selected.check = func(ids []string) { o.check(flags, ids) }
	command.RunE = shared.withCalls(selected, func(ctx context.Context, s *session, from sources) error {
		if err := selected.refuseFlags(from, flagsOfDeadLetters(), nil); err != nil {
			return err
		}
		if from.poison != nil {
			return s.retryDeadLetters(ctx, *from.poison, o)
		}
		plan, err := s.operations.PlanRetryScheduled(ctx, *from.scheduled, o.Pace)
		return s.executeOrPreview(ctx, plan, err, o.dryRun)
	})
	command.MarkFlagsMutuallyExclusive("edit", "dry-run")
	return command
}

// flagsOfDeadLetters are the flags of retry that scheduled calls do not have.
func flagsOfDeadLetters() []string {
	return append(editFlags(), "to", "as-is", "fix-encoding", "dedupe", "reveal")
}

func (o *retryOptions) addTo(flags *flagSet, shared *sharedFlags) {
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would change, and change nothing")
	flags.BoolVar(&o.reveal, "reveal", false, "with --dry-run: show secrets")
	shared.addYes(flags)
	addPace(flags, &o.Pace)
	parsed(flags, &o.To, "to", "`queue` to send to (default the main queue of each message)", parseQueue)
	flags.BoolVar(&o.asIs, "as-is", false, "with --to: move the messages byte for byte")
	flags.BoolVar(&o.Edit.FixEncoding, "fix-encoding", false,
		"correct base64 that is missing, or that is around an envelope too often")
	flags.BoolVar(&o.Dedupe, "dedupe", false, "send only the latest message of each request id")
	addEdits(flags, &o.Edit.Edits, &o.edit)
}

// check refuses flags that do not fit together.
func (o *retryOptions) check(flags *flagSet, ids []string) {
	changes := append(editFlags(), "fix-encoding", "dedupe", "reveal", "canary", "rate", "stop-at-failure-ratio")
	flags.refuse(o.edit && len(ids) != 1, "--edit: give exactly one ID")
	flags.refuse(o.reveal && !o.dryRun, "--reveal requires --dry-run")
	flags.refuse(o.asIs && o.To == "", "--as-is requires --to")
	flags.refuse(o.asIs && slices.ContainsFunc(changes, flags.Changed),
		"--as-is changes and sends nothing: it takes no edits and no pace")
	checkPace(flags, o.Pace)
}

func (s *session) retryDeadLetters(ctx context.Context, source account.Source, o retryOptions) error {
	if o.asIs {
		plan, err := s.operations.PlanMove(ctx, source, o.To)
		return s.executeOrPreview(ctx, plan, err, o.dryRun)
	}
	o.Force = source.Force
	warning, err := s.operations.CheckRetry(ctx, o.Retry) // before the work of --edit
	if err != nil {
		return err
	}
	if warning != "" {
		s.progress.printf("warning: %s", warning)
	}
	if o.dryRun {
		return s.dryRun(ctx, source, o.Retry, mask.Secrets(o.reveal))
	}
	if o.edit {
		found, err := s.account.Find(ctx, source, source.IDs[0])
		if err != nil {
			return err
		}
		if found.Raw {
			return usageError(edit.ErrRaw)
		}
		if err := s.editFound(ctx, found, &o.Retry); err != nil || o.Edit.Edited == nil {
			return err
		}
		source = account.Source{Queues: []string{found.Queue}, IDs: []string{found.ID}, Force: source.Force}
	}
	plan, err := s.operations.PlanRetryPoison(ctx, source, o.Retry)
	return s.execute(ctx, plan, err)
}

// dryRunResult is the result of a dry run of edits or of a retry for one message.
type dryRunResult struct {
	Account string          `json:"account"`
	Message message.Message `json:"message"`
	To      string          `json:"to,omitempty"`
	// Encoding is how --fix-encoding changes the encoding.
	Encoding string `json:"encoding,omitempty"`
	Diff     string `json:"diff,omitempty"`
	Refused  string `json:"refused,omitempty"`
}

// dryRun shows what a retry of dead letters would change.
func (s *session) dryRun(
	ctx context.Context, source account.Source, request operation.Retry, secrets mask.Secrets,
) error {
	refused := 0
	missing := slices.Clone(s.ids)
	show := func(f account.Found, to string, after []byte, reason error) {
		missing = slices.DeleteFunc(missing, func(id string) bool { return message.MatchID(f.Message, id) })
		r := dryRunResult{Account: s.account.Name, Message: f.Message}
		if reason != nil {
			refused++
			r.Refused = reason.Error()
		} else {
			r.To = to
			if request.Edit.FixEncoding {
				_, r.Encoding = edit.FixEncoding(s.account.Rules, f.Text, f.Raw)
			}
			r.Diff = string(mask.Diff(f.Content, after, secrets))
		}
		switch {
		case s.json:
			_ = printJSON(s.out, r) // output keeps the error
		case reason != nil:
			fmt.Fprintf(s.out, "%s on %s would be refused\n  %s\n\n", f.ID, f.Queue, r.Refused)
		default:
			change := ""
			if r.Encoding != "" {
				change = ": " + r.Encoding
			}
			fmt.Fprintf(s.out, "%s from %s to %s%s\n%s\n", f.ID, f.Queue, to, change, r.Diff)
		}
	}
	listed, warnings, err := s.operations.Preview(ctx, source, request, show)
	for _, w := range warnings {
		s.warn(w)
	}
	switch {
	case err != nil:
		return err
	case listed.Matched == 0:
		return s.nothingMatched(listed.Hidden)
	}
	s.progress.printf("would retry %s in %s and refuse %s; nothing was changed",
		format.Messages(listed.Matched-refused), s.account.Name, format.Number(refused))
	if listed.Hidden > 0 {
		s.progress.printf("%s", hiddenText(listed.Hidden))
	}
	return notFound(missing)
}

// editFound lets a person edit a dead letter until it can be sent. It stores the content in the request if it
// was changed.
func (s *session) editFound(ctx context.Context, f account.Found, request *operation.Retry) (err error) {
	fixed, change := edit.FixEncoding(s.account.Rules, f.Text, f.Raw) // the person edits the envelope itself
	if change != "" {
		request.Edit.FixEncoding = true
	}
	request.Edit.Edited, err = s.edit(ctx, fixed, func(edited []byte) error {
		o := request.Edit
		o.Edited = edited
		text, err := edit.Prepare(ctx, s.account.Rules, f.Text, f.ID, o, time.Now())
		if err != nil || request.Force {
			return err
		}
		return checkEffect(o.WithoutEffect(fixed, s.account.Rules.Content(text)))
	})
	return err
}
