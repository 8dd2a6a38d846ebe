package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
)

// requeueOptions are the flags of requeue.
type requeueOptions struct {
	poison.Requeue
	confirm              confirmation
	edit, dryRun, reveal bool
}

func newPoisonRequeue(p *poisonFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "requeue [ID]...",
		Short: "Send messages again, edited if you like",
		Long: `Move messages back to their main queue with no attempts and a new deadline. Messages that would fail
again at once are refused and stay where they are.

You can edit messages with flags, or one message in $VISUAL or $EDITOR. --dry-run shows the changes
as a diff, with secrets masked. For many messages, --canary sends a few first and waits until they
are delivered, --rate and --spread limit the load on the target, and --stop-at-failure-ratio stops
when too many messages return.`,
		Example: `  async-caller poison requeue 4f1c2a9e
  async-caller poison requeue --host old.example.com --replace-host old.example.com=new.example \
      --dry-run
  async-caller poison requeue --reason expired --canary 5 --rate 50/s --stop-at-failure-ratio 0.1
  async-caller poison requeue 4f1c2a9e --set call.headers.X-Tenant=acme`,
	}
	var o requeueOptions
	flags := flagsOf(command)
	o.addTo(flags)
	selected := requireSelection(flags)
	selected.check = func(ids []string) { o.check(flags, ids) }
	command.RunE = p.withSelection(selected, func(ctx context.Context, s *session, source poison.Source) error {
		return s.requeue(ctx, source, o)
	})
	command.MarkFlagsMutuallyExclusive("edit", "dry-run")
	return command
}

func (o *requeueOptions) addTo(flags *flagSet) {
	edits, pace := (*[]edit.Edit)(&o.Edit.Edits), &o.Pace
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would change, and change nothing")
	flags.BoolVar(&o.reveal, "reveal", false, "with --dry-run: show secrets")
	o.confirm.addTo(flags)
	parsed(flags, &o.To, "to", "`queue` to send to (default the main queue of each message)", parseQueue)
	parsedList(flags, edits, "set", "set a member, as `PATH=VALUE`: call.url, call.json, deadline …; may be repeated", edit.ParseSet)
	parsedList(flags, edits, "set-header", "set a `header` of the call, as 'Name: value'; may be repeated", edit.ParseHeader)
	parsedList(flags, edits, "delete-header", "remove a header of the call, by `name`; may be repeated", edit.ParseDeleteHeader)
	parsedList(flags, edits, "replace-host", "replace the host of call and callback, as `OLD=NEW`; may be repeated", edit.ParseReplaceHost)
	parsedList(flags, edits, "jq", "edit the envelope with a jq `expression`; may be repeated", edit.ParseJQ)
	flags.BoolVar(&o.edit, "edit", false, "edit one message in an editor")
	flags.BoolVar(&o.Edit.FixEncoding, "fix-encoding", false, "encode messages that are not base64")
	flags.BoolVar(&o.Edit.KeepState, "keep-state", false, "keep attempts, times and deadline")
	parsed(flags, &pace.Canary, "canary", "send this `number` first, and the others once those are delivered", atLeast(0))
	flags.DurationVar(&pace.CanaryWait, "canary-wait", 3*time.Minute, "time limit for the delivery of the first messages")
	parsed(flags, &pace.Rate, "rate", "at most this `number` per second, such as 50 or 0.5/s (default unlimited)", parseRate)
	flags.Float64Var(&pace.StopAt, "stop-at-failure-ratio", 0, "stop when more than this share, 0 to 1, has returned")
	flags.DurationVar(&pace.Delay, "delay", 0, "delay before the messages are delivered")
	flags.DurationVar(&pace.Spread, "spread", 0, "spread the deliveries evenly over this time")
}

// check refuses flags that do not fit together.
func (o *requeueOptions) check(flags *flagSet, ids []string) {
	pace := o.Pace
	flags.refuse(o.edit && len(ids) != 1, "--edit: give exactly one ID")
	flags.refuse(o.reveal && !o.dryRun, "--reveal requires --dry-run")
	flags.refuse(pace.Canary > 0 && pace.CanaryWait <= 0, "--canary-wait: want a duration above 0, such as 3m")
	flags.refuse(!(pace.StopAt >= 0 && pace.StopAt <= 1), "--stop-at-failure-ratio: want a share from 0 to 1, such as 0.1") // NaN is neither
	flags.refuse(pace.Delay < 0 || pace.Spread < 0 || pace.Delay > queue.MaxDelay || pace.Spread > queue.MaxDelay-pace.Delay,
		fmt.Sprintf("--delay and --spread: want at least 0s and at most %v together", queue.MaxDelay))
}

// parseRate reads a number per second.
func parseRate(text string) (float64, error) {
	rate, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
	if err != nil || !(rate >= 0.001 && rate <= 1e6) { // NaN is neither
		return 0, fmt.Errorf("%.40q: want a number of messages per second, such as 50 or 0.5/s", text)
	}
	return rate, nil
}

func (s *session) requeue(ctx context.Context, source poison.Source, o requeueOptions) error {
	if o.dryRun {
		return s.dryRun(ctx, source, o.Requeue, inspect.Secrets(o.reveal))
	}
	if o.edit {
		found, err := s.account.Find(ctx, source, source.IDs[0])
		if err != nil {
			return err
		}
		s.status.clear()
		changed, err := s.edit(ctx, found, &o.Edit)
		if err != nil {
			return err
		}
		if !changed {
			s.status.printf("no changes: nothing was done")
			return nil
		}
		source = poison.Source{Queues: []string{found.Queue}, IDs: []string{found.ID}, Force: source.Force}
	}
	plan, err := s.account.PlanRequeue(ctx, source, o.Requeue)
	if err != nil {
		return err
	}
	return s.execute(ctx, plan, o.confirm)
}

// dryRunResult is what requeue would do with one message.
type dryRunResult struct {
	Message inspect.Message `json:"message"`
	To      string          `json:"to,omitempty"`
	Diff    string          `json:"diff,omitempty"`
	Refused string          `json:"refused,omitempty"`
}

// dryRun shows what requeue would change.
func (s *session) dryRun(ctx context.Context, source poison.Source, request poison.Requeue, secrets inspect.Secrets) error {
	accepted, refused := 0, 0
	listed, err := s.account.Preview(ctx, source, request, func(f poison.Found, to string, after []byte, reason error) {
		r := dryRunResult{Message: f.Message, To: to}
		if reason != nil {
			refused++
			r.Refused = reason.Error()
		} else {
			accepted++
			r.Diff = string(inspect.Diff(f.Content, after, secrets))
		}
		if s.json {
			_ = printJSON(s.out, r) // output keeps the error
		} else {
			r.print(s.out)
		}
	})
	if err != nil {
		return err
	}
	if listed.Matched == 0 {
		return nothingMatched(listed.Hidden)
	}
	s.status.printf("would requeue %s and refuse %s; nothing was changed", messages(accepted), thousands(refused))
	if listed.Hidden > 0 {
		s.status.printf("%s", hiddenText(listed.Hidden))
	}
	return nil
}

func (r dryRunResult) print(out io.Writer) {
	if r.Refused == "" {
		fmt.Fprintf(out, "%s from %s to %s\n%s\n", r.Message.ID, r.Message.Queue, r.To, r.Diff)
		return
	}
	fmt.Fprintf(out, "%s on %s would be refused\n  %s\n\n", r.Message.ID, r.Message.Queue, r.Refused)
}

// edit lets a person edit a message until requeue accepts it, and stores the edited content in the options.
// It reports whether the message was changed.
func (s *session) edit(ctx context.Context, f poison.Found, options *edit.Options) (changed bool, err error) {
	if _, err := s.account.Rules.Encoding.Decode(f.Text); err != nil {
		options.FixEncoding = true // the person edits the text itself
	}
	path, err := tempFile(edit.Editable(f.Content))
	if err != nil {
		return false, fmt.Errorf("edit: %w", err)
	}
	defer func() { _ = os.Remove(path) }()
	for {
		if err := s.runEditor(ctx, path); err != nil {
			return false, err
		}
		changed, err := s.readEdited(ctx, path, f, options)
		if err == nil {
			return changed, nil
		}
		if !s.env.canAsk() {
			return false, fmt.Errorf("the edited message cannot be sent: %w; nothing was changed", err)
		}
		s.status.printf("the edited message cannot be sent: %v", err)
		answer, asked := ask(ctx, s.env.Stdin, s.env.Stderr, "edit it again? [Y/n]")
		if asked != nil || answer != "" && !isYes(answer) {
			return false, errors.New("not confirmed: nothing was changed")
		}
	}
}

// readEdited reads the edited message and checks that requeue accepts it.
func (s *session) readEdited(ctx context.Context, path string, f poison.Found, options *edit.Options) (changed bool, err error) {
	edited, err := readFile(s.env, path)
	if err != nil {
		return false, err
	}
	restored, err := edit.Restore(f.Content, edited)
	if err != nil || bytes.Equal(restored, f.Content) {
		return false, err
	}
	options.Edited = restored
	_, err = s.account.Rules.Prepare(ctx, f.Text, f.ID, *options, time.Now())
	return true, err
}

// tempFile writes a file that only its owner can read.
func tempFile(content []byte) (path string, err error) {
	file, err := os.CreateTemp("", "async-caller-*.json")
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}

// runEditor runs the editor. VISUAL and EDITOR may contain arguments, as for git. Ctrl-C reaches the editor
// only.
func (s *session) runEditor(ctx context.Context, path string) error {
	words := strings.Fields(cmp.Or(s.env.getenv("VISUAL"), s.env.getenv("EDITOR"), "vi"))
	if len(words) == 0 {
		return usageError(errors.New("VISUAL and EDITOR are blank: set one to an editor"))
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), words[0], append(words[1:], path)...) //nolint:gosec // the operator's editor
	command.Stdin, command.Stdout, command.Stderr, command.Env = s.env.Stdin, s.env.Stdout, s.env.Stderr, s.env.Environ
	if err := command.Run(); err != nil {
		return fmt.Errorf("editor %s: %w; nothing was changed", words[0], err)
	}
	return nil
}
