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

func newPoisonExport(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "export [ID]...",
		Short: "Write messages to a file",
		Long: `Write whole messages, including secrets, as JSON lines with their properties and, as "text", their
content on the queue byte for byte. "import" writes them to a queue again. The messages stay on
their queues. --raw writes only the decoded content of one message.`,
		Example: `  async-caller poison export --output poison.jsonl
  async-caller poison export 4f1c2a9e --raw --output order.bin
  async-caller poison export --reason expired | jq -r .host | sort | uniq -c`,
	}
	o := exportFlags(command)
	command.RunE = shared.withSelection(selectPoison(flagsOf(command)),
		func(ctx context.Context, s *session, source account.Source) error {
			return o.run(ctx, s, source, s.exportPoison)
		})
	return command
}

func newScheduledExport(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "export [ID]...",
		Short: "Write scheduled messages to a file",
		Long: `Write whole scheduled messages, including secrets, as JSON lines with the properties that
"scheduled list --json" has and, as "text", their content on the queue. The messages stay scheduled.
--raw writes only the content of one message.`,
		Example: `  async-caller scheduled export --host old.example.com --output waiting.jsonl
  async-caller scheduled export order-4711 --raw | jq .call
  async-caller scheduled export --text C069 | jq -r '[.requestId, .nextAttemptAt] | @csv'`,
	}
	o := exportFlags(command)
	command.RunE = shared.withScheduled(selectScheduled(flagsOf(command)),
		func(ctx context.Context, s *session, source account.Source) error {
			return o.run(ctx, s, source, s.exportScheduled)
		})
	return command
}

// exportOptions say where an export is written.
type exportOptions struct {
	path string
	raw  bool
}

func exportFlags(command *cobra.Command) *exportOptions {
	o := &exportOptions{}
	flags := flagsOf(command)
	flags.BoolVar(&o.raw, "raw", false, "write only the content of one message, byte for byte")
	flags.StringVar(&o.path, "output", "-", "`file` to write to, which must not exist; - is standard output")
	return o
}

// exported is a message of an export: its description, its line, which has its text, and its content.
type exported struct {
	message message.Message
	line    any
	content []byte
}

// exportFunc shows the messages of a source until visit fails.
type exportFunc = func(context.Context, account.Source, func(exported) error) (account.Listed, error)

func (o *exportOptions) run(ctx context.Context, s *session, source account.Source, list exportFunc) error {
	write := s.writeExport
	if o.raw {
		write = s.writeRaw
	}
	if o.path == "-" {
		return write(ctx, source, list, s.out)
	}
	file, err := os.OpenFile(o.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageError(fmt.Errorf("--output: %w", err))
	}
	err = cmp.Or(write(ctx, source, list, file), file.Close())
	coded, isCoded := errors.AsType[*codeError](err)
	hasAll := err == nil || isCoded && coded.code == exitPartly // of the messages that exist
	if !hasAll {
		_ = os.Remove(o.path)
	}
	return err
}

// writeExport writes a line for each message.
func (s *session) writeExport(ctx context.Context, source account.Source, list exportFunc, to io.Writer) error {
	out := bufio.NewWriter(to)
	missing := slices.Clone(s.ids)
	listed, err := list(ctx, source, func(m exported) error {
		missing = slices.DeleteFunc(missing, func(id string) bool { return message.MatchID(m.message, id) })
		return operation.WriteRecord(out, m.line)
	})
	err = cmp.Or(err, out.Flush())
	switch {
	case err != nil:
		return err
	case listed.Matched == 0 && len(s.ids) > 0:
		return s.nothingMatched(listed.Hidden)
	}
	s.summarize(listed)
	return notFound(missing)
}

// writeRaw writes the content of the only message of a source.
func (s *session) writeRaw(ctx context.Context, source account.Source, list exportFunc, to io.Writer) error {
	var found []exported
	if source.Limit != 1 {
		source.Limit = 2
	}
	listed, err := list(ctx, source, func(m exported) error {
		found = append(found, m)
		return nil
	})
	if err == nil && len(found) > 1 {
		err = usageError(errors.New("--raw: several messages match: give the id of one"))
	}
	if err == nil && len(found) == 0 {
		err = s.nothingMatched(listed.Hidden)
	}
	if err != nil {
		return err
	}
	_, err = to.Write(found[0].content)
	s.summarize(listed)
	return err
}

func (s *session) exportPoison(
	ctx context.Context, source account.Source, visit func(exported) error,
) (account.Listed, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	listed, err := s.account.List(ctx, source, func(f account.Found) {
		if failed == nil {
			failed = visit(exported{f.Message, f, f.Content})
		}
		if failed != nil {
			stop()
		}
	})
	return listed, cmp.Or(failed, err)
}

// scheduledRecord is a line of an export of scheduled messages.
type scheduledRecord struct {
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
		return visit(exported{m.Message, scheduledRecord{line, s.account.Rules.Encoding.Encode(content)}, content})
	})
	return account.Listed{Matched: matched}, err
}
