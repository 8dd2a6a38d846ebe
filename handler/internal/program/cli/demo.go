package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/program/demo"
	"asynccaller/handler/internal/rules/guard"
)

const demoName = "demo"

func newDemo(env Env) *cobra.Command {
	o := demo.Options{Name: programName, Version: version(), Environ: env.Environ, Stderr: env.Stderr}
	command := &cobra.Command{
		Use:   demoName,
		Short: "Show what the app does, on this machine alone",
		Long: `Deliver messages on this machine and show what becomes of each. The demo is a worker, a target that
fails as its URL says, and a stand-in for Azure Storage: queues and tables in memory, at 127.0.0.1,
which keep nothing. It needs no other program and no network, and reads no settings of yours. The
exit code is 1 unless all messages end as expected.

With --stay, an app with empty queues then runs until Ctrl-C. The demo prints how the commands find
it: its connection string has a key that is new each time. It may call public addresses and its own
target. --allow adds others of this machine and its networks.

With --app, the app of a folder runs in its place, with its settings, targets.json, retry.json and
routes.json as they are at the start, but never with the storage that local.settings.json names.`,
		Example: `  async-caller demo
  async-caller demo --stay
  async-caller demo --app dist
  async-caller demo --stay --port 9000 --allow 10.1.0.0/16,127.0.0.1`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	flags.BoolVar(&o.Stay, "stay", false, "keep an app running until Ctrl-C")
	flags.StringVar(&o.App, "app", "", "`folder` of an app that runs until Ctrl-C")
	flags.IntVar(&o.Port, "port", 0, fmt.Sprintf("the first of three `ports`: queues, tables, target (default free "+
		"ones, with --stay or --app %d)", demo.StayPort))
	flags.StringVar(&o.Allow, "allow", "", "`targets` that may be called as well: networks, addresses, names, *.suffix")
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		flags.refuse(o.Port < 0 || o.Port > demo.LastPort,
			fmt.Sprintf("--port: want a number from 1 to %d", demo.LastPort))
		if o.Allow != "" {
			_, err := guard.ParseAllow(o.Allow)
			flags.refuse(err != nil, fmt.Sprintf("--allow: %v", err))
		}
		err := flags.err()
		if err != nil {
			return err
		}
		o.Executable, err = os.Executable()
		if err != nil {
			return err
		}
		o.Name, o.Stdout = os.Args[0], env.out
		err = demo.Run(cmd.Context(), o)
		if errors.Is(err, demo.ErrApp) {
			return usageError(err)
		}
		return err
	}
	return command
}
