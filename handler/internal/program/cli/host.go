package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionshost"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/program/terminal"
)

func newHost(env Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "host",
		Short: "Run an app folder without the Functions host (development and tests only)",
		Long: `Run a local stand-in for the Azure Functions host, for development and tests only. It reads the same
host.json, function.json and local.settings.json, starts the handler as a process, polls the queues,
runs the timers in UTC, and speaks the same HTTP.

It does not create queues; "async-caller send" does. It stops as the Functions host does: after
SIGTERM it waits at most 10 s for calls in progress, and never kills a handler that still makes
calls. Ctrl-C reaches the handler too, which interrupts and reschedules its calls. The output of
the handler is passed through. On a terminal, the log is shown as by "async-caller log".

The handler's AZURE_FUNCTIONS_ENVIRONMENT is Development, unless it is set.`,
		Example: `  make build && dist/async-caller host --app dist
  AzureWebJobsStorage='...' async-caller host --app dist --lease 30s`,
		Args: cobra.NoArgs,
	}
	var app string
	var options functionshost.Options
	flags := flagsOf(command)
	flags.StringVar(&app, "app", ".", "app folder with host.json")
	options.Lease = functionshost.DefaultLease
	durationFlag(flags, &options.Lease, "lease",
		"`duration` that a message stays invisible during an invocation")
	flags.IntVar(&options.MaxHandlerErrors, "max-handler-errors", functionshost.DefaultHandlerErrors,
		"crashes of the handler, at most 30 minutes apart, that stop the host; -1 for no limit")
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.err(); err != nil {
			return err
		}
		return runHost(cmd.Context(), env, app, options)
	}
	return command
}

func runHost(ctx context.Context, env Env, folder string, options functionshost.Options) error {
	a := config.ReadApp(folder, env.Environ, config.Operator)
	if a.LocalErr != nil {
		return usageError(a.LocalErr)
	}
	store, err := openStore(a)
	err = errors.Join(a.FunctionsErr, functionshost.CheckTimers(a.Functions), err)
	if err != nil {
		return usageError(err)
	}
	defer store.Close()
	options.App = a.Functions
	options.Store = store
	options.Account = a.Connection.Account()
	options.Env = a.Environ
	signal.Reset(syscall.SIGPIPE) // the reader of the log ends, and so does the host
	options.Stdout = logOutput(env.Stdout)
	options.Stderr = env.Stderr
	options.Log = logs.New(logOutput(env.Stderr), zerolog.InfoLevel)
	if terminal.Is(env.Stderr) {
		fmt.Fprintf(env.Stderr, "running %s on %s, a line for each delivery\n", folder, options.Account)
	}
	return functionshost.New(options).Run(ctx)
}
