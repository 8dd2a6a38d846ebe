package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

func newPoisonExport(s Surroundings, options *poisonOptions) *cobra.Command {
	var which selection
	var sheet bool
	var path string
	command := &cobra.Command{
		Use:   "export [ID]...",
		Short: "Write messages to a file",
		Long: `Export writes messages, whole and byte for byte, as JSON lines: what is known of each, and as
"text" what stands on the queue. "import" writes them to a queue again. --csv makes a table for a
spreadsheet, which cannot be imported. The messages stay where they are.

An export holds whole messages, secrets included. A FILE must not exist yet.`,
		Example: `  async-caller poison export --output poison.jsonl
  async-caller poison export --reason expired | jq -r .host | sort | uniq -c
  async-caller poison export --csv --since 24h --output poison.csv`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			source, err := which.source(ids, time.Now())
			if err != nil {
				return err
			}
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				if path == "-" {
					return d.export(ctx, source, sheet, s.Stdout)
				}
				return d.exportFile(ctx, source, sheet, path)
			})
		},
	}
	flagsOf(command).BoolVar(&sheet, "csv", false, "write comma-separated values for a spreadsheet")
	flagsOf(command).StringVar(&path, "output", "-", "file to write to; - is standard output")
	which.addTo(command)
	return command
}

// exportFile leaves no file behind that is not whole.
func (d *desk) exportFile(ctx context.Context, source poison.Source, sheet bool, path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return wrongUsage(fmt.Errorf("--output: %w", err))
	}
	err = d.export(ctx, source, sheet, file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

func (d *desk) export(ctx context.Context, source poison.Source, sheet bool, to io.Writer) error {
	out := bufio.NewWriter(to)
	write := func(f poison.Found) error { return poison.WriteRecord(out, f) }
	end := func() error { return nil }
	if sheet {
		table, err := poison.NewCSVWriter(out)
		if err != nil {
			return err
		}
		write, end = table.Write, table.Flush
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	listed, err := d.account.List(ctx, source, func(f poison.Found) {
		if err := write(f); err != nil {
			stop(err) // there is no use in looking at more
		}
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if err != nil {
		return err
	}
	if listed.Matched == 0 {
		return nothingMatched(listed.Hidden)
	}
	if err := errors.Join(end(), out.Flush()); err != nil {
		return err
	}
	return d.told(listed)
}

func newPoisonImport(s Surroundings, options *poisonOptions) *cobra.Command {
	var agreement consent
	var to string
	var force bool
	command := &cobra.Command{
		Use:   "import FILE",
		Short: "Write exported messages to a queue again",
		Long: `Import writes messages of an export, JSON lines from FILE ("-" is standard input), to the queues
from which they came, or to one. They never expire there. A queue that does not exist is made. To
send them again, import them to a poison queue and requeue them there.`,
		Example: `  async-caller poison import poison.jsonl
  async-caller poison import poison.jsonl --to parking --yes
  grep order-4711 poison.jsonl | async-caller poison import - --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to != "" {
				if err := checkQueue("--to", to); err != nil {
					return wrongUsage(err)
				}
			}
			input := s.Stdin
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return wrongUsage(err)
				}
				defer file.Close()
				input = file
			}
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				plan, err := d.account.PlanImport(ctx, input, poison.Import{To: to, Force: force})
				if err != nil {
					return err
				}
				return d.carryOut(ctx, plan, agreement)
			})
		},
	}
	flagsOf(command).StringVar(&to, "to", "", "queue to write to (default the one of each message)")
	flagsOf(command).BoolVar(&force, "force", false, "also to queues that a function app reads")
	agreement.addTo(command)
	return command
}
