package cli

import (
	"bufio"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

// shortestInterval spares storage, which counts every look.
const shortestInterval = time.Second

func newPoisonWatch(s Surroundings, options *poisonOptions) *cobra.Command {
	var which selection
	var interval time.Duration
	command := &cobra.Command{
		Use:   "watch",
		Short: "Show messages as they arrive",
		Long: `Watch shows messages that come to the poison queues from now on, one a line as "list" does, until
Ctrl-C or, with --limit, until there were so many.`,
		Example: `  async-caller poison watch
  async-caller poison watch --queue async-caller-poison --interval 30s --json
  async-caller poison watch --reason expired --limit 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := which.source(nil, time.Now())
			if err != nil {
				return err
			}
			if interval < shortestInterval {
				return wrongUsage(errors.New("--interval: give a duration of at least 1s"))
			}
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				return d.watch(ctx, source, interval)
			})
		},
	}
	flagsOf(command).DurationVar(&interval, "interval", 5*time.Second, "how often to look")
	which.addTo(command)
	return command
}

func (d *desk) watch(ctx context.Context, source poison.Source, interval time.Duration) error {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	out := bufio.NewWriter(d.s.Stdout)
	shown := &rows{out: out, headings: len(source.Queues) != 1, before: d.tell.quiet}
	count := 0
	ready := func() { d.tell.say("watching; Ctrl-C ends it") }
	return d.account.Follow(ctx, source, interval, ready, func(f poison.Found) {
		if source.Limit > 0 && count == source.Limit {
			return
		}
		if count++; count == source.Limit {
			enough()
		}
		if d.options.json {
			_ = encode(out, f.Message)
			_ = out.Flush() // where nobody reads any more a signal ends the program
			return
		}
		shown.now = d.now()
		shown.add(f.Message)
		shown.write()
	})
}
