package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/program/logview"
	"asynccaller/handler/internal/program/work"
)

const workName = "work"

func newWork(env Env) *cobra.Command {
	var app string
	var queues []string
	var grace time.Duration
	var health uint16
	command := &cobra.Command{
		Use:   workName,
		Short: "Make the calls of an app without the Functions host",
		Long: `Make the calls of an app folder without the Functions host: receive the messages of its queues, and
run its timer functions. The queues are those of the function.json files; host.json says how many
messages are in flight, how often one is tried (maxDequeueCount), and how messages are encoded. The
settings are those of serve, which "async-caller serve --help" lists, and those of
local.settings.json.

If only the settings are wrong, the worker is in hold mode: it receives no message, says so in its
log and in status, and goes on until it is started again.

SIGTERM or Ctrl-C stops it: it receives no more messages, waits for the calls in flight, and then
interrupts those that are left, whose messages are visible again within seconds. A second signal
ends it at once; the messages in flight are then invisible until their leases of 6 minutes end.`,
		Example: `  async-caller work --app dist
  async-caller work --queues async-caller,async-caller-1 --health 8080`,
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(&app, "app", functionapp.RootPath(env.getenv), "app `folder` with host.json")
	flags.StringSliceVar(&queues, "queues", nil, "serve only these `queues`")
	flags.DurationVar(&grace, "grace", 0,
		"how long a stop waits for calls in flight; by default the longest call and 5s")
	flags.Uint16Var(&health, "health", 0,
		"`port` on which GET / answers 200, or 503 with starting, settings or storage, for a readiness probe")
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := work.ReadConfig(app, env.Environ, queues)
		if err != nil {
			return usageError(err)
		}
		if cmd.Flags().Changed("grace") {
			c.Grace = grace
		}
		if grace < 0 {
			return usageError(fmt.Errorf("--grace is %v: give 0s or more", grace))
		}
		if health > 0 {
			c.HealthPort = strconv.Itoa(int(health))
		}
		return runWork(cmd.Context(), env, c)
	}
	return command
}

func runWork(ctx context.Context, env Env, c work.Config) error {
	store, err := openStore(c.App)
	if err != nil {
		return err
	}
	defer store.Close()
	c.Store, c.Version = store, version()
	return work.Run(ctx, c, logview.OnTerminal(env.Stdout))
}
