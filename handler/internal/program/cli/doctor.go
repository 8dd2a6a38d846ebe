package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/operate/doctor"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
)

func newDoctor(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "doctor"}
	var auth bool
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Find out why an app delivers nothing, and what to do",
		Long: `Check the settings, host.json, every function.json, the executable, the log levels, the storage
account and each permission on it, the clock, the queues that functions read, the encoding of their
first messages, and whether the apps on the account run. Each line is ok, warning or
broken, and says what to do next; with --json it has the members state, check, text and next. The
exit code is 1 if something is broken. A check that depends on a broken one is left out. Without
host.json it checks the queues that we ship. In the project's folder it checks dist.

The settings and the credential are those of this environment and of local.settings.json. It changes
nothing: it only peeks at messages, and tries writes on messages, rows and blobs that do not exist.
--auth sends the secrets that targets.json refers to to its token servers.`,
		Example: `  async-caller doctor
  async-caller doctor --auth
  async-caller doctor --app dist
  async-caller doctor --json | jq -r 'select(.state == "broken") | .next'`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	flags.BoolVar(&auth, "auth", false, "also fetch a token of each credential in targets.json, and drop it")
	shared.addApp(flags.FlagSet)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		s := shared.newSession()
		broken := 0
		report := func(line doctor.Line) {
			if line.State == doctor.Broken {
				broken++
			}
			printAll(s, []doctor.Line{line}, printDiagnosis)
		}
		app := functionapp.Staged(shared.app)
		doctor.Run(cmd.Context(), app, env.Environ, report)
		if auth {
			doctor.Auth(cmd.Context(), app, env.Environ, report)
		}
		if broken > 0 {
			return &codeError{exitFailed, fmt.Errorf("%s failed", format.Plural(broken, "check"))}
		}
		return nil
	}
	return command
}

func printDiagnosis(out io.Writer, lines []doctor.Line) {
	for _, line := range lines {
		terminal.PrintLine(out, string(line.State), "%s: %s", line.Check, text.Printable(line.Text))
		if line.Next != "" {
			terminal.PrintLine(out, "", "next: %s", text.Printable(line.Next))
		}
	}
}
