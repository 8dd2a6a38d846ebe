package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/queue/azure"
	"asynccaller/handler/tools/host"
)

type hostOptions struct {
	app       string
	lease     time.Duration
	maxErrors int
}

func newHost(s Surroundings) *cobra.Command {
	var options hostOptions
	command := &cobra.Command{
		Use:   "host",
		Short: "Run an app folder without the Functions host (development and tests only)",
		Long: `Host is a local stand-in for the Azure Functions host, for development and tests only. It reads the
same host.json, function.json and local.settings.json of an app folder, starts the handler as a
process, polls the queues, runs the timers (by UTC) and speaks the same HTTP. In Azure the real
host does all this.

It makes no queues; "async-caller send" does. Ctrl-C stops it in good order: calls under way are
interrupted and rescheduled. The handler's output is passed through.`,
		Example: `  make build && dist/async-caller host --app dist
  AzureWebJobsStorage='...' async-caller host --app dist --lease 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runHost(cmd.Context(), s, options) },
	}
	flags := command.Flags()
	flags.StringVar(&options.app, "app", ".", "app folder: the one that holds host.json")
	flags.DurationVar(&options.lease, "lease", 10*time.Minute, "how long a message that is being handled stays invisible; shorter only for tests")
	flags.IntVar(&options.maxErrors, "max-handler-errors", 3, "crashes of the handler, each within 30 minutes of the last, that stop the host; -1 for no limit")
	return command
}

func runHost(ctx context.Context, s Surroundings, options hostOptions) error {
	environ, err := functionapp.WithLocalSettings(options.app, s.Environ)
	if err != nil {
		return wrongUsage(err)
	}
	s.Environ = environ
	app, appErr := functionapp.Load(options.app, environ)
	connection, connectionErr := azure.ParseConnection(s.getenv, functionapp.ConnectionName)
	if err := errors.Join(appErr, connectionErr); err != nil {
		return wrongUsage(err)
	}
	store, err := azure.Open(connection)
	if err != nil {
		return wrongUsage(err)
	}
	defer store.Close()
	return host.New(host.Options{
		App:              app,
		Store:            store,
		Env:              environ,
		Lease:            options.lease,
		MaxHandlerErrors: options.maxErrors,
		Stdout:           passThrough(s.Stdout),
		Stderr:           s.Stderr,
		Log:              logs.New(passThrough(s.Stderr), zerolog.InfoLevel),
	}).Run(ctx)
}

// passThrough returns a writer for log lines: it writes them unchanged or, to a terminal, as text.
func passThrough(out io.Writer) io.Writer {
	if !isTerminal(out) {
		return out
	}
	return logs.Readable(out)
}
