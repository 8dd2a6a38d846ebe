package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/doctor"
	"asynccaller/handler/internal/send"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/strictjson"
)

func newDoctor(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "doctor"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Find out why an app delivers nothing, and what to do",
		Long: `Check the settings, host.json, every function.json, the executable, the storage account and each
permission on it, the clock, the queues that functions read, the encoding of their first messages,
and whether the app runs. Each line is ok, warning or broken, and says what to do next; with --json
it has the members state, check, text and next. The exit code is 1 if something is broken. A check
that depends on a broken one is left out. Without host.json it checks the queues that we ship.

The settings and the credential are those of this environment and of local.settings.json. It changes
nothing: it only peeks at messages, and tries writes on messages, rows and blobs that do not exist.`,
		Example: `  async-caller doctor
  async-caller doctor --app dist
  async-caller doctor --json | jq -r 'select(.state == "broken") | .next'`,
		Args: cobra.NoArgs,
	}
	shared.addApp(flagsOf(command).FlagSet)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		s, broken := shared.newSession(), 0
		diagnose(cmd.Context(), env, shared.app, func(line doctor.Line) {
			if line.State == doctor.Broken {
				broken++
			}
			printAll(s, []doctor.Line{line}, printDiagnosis)
		})
		if broken > 0 {
			return fmt.Errorf("%s failed", plural(broken, "check"))
		}
		return s.out.err
	}
	return command
}

// diagnose runs all checks.
func diagnose(ctx context.Context, env Env, dir string, report doctor.Reporter) {
	a := config.ReadApp(dir, env.Environ, config.Doctor)
	report.Problems("settings", errors.Join(a.LocalErr, a.SettingsErr),
		"correct it and restart the app: until then it makes no calls", "valid")
	report.Problems("app folder", a.FunctionsErr, "correct the file and deploy again, or name the app "+
		"folder with --app", "host.json and the function.json files are valid")
	queues, encoding := send.Queues(), storage.Base64
	if a.Functions != nil {
		report.App(a.Functions, a.Environ)
		encoding = a.Functions.Host.Queues.MessageEncoding
		if len(a.Functions.Functions) > 0 {
			queues = a.Functions.QueueNames()
		}
	}
	report.Problems("connection", a.ConnectionErr, "correct the setting, in the app and in this environment", "valid")
	if a.ConnectionErr != nil {
		report.Skip("storage, clock, permissions, queues, encoding and heartbeats")
		return
	}
	report.Storage(ctx, a.Connection, queues, encoding, a.Settings.Scheduled != config.Off)
}

func printDiagnosis(out io.Writer, lines []doctor.Line) {
	for _, line := range lines {
		printLine(out, string(line.State), "%s: %s", line.Check, strictjson.ReplaceUnprintable(line.Text))
		printField(out, "", strictjson.ReplaceUnprintable(strings.TrimSuffix("next: "+line.Next, "next: ")))
	}
}
