package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

func newPoisonExport(p *poisonFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "export [ID]...",
		Short: "Write messages to a file",
		Long: `Write whole messages, including secrets, as JSON lines with their properties and, as "text", their
content on the queue byte for byte. "import" writes them to a queue again. --csv writes a table for
a spreadsheet, which cannot be imported. The messages stay on their queues.`,
		Example: `  async-caller poison export --output poison.jsonl
  async-caller poison export --reason expired | jq -r .host | sort | uniq -c`,
	}
	var format exportFormat
	var path string
	flags := flagsOf(command)
	flags.BoolVar((*bool)(&format), "csv", false, "write comma-separated values")
	flags.StringVar(&path, "output", "-", "`file` to write to, which must not exist; - is standard output")
	command.RunE = p.withSelection(selectMessages(flags), func(ctx context.Context, s *session, source poison.Source) error {
		if path == "-" {
			return s.export(ctx, source, format, s.out)
		}
		return s.exportFile(ctx, source, format, path)
	})
	return command
}

// exportFormat is the format of an export.
type exportFormat bool

const (
	jsonLines exportFormat = false
	csvTable  exportFormat = true
)

// exportFile writes an export to a new file. It removes the file if the export is incomplete.
func (s *session) exportFile(ctx context.Context, source poison.Source, format exportFormat, path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return usageError(fmt.Errorf("--output: %w", err))
	}
	err = cmp.Or(s.export(ctx, source, format, file), file.Close())
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

func (s *session) export(ctx context.Context, source poison.Source, format exportFormat, to io.Writer) error {
	out := bufio.NewWriter(to)
	write := func(f poison.Found) error { return poison.WriteRecord(out, f) }
	if format == csvTable {
		table := csv.NewWriter(out) // shares the buffer of out
		_ = table.Write(poison.CSVHeader)
		write = func(f poison.Found) error { return table.Write(poison.CSVRow(f)) }
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	listed, err := s.account.List(ctx, source, func(f poison.Found) {
		if err := write(f); err != nil {
			stop(err)
		}
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if err == nil && listed.Matched > 0 {
		err = out.Flush() // returns the first error
	}
	if err != nil {
		return err
	}
	return s.summarize(listed)
}

func newPoisonImport(p *poisonFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "import FILE",
		Short: "Write exported messages to a queue again",
		Long: `Write the messages of an export, JSON lines from FILE or from standard input for "-", to their
original queues or to one queue, which is created if necessary. Imported messages never expire. To
send them again, import them to a poison queue and requeue them.`,
		Example: `  async-caller poison import poison.jsonl --to parking --yes
  grep order-4711 poison.jsonl | async-caller poison import - --yes`,
		Args: cobra.ExactArgs(1),
	}
	var to poison.Import
	var confirm confirmation
	flags := flagsOf(command)
	parsed(flags, &to.To, "to", "`queue` to write to (default the original queue)", parseQueue)
	flags.BoolVar(&to.Force, "force", false, "also write to queues that a function app reads")
	confirm.addTo(flags)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.err(); err != nil {
			return err
		}
		input, err := p.env.open(args[0])
		if err != nil {
			return usageError(err)
		}
		defer input.Close()
		return p.withSession(func(ctx context.Context, s *session, _ []string) error {
			plan, err := s.account.PlanImport(ctx, input, to)
			if err != nil {
				return err
			}
			return s.execute(ctx, plan, confirm)
		})(cmd, args)
	}
	return command
}
