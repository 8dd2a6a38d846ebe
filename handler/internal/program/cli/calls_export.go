package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
)

// exportOptions say where an export is written.
type exportOptions struct {
	path string
	raw  bool
}

func newCallsExport(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "export [ID]...",
		Short: "Write calls to a file",
		Long: `Write whole calls, including secrets, as JSON lines with the properties that "list --json" has and,
as "text", the content on the queue byte for byte. "import" writes them to a queue again. The
messages stay on their queues. --raw writes only the decoded content of one message.`,
		Example: `  async-caller calls export --state poison --output poison.jsonl
  async-caller calls export 4f1c2a9e --raw --output order.bin
  async-caller calls export --text C069 | jq -r '[.requestId, .state, .host] | @csv'`,
	}
	var o exportOptions
	flags := flagsOf(command)
	flags.BoolVar(&o.raw, "raw", false, "write only the content of one message, byte for byte")
	flags.StringVar(&o.path, "output", "-", "`file` to write to, which must not exist; - is standard output")
	command.RunE = shared.withCalls(selectCalls(flags), func(ctx context.Context, s *session, from sources) error {
		return s.exportTo(ctx, from, o)
	})
	return command
}

func newCallsImport(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "import FILE",
		Short: "Write exported messages to a queue again",
		Long: `Write the messages of an export, JSON lines from FILE or from standard input for "-", to their
queues again, which are created if necessary. Imported messages never expire.

A scheduled call becomes due when it would have been, or at once if that time is past. A dead letter
is written to its poison queue, or to the queue of --to; "retry" sends it again. --force is required
for a queue that is not a poison queue of the app, because it may belong to another app, for the
content of a call of a route on a queue without a route, for an envelope on one with a route, and
for a scheduled call on a queue that no function reads.`,
		Example: `  async-caller calls import poison.jsonl --to async-caller-poison --yes
  async-caller calls import poison.jsonl --to parking --force --yes
  grep order-4711 poison.jsonl | async-caller calls import - --yes`,
		Args: cobra.ExactArgs(1),
	}
	var to operation.Import
	flags := flagsOf(command)
	parsed(flags, &to.To, "to", "`queue` to write dead letters to (default the original queue)", parseQueue)
	flags.BoolVar(&to.Force, "force", false, "also write to queues that are not those of the app")
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

// exported is a message of an export: its description, its line, which has its text, and its content.
type exported struct {
	message message.Message
	line    any
	content []byte
}

// exportTo writes an export, or the content of one message. It leaves no file that is not complete.
func (s *session) exportTo(ctx context.Context, from sources, o exportOptions) error {
	write := s.writeExport
	if o.raw {
		write = s.writeRaw
	}
	if o.path == "-" {
		return write(ctx, from, s.out)
	}
	file, err := os.OpenFile(o.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageError(fmt.Errorf("--output: %w", err))
	}
	err = cmp.Or(write(ctx, from, file), file.Close())
	if isFailure(err) {
		_ = os.Remove(o.path)
	}
	return err
}

// writeExport writes a line for each message.
func (s *session) writeExport(ctx context.Context, from sources, to io.Writer) error {
	out := bufio.NewWriter(to)
	found := named{}
	scheduled, dead, err := s.export(ctx, from, func(m exported) error {
		found.add(s.ids, m.message)
		return operation.WriteRecord(out, m.line)
	})
	err = cmp.Or(err, out.Flush())
	switch {
	case err != nil:
		return err
	case scheduled.Matched+dead.Matched == 0 && len(s.ids) > 0:
		return s.nothingMatched(dead.Hidden)
	}
	s.summarize(scheduled, dead, nil)
	return notFound(slices.DeleteFunc(slices.Clone(s.ids), func(id string) bool { return found[id] }))
}

// writeRaw writes the content of the only message of the sources.
func (s *session) writeRaw(ctx context.Context, from sources, to io.Writer) error {
	var found []exported
	for _, source := range []*account.Source{from.scheduled, from.poison} {
		if source != nil && source.Limit != 1 {
			source.Limit = 2
		}
	}
	scheduled, dead, err := s.export(ctx, from, func(m exported) error {
		found = append(found, m)
		return nil
	})
	if err == nil && len(found) > 1 {
		err = usageError(errors.New("--raw: several messages match: give the id of one"))
	}
	if err == nil && len(found) == 0 {
		err = s.nothingMatched(dead.Hidden)
	}
	if err != nil {
		return err
	}
	_, err = to.Write(found[0].content)
	s.summarize(scheduled, dead, nil)
	return err
}

// export shows the messages of the sources until visit fails. An export that lacks a state is none.
func (s *session) export(
	ctx context.Context, from sources, visit func(exported) error,
) (scheduled, dead account.Listed, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	list := func(source account.Source) (account.Listed, error) {
		listed, err := s.exportScheduled(ctx, source, func(m exported) error {
			failed = visit(m)
			return failed
		})
		if err != nil && failed == nil {
			failed = fmt.Errorf("%w; --state poison exports only dead letters", err)
		}
		return listed, err
	}
	listPoison := func(source account.Source) (account.Listed, error) {
		if failed != nil {
			return account.Listed{}, failed
		}
		return s.account.List(ctx, source, func(f account.Found) {
			if failed == nil {
				failed = visit(exported{f.Message, exportedDeadLetter{f.Message, call.StatePoison, f.Text}, f.Content})
			}
			if failed != nil {
				stop()
			}
		})
	}
	scheduled, dead, err = s.eachState(from, list, listPoison)
	return scheduled, dead, cmp.Or(failed, err)
}

// exportedDeadLetter is a line of an export of dead letters.
type exportedDeadLetter struct {
	message.Message

	State string `json:"state"`
	Text  string `json:"text"`
}

// exportedCall is a line of an export of scheduled calls.
type exportedCall struct {
	call.Summary

	Text string `json:"text"`
}

func (s *session) exportScheduled(
	ctx context.Context, source account.Source, visit func(exported) error,
) (account.Listed, error) {
	now := time.Now()
	presence := s.account.PresenceCheck(ctx, now)
	matched, err := s.account.ListScheduled(ctx, source, true, func(m message.Recorded) error {
		m.DescribeCall()
		content := m.Row.Content
		line := call.NewSummary(m, presence(m.Row), now)
		return visit(exported{m.Message, exportedCall{line, s.account.Rules.Encoding.Encode(content)}, content})
	})
	return account.Listed{Matched: matched}, err
}
