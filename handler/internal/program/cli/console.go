package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/program/console"
)

func newConsole(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "console"}
	port := 0
	command := &cobra.Command{
		Use:   "console",
		Short: "Show the account on a page in a browser on this machine",
		Long: `Serve pages for a browser on this machine: what waits, why targets fail, calls over time, groups of
scheduled calls and of dead letters, one call, and the runs of all operators. The pages show what
this command may read, with secrets masked, and refresh themselves every 10 s while they are
visible. They change nothing and receive no message. The commands that change something are beside
it.

The command prints the address of the first page, a name below localhost that is new each time. If
the browser does not know it, put 127.0.0.1 in its place. Whoever has the address and reaches a port
of this machine sees what the pages show: it is a secret until the command ends. That is after
Ctrl-C, or when no page was asked for in an hour.`,
		Example: `  async-caller console --app ./my-app
  ssh -L 8100:127.0.0.1:8100 admin.example.com async-caller console --port 8100`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	flags.IntVar(&port, "port", 0, "`port` on 127.0.0.1 (default a free one)")
	flags.StringVar(&shared.app, "app", ".", "app folder with host.json, function.json and local.settings.json")
	flags.StringVar(&shared.runs, "runs", "", "folder for journals (default async-caller/runs in $XDG_STATE_HOME)")
	serve := shared.withSession(func(ctx context.Context, s *session, _ []string) error {
		return s.serveConsole(ctx, port)
	})
	command.RunE = func(cmd *cobra.Command, args []string) error {
		flags.refuse(port < 0 || port > 65535, "--port: want a number from 1 to 65535")
		if err := flags.err(); err != nil {
			return err
		}
		return serve(cmd, args)
	}
	return command
}

// serveConsole serves the console until the command is stopped, or idle.
func (s *session) serveConsole(ctx context.Context, port int) error {
	if _, err := s.account.Reach(ctx); err != nil {
		return err
	}
	listeners, err := console.Listen(ctx, strconv.Itoa(port))
	if err != nil {
		return fmt.Errorf("%w; --port chooses another port", err)
	}
	secret := console.NewSecret()
	s.account.OnScanned = nil // nobody waits at the terminal
	fmt.Fprintln(s.out, console.URL(listeners[0], secret))
	s.progress.printf("open it in a browser on this machine; Ctrl-C ends the console of %s", s.account.Name)
	err = console.New(s.operations, s.givenFlags()).Serve(ctx, listeners[0], secret, listeners[1:]...)
	if errors.Is(err, console.ErrIdle) {
		s.progress.printf("ended: no page was asked for in %s", format.Duration(console.IdleTime))
		return nil
	}
	return err
}

// givenFlags returns the flags that a command needs to be about the same account, and the same journals, as it was
// given them.
func (s *session) givenFlags() string {
	flags := ""
	if s.app != "." {
		flags += " --app " + format.ShellWord(s.app)
	}
	if s.runs != "" {
		flags += " --runs " + format.ShellWord(s.runs)
	}
	return strings.TrimSpace(flags)
}
