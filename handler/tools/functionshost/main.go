// Functionshost is a local stand-in for the Azure Functions host, for development and tests only. It runs one app
// folder on one machine: `go run ./handler/tools/functionshost -app dist`. It has no scale controller, no triggers
// other than queues, timers and the posts of routes, and no output bindings other than the answers to these.
//
// It starts the custom handler of host.json as a process, listens to the queues, runs the timers and serves the HTTP
// functions of the function.json files, as `func start` does. It behaves as docs/host.md says, and like the newest host
// where versions differ. It is a Development host, and tells the handler so, unless AZURE_FUNCTIONS_ENVIRONMENT says
// otherwise. Its settings are those of the environment and of local.settings.json. It passes on the output of the
// handler, and shows the log on a terminal as `async-caller log` does.
//
// It stops as the Functions host does: after SIGTERM it waits at most 10 s for calls in progress, and never kills a
// handler that still makes calls. Ctrl-C reaches the handler too, which interrupts and reschedules its calls.
//
// It differs from the real host in these points:
//
//   - A handler that cannot be started is an error at once, instead of a stop after two minutes. One that ends before
//     it was ready is restarted after a second instead of at once.
//   - A request to storage ends after 10 s instead of 100 s, and what completes a message is repeated for 30 s instead
//     of 6 s.
//   - Messages wait for a handler until the host stops, which it does when a handler failed three times.
//   - If storage cannot be reached, the host keeps polling instead of crashing.
//   - No poll begins after a stop. The real host still takes messages that become visible in the stop's first moments,
//     and cuts off a poll in progress, whose messages are then invisible until their lease ends.
//   - A write to a poison queue does not wake the function that reads this queue.
//   - In text mode, the content of a message does not overwrite its metadata.
//   - Of the HTTP functions it serves those that `async-caller routes sync` makes, at that route below /api, whatever
//     function.json says. Their key is that of -key, and there is no master key.
//   - %NAME% in the arguments of the handler is refused.
//   - Schedules start afresh with the host, in UTC, and a time that passes during an invocation is skipped. No
//     invocation has a ScheduleStatus, and two of these hosts invoke a timer function twice. Intervals are refused.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/logview"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/storage/azure"
)

// Exit codes, as those of async-caller.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong usage or configuration
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run runs the host until ctx ends, and returns the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("functionshost", flag.ContinueOnError)
	flags.SetOutput(stderr)
	app := flags.String("app", ".", "app `folder` with host.json")
	o := options{Env: environ, Stdout: stdout, Stderr: stderr}
	flags.DurationVar(&o.Lease, "lease", defaultLease, "`duration` that a message stays invisible during an invocation")
	flags.IntVar(&o.MaxHandlerErrors, "max-handler-errors", defaultHandlerErrors,
		"crashes of the handler, at most 30 minutes apart, that stop the host; -1 for no limit")
	flags.StringVar(&o.HTTPAddress, "http", "127.0.0.1:7071", "`address` of HTTP functions, if the app has any")
	flags.StringVar(&o.Key, "key", "", "their function `key`; without one, everybody may post, as under func start")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil: // Parse has reported it
		return exitUsage
	case flags.NArg() > 0:
		return report(stderr, exitUsage, fmt.Errorf("unknown argument %q: name the app folder with -app", flags.Arg(0)))
	}
	store, err := o.read(*app)
	if err != nil {
		return report(stderr, exitUsage, err)
	}
	defer store.Close()
	if terminal.Is(stderr) {
		fmt.Fprintf(stderr, "running %s on %s, a line for each delivery\n", *app, o.Account)
	}
	if err := newHost(o).Run(ctx); err != nil {
		return report(stderr, exitFailed, err)
	}
	return exitDone
}

// read reads the app folder and opens its storage account. The error joins all problems.
func (o *options) read(folder string) (*azure.Queues, error) {
	a := config.ReadApp(folder, o.Env, config.Operator)
	if a.LocalErr != nil {
		return nil, a.LocalErr
	}
	var store *azure.Queues
	err := a.ConnectionErr
	if err == nil {
		store, err = azure.Open(a.Connection)
	}
	if err := errors.Join(a.FunctionsErr, checkTimers(a.Functions), err); err != nil {
		return nil, err
	}
	o.App, o.Store, o.Account, o.Env = a.Functions, store, a.Connection.Account(), a.Environ
	o.Stdout = logview.OnTerminal(o.Stdout)
	o.Log = logs.New(logview.OnTerminal(o.Stderr), zerolog.InfoLevel)
	return store, nil
}

// report prints an error, and what to do about it if storage refuses. It returns the exit code.
func report(stderr io.Writer, code int, err error) int {
	for line := range strings.Lines(err.Error() + "\n" + azure.Advice(err, azure.Roles)) {
		line = strings.TrimSpace(line)
		if line != "" {
			fmt.Fprintf(stderr, "functionshost: %s\n", text.Printable(line))
		}
	}
	return code
}
